//! One thing that is wrong with a settings file, on one line.

use std::fmt;

use serde::Serialize;

use super::tree::Origin;

/// Stands for a file where no file sets the value that is wrong.
const DEFAULT: &str = "(default)";

/// What is wrong with the settings, and where. Prints as `file:line: path: message (did you mean
/// …?)`, always one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file's name, or `(default)` where no file sets the value that is wrong.
    pub file: String,
    /// Line, from 1; 0 when it is about the whole file or about a value that no file sets.
    pub line: usize,
    /// The key, e.g. `server.listeners[local].address`; empty when it is about the whole file.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// The known key or value that was probably meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<String>,
}

impl Problem {
    /// A problem of the value that `origin` set.
    pub fn at(origin: &Origin, path: impl Into<String>, message: impl Into<String>) -> Self {
        let (file, line) = match origin {
            Origin::Default => (DEFAULT.to_owned(), 0),
            Origin::File { file, line } => (file.to_string(), *line),
        };
        Self {
            file,
            line,
            path: path.into(),
            message: message.into(),
            nearest: None,
        }
    }

    /// A problem of a whole file.
    pub fn of_file(file: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            line,
            path: String::new(),
            message: message.into(),
            nearest: None,
        }
    }

    /// Whether it is about a value that no file sets.
    pub fn is_about_default(&self) -> bool {
        self.file == DEFAULT
    }

    /// The section (top-level key) that it is about; empty when it is about the whole file.
    pub fn section(&self) -> &str {
        self.path.split(['.', '[']).next().unwrap_or_default()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        one_line(f, &self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.path.is_empty() {
            f.write_str(": ")?;
            one_line(f, &self.path)?;
        }
        f.write_str(": ")?;
        one_line(f, &self.message)?;
        if let Some(nearest) = &self.nearest {
            f.write_str(" (did you mean ")?;
            one_line(f, nearest)?;
            f.write_str("?)")?;
        }
        Ok(())
    }
}

/// Control characters are escaped: what stands in a file must neither break the line nor speak to
/// the terminal.
fn one_line(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for c in text.chars() {
        if c.is_control() {
            write!(f, "{}", c.escape_default())?;
        } else {
            fmt::Write::write_char(f, c)?;
        }
    }
    Ok(())
}
