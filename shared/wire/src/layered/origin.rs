//! Origin of a value.

use std::{fmt, sync::Arc};

/// Origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// No file sets the value; the program's default applies.
    Default,
    /// A file sets it, at a line (from 1).
    File {
        /// Name of the file.
        file: Arc<str>,
        /// Line of the value's key.
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
