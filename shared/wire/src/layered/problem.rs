//! Problems of settings files.

use std::fmt;

use serde::Serialize;

use super::tree::Origin;

/// In place of a file name if no file sets the invalid value.
const DEFAULT: &str = "(default)";

/// A problem of the settings, with its location. Printed on one line as `file:line: path: message
/// (did you mean …?)`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Name of the file, or `(default)` if no file sets the invalid value.
    pub file: String,
    /// Line, from 1; 0 if the problem concerns the whole file or a value that no file sets.
    pub line: usize,
    /// Path of the key, e.g. `server.listeners[local].address`; empty if the problem concerns the
    /// whole file.
    pub path: String,
    /// Description of the problem.
    pub message: String,
    /// The most similar known key or value, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<String>,
}

impl Problem {
    /// Creates a problem of the value that `origin` set.
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

    /// Creates a problem of a whole file.
    pub fn of_file(file: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            line,
            path: String::new(),
            message: message.into(),
            nearest: None,
        }
    }

    /// Whether the problem concerns a value that no file sets.
    pub fn is_about_default(&self) -> bool {
        self.file == DEFAULT
    }

    /// The section (top-level key) of the problem; empty if it concerns the whole file.
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

/// Writes a text with its control characters escaped: a file's content must neither break the line
/// nor send control sequences to the terminal.
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
