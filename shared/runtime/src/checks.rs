//! Results of the verb `doctor`, which both programs have, and their output for a terminal.

use anstyle::{AnsiColor, Style};
use serde::Serialize;

/// Result of a check, ordered by severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckStatus {
    Ok,
    /// Nothing uses what would be checked, or it cannot be checked from here.
    Skip,
    /// The program works, but something is missing.
    Warn,
    /// The program cannot do part of its work.
    Fail,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckResult {
    /// Whether the check passed.
    pub status: CheckStatus,
    /// What was checked, e.g. `scrape.tls.key` or `listener default`.
    pub what: String,
    pub detail: String,
    /// The next command to run; empty only for `Ok`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub next: String,
}

impl CheckResult {
    pub fn ok(what: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(CheckStatus::Ok, what, detail, "")
    }

    /// A check that was left out.
    pub fn skip(what: impl Into<String>, detail: impl Into<String>, next: impl Into<String>) -> Self {
        Self::new(CheckStatus::Skip, what, detail, next)
    }

    /// A check that found something missing.
    pub fn warn(what: impl Into<String>, detail: impl Into<String>, next: impl Into<String>) -> Self {
        Self::new(CheckStatus::Warn, what, detail, next)
    }

    pub fn fail(what: impl Into<String>, detail: impl Into<String>, next: impl Into<String>) -> Self {
        Self::new(CheckStatus::Fail, what, detail, next)
    }

    pub fn new(
        status: CheckStatus,
        what: impl Into<String>,
        detail: impl Into<String>,
        next: impl Into<String>,
    ) -> Self {
        Self {
            status,
            what: what.into(),
            detail: detail.into(),
            next: next.into(),
        }
    }
}

/// Whether any check failed; the exit code is then 1.
pub fn any_failed(results: &[CheckResult]) -> bool {
    results.iter().any(|result| result.status == CheckStatus::Fail)
}

/// Formats results as aligned, coloured text. Print it through `anstream`, which removes the
/// colours where the output is not a terminal or `NO_COLOR` is set.
pub fn text(results: &[CheckResult]) -> String {
    let width = results.iter().map(|result| result.what.chars().count()).max();
    let width = width.unwrap_or(0);
    // Text from a guest's files or from an API server must not control the terminal.
    let printable = |text: &str| text.replace(char::is_control, " ");
    let rows = results.iter().map(|result| {
        let (word, colour) = match result.status {
            CheckStatus::Ok => ("ok", AnsiColor::Green),
            CheckStatus::Skip => ("skip", AnsiColor::Cyan),
            CheckStatus::Warn => ("warn", AnsiColor::Yellow),
            CheckStatus::Fail => ("fail", AnsiColor::Red),
        };
        let style = Style::new().fg_color(Some(colour.into()));
        let what = printable(&result.what);
        let (detail, next) = (printable(&result.detail), printable(&result.next));
        let row = format!("{style}{word:4}{style:#}  {what:width$}  {detail}\n");
        if next.is_empty() {
            row
        } else {
            format!("{row}      {:width$}  → {next}\n", "")
        }
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_aligns_and_removes_control_characters() {
        let results = [
            CheckResult::ok("a", "fine"),
            CheckResult::warn("long", "x\u{1b}[2Jy", "ls"),
            CheckResult::skip("b", "not used", "set c"),
        ];
        let plain = text(&results).replace("\u{1b}[0m", "");
        let plain = plain.replace("\u{1b}[32m", "").replace("\u{1b}[33m", "");
        let plain = plain.replace("\u{1b}[36m", "");
        assert_eq!(
            plain,
            "ok    a     fine\nwarn  long  x [2Jy\n            → ls\nskip  b     not used\n            → set c\n"
        );
        assert!(!any_failed(&results));
        assert!(any_failed(&[CheckResult::fail("a", "b", "c")]));
    }
}
