//! Aligned rows of cells, some of them coloured. The text always contains colours; anstream removes
//! them if the output is not a terminal.

use anstyle::{AnsiColor, Style};

#[derive(Debug, Clone, Default)]
pub(super) struct Cell {
    text: String,
    colour: Option<AnsiColor>,
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<String> for Cell {
    /// Replaces control characters, so that text from the guest's files does not control the
    /// terminal.
    fn from(text: String) -> Self {
        Self {
            text: text.replace(char::is_control, " "),
            colour: None,
        }
    }
}

impl Cell {
    pub(super) fn coloured(text: &str, colour: AnsiColor) -> Self {
        Self {
            colour: Some(colour),
            ..text.into()
        }
    }

    fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}

/// Appends a line to `text`. Control characters, for example in a disk's label, become spaces, so
/// that they do not reach the terminal.
pub(super) fn push(text: &mut String, line: &str) {
    text.push_str(&line.replace(char::is_control, " "));
    text.push('\n');
}

/// Formats rows with aligned columns. Each row is indented by `indent`, the last column is not
/// padded, and empty columns are left out.
pub(super) fn rows(indent: usize, rows: &[Vec<Cell>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.text.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    rows.iter().map(|row| line(indent, row, &widths)).collect()
}

/// Formats aligned rows, each followed by its text from `below`.
pub(super) fn tree(heads: &[Vec<Cell>], below: impl Iterator<Item = String>) -> String {
    let mut text = String::new();
    for (head, below) in rows(2, heads).lines().zip(below) {
        text.push_str(head);
        text.push('\n');
        text.push_str(&below);
    }
    text
}

fn line(indent: usize, row: &[Cell], widths: &[usize]) -> String {
    let mut line = " ".repeat(indent);
    let last = row.iter().rposition(|cell| !cell.is_empty()).unwrap_or(0);
    for (column, cell) in row.iter().enumerate().take(last + 1) {
        let width = widths.get(column).copied().unwrap_or(0);
        if width == 0 {
            continue;
        }
        let padding = if column == last {
            0
        } else {
            width - cell.text.chars().count() + 2
        };
        let text = &cell.text;
        match cell.colour {
            Some(colour) => {
                let style = Style::new().fg_color(Some(colour.into()));
                line.extend([&style.to_string(), text, &format!("{style:#}")].map(String::as_str));
            }
            None => line.push_str(text),
        }
        line.push_str(&" ".repeat(padding));
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_control_characters_are_removed() {
        let all = [
            vec![
                "a".into(),
                Cell::default(),
                Cell::coloured("ok", AnsiColor::Green),
                "x".into(),
            ],
            vec!["long\u{1b}[1m".into(), Cell::default(), "needs".into()],
            Vec::new(),
        ];
        let text = rows(2, &all);
        let plain = anstream::adapter::strip_str(&text).to_string();
        assert_eq!(plain, "  a         ok     x\n  long [1m  needs\n  \n");
        assert!(text.contains("\u{1b}[32mok"), "{text:?}");
        assert_eq!(rows(0, &[]), "");
    }
}
