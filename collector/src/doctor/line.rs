//! One line of the doctor, and how lines are printed.

use anstyle::{AnsiColor, Style};
use serde::Serialize;

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Ok,
    /// The collector works, and something is missing.
    Warn,
    /// The collector cannot do part of its work.
    Fail,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// How it came out.
    pub status: Status,
    /// What was checked, e.g. `scrape.tls.key` or `lease`.
    pub what: String,
    /// What was found.
    pub detail: String,
    /// The next command to type; never empty for warn and fail.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub next: String,
}

impl Line {
    /// A check that passed.
    pub fn ok(what: &str, detail: impl Into<String>) -> Self {
        Self::new(Status::Ok, what, detail, "")
    }

    /// A check that passed with something missing.
    pub fn warn(what: &str, detail: impl Into<String>, next: impl Into<String>) -> Self {
        Self::new(Status::Warn, what, detail, next)
    }

    /// A check that failed.
    pub fn fail(what: &str, detail: impl Into<String>, next: impl Into<String>) -> Self {
        Self::new(Status::Fail, what, detail, next)
    }

    /// A check with any status.
    pub fn new(status: Status, what: &str, detail: impl Into<String>, next: impl Into<String>) -> Self {
        Self {
            status,
            what: what.to_owned(),
            detail: detail.into(),
            next: next.into(),
        }
    }
}

/// Lines for people. Print them through `anstream`, which removes colours where there is no terminal.
pub fn text(lines: &[Line]) -> String {
    let width = lines.iter().map(|line| line.what.chars().count()).max();
    let width = width.unwrap_or(0);
    // An API server's answer must not control the terminal.
    let quiet = |text: &str| text.replace(char::is_control, " ");
    let rows = lines.iter().map(|line| {
        let (word, colour) = match line.status {
            Status::Ok => ("ok", AnsiColor::Green),
            Status::Warn => ("warn", AnsiColor::Yellow),
            Status::Fail => ("fail", AnsiColor::Red),
        };
        let style = Style::new().fg_color(Some(colour.into()));
        let (what, detail, next) = (quiet(&line.what), quiet(&line.detail), quiet(&line.next));
        let row = format!("{style}{word:4}{style:#}  {what:width$}  {detail}\n");
        if next.is_empty() {
            row
        } else {
            format!("{row}      {:width$}  → {next}\n", "")
        }
    });
    rows.collect()
}
