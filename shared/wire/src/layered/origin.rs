//! Where a value comes from.

use std::{fmt, sync::Arc};

/// Who set a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// No file: the program's default stands.
    Default,
    /// A file, at a line (from 1).
    File {
        /// The file's name.
        file: Arc<str>,
        /// The line of the value's key.
        line: usize,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("(default)"),
            Self::File { file, line } => write!(f, "{file}:{line}"),
        }
    }
}
