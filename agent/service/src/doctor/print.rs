//! Prints the doctor's lines. Colours are always in the text; anstream takes them out where nobody sees them (no terminal,
//! `NO_COLOR`).

use anstyle::{AnsiColor, Style};

use super::{Line, Status};

/// The lines as aligned text. Print it through `anstream`.
pub fn text(lines: &[Line]) -> String {
    let width = lines
        .iter()
        .map(|line| line.what.chars().count())
        .max()
        .unwrap_or(0);
    // What a guest's files say must not speak to the terminal.
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
