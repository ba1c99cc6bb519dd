//! Tables in the style of kubectl: upper-case headers, two spaces between columns, no lines.

use anstyle::{AnsiColor, Style};
use comfy_table::Table as Grid;

use super::text::safe;

/// Maximum characters of a cell.
pub(super) const MAX_CELL_CHARS: usize = 100;

/// Meaning of a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Good,
    Warn,
    Bad,
    Dim,
}

impl Tone {
    fn style(self) -> Style {
        let coloured = |colour: AnsiColor| Style::new().fg_color(Some(colour.into()));
        match self {
            Self::Plain => Style::new(),
            Self::Good => coloured(AnsiColor::Green),
            Self::Warn => coloured(AnsiColor::Yellow),
            Self::Bad => coloured(AnsiColor::Red),
            Self::Dim => Style::new().dimmed(),
        }
    }

    pub(super) fn paint(self, text: &str, colour: bool) -> String {
        if colour && self != Self::Plain {
            let style = self.style();
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }
}

/// One cell: never empty, on one line, without control characters.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub(super) fn new(text: impl AsRef<str>) -> Self {
        Self::toned(text, Tone::Plain)
    }
    pub(super) fn toned(text: impl AsRef<str>, tone: Tone) -> Self {
        let text = safe(text.as_ref(), usize::MAX);
        let text = if text.is_empty() { "-".to_owned() } else { text };
        Self { text, tone }
    }
    /// The cell, truncated to this number of characters.
    fn cut(&self, max_chars: usize) -> Self {
        let mut text: String = self.text.chars().take(max_chars).collect();
        if text.len() < self.text.len() {
            text.push('…');
        }
        Self {
            text,
            tone: self.tone,
        }
    }
    /// A cell with `-` for none.
    pub(super) fn maybe<T: ToString>(value: Option<T>) -> Self {
        Self::new(value.map(|value| value.to_string()).unwrap_or_default())
    }
}

/// A table: headers, and rows with as many cells.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) headers: Vec<String>,
    pub(super) rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(super) fn new(headers: &[&str]) -> Self {
        Self {
            headers: headers.iter().map(|&header| header.to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// The lines, without trailing spaces; no cell is longer than `max_chars` characters.
    pub(super) fn lines(&self, headers: bool, colour: bool, max_chars: usize) -> Vec<String> {
        let rows: Vec<Vec<Cell>> = self
            .rows
            .iter()
            .map(|row| row.iter().map(|cell| cell.cut(max_chars)).collect())
            .collect();
        let mut grid = Grid::new();
        grid.load_style(comfy_table::presets::NOTHING);
        if headers {
            grid.set_header(&self.headers);
        }
        for row in &rows {
            grid.add_row(row.iter().map(|cell| &cell.text));
        }
        for column in grid.column_iter_mut() {
            column.set_padding((0, 2));
        }
        let lines = grid.lines().map(|line| line.trim_end().to_owned());
        let skip = usize::from(headers);
        lines
            .enumerate()
            .map(
                |(index, line)| match index.checked_sub(skip).and_then(|row| rows.get(row)) {
                    Some(row) if colour => paint(&line, row),
                    _ => line,
                },
            )
            .collect()
    }
}

/// Colours the cells of a line made of `row`. No cell is empty or starts with a space, so there are
/// only spaces between two cells.
fn paint(line: &str, row: &[Cell]) -> String {
    let mut painted = String::with_capacity(line.len() + 32);
    let mut rest = line;
    for cell in row {
        let start = rest.len() - rest.trim_start_matches(' ').len();
        let (space, at_cell) = rest.split_at(start);
        painted.push_str(space);
        let Some(after) = at_cell.strip_prefix(cell.text.as_str()) else {
            break;
        };
        painted.push_str(&cell.tone.paint(&cell.text, true));
        rest = after;
        if rest.is_empty() {
            return painted;
        }
    }
    painted.push_str(rest);
    painted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["NAME", "STATE", "NOTE"]);
        table.rows = vec![
            vec![
                Cell::new("北京"),
                Cell::toned("up", Tone::Good),
                Cell::new("a  b"),
            ],
            vec![Cell::new("x\ny"), Cell::toned("up up", Tone::Bad), Cell::new("")],
        ];
        table
    }

    #[test]
    fn columns_are_aligned_by_width_on_screen() {
        let lines = table().lines(true, false, MAX_CELL_CHARS);
        assert_eq!(
            lines,
            [
                "NAME     STATE  NOTE",
                "北京     up     a  b",
                "x\\u{a}y  up up  -"
            ]
        );
        assert_eq!(table().lines(false, false, MAX_CELL_CHARS).len(), 2);
    }

    #[test]
    fn colours_do_not_change_the_text() {
        let plain = table().lines(true, false, MAX_CELL_CHARS);
        let coloured = table().lines(true, true, MAX_CELL_CHARS);
        assert!(coloured[1].contains("\x1b[32mup\x1b[0m"), "{:?}", coloured[1]);
        let stripped: Vec<_> = coloured
            .iter()
            .map(|line| anstream::adapter::strip_str(line).to_string())
            .collect();
        assert_eq!(stripped, plain);
    }
}
