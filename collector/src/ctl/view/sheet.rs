//! A sheet about one thing: sections of names with values, and of tables.

use super::Look;
use crate::ctl::{
    table::{LONGEST_CELL, Table, Tone},
    text::safe,
};

/// The longest that a value may be, in characters.
const LONGEST_VALUE: usize = 1000;
/// Where values begin, counted from the section's indent.
const COLUMN: usize = 16;

/// A sheet under construction.
pub(super) struct Sheet<'look> {
    text: String,
    look: &'look Look,
    indent: &'static str,
}

impl<'look> Sheet<'look> {
    pub(super) fn new(look: &'look Look) -> Self {
        Self {
            text: String::new(),
            look,
            indent: "",
        }
    }

    /// Begins a section; what follows is indented.
    pub(super) fn section(&mut self, title: &str) {
        self.indent = "  ";
        self.text.push_str(title);
        self.text.push_str(":\n");
    }

    /// `name: value`; nothing when there is no value.
    pub(super) fn pair<T: ToString>(&mut self, name: &str, value: Option<T>) {
        self.toned(name, value, Tone::Plain);
    }

    /// The same in a tone.
    pub(super) fn toned<T: ToString>(&mut self, name: &str, value: Option<T>, tone: Tone) {
        let Some(value) = value else { return };
        let value = tone.paint(&safe(&value.to_string(), LONGEST_VALUE), self.look.colour);
        let name = format!("{}:", safe(name, 60));
        self.line(&format!("{name:COLUMN$} {value}"));
    }

    /// A line as it is.
    pub(super) fn line(&mut self, line: &str) {
        self.text.push_str(self.indent);
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    /// A table.
    pub(super) fn table(&mut self, table: &Table) {
        for line in table.lines(self.look.headers, self.look.colour, LONGEST_CELL) {
            self.line(&line);
        }
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}
