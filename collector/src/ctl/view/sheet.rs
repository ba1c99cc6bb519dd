//! Sheet with details of one object: sections of names with values, and of tables.

use super::ViewOptions;
use crate::ctl::{
    table::{MAX_CELL_CHARS, Table, Tone},
    text::safe,
};

/// Maximum characters of a value.
const MAX_VALUE_CHARS: usize = 1000;
/// Column of the values, counted from the section's indent.
const VALUE_COLUMN: usize = 16;

pub(super) struct Sheet<'options> {
    text: String,
    options: &'options ViewOptions,
    indent: &'static str,
}

impl<'options> Sheet<'options> {
    pub(super) fn new(options: &'options ViewOptions) -> Self {
        Self {
            text: String::new(),
            options,
            indent: "",
        }
    }

    /// Starts a section; what follows is indented.
    pub(super) fn section(&mut self, title: &str) {
        self.indent = "  ";
        self.text.push_str(title);
        self.text.push_str(":\n");
    }

    /// `name: value`; nothing without a value.
    pub(super) fn pair<T: ToString>(&mut self, name: &str, value: Option<T>) {
        self.toned(name, value, Tone::Plain);
    }

    /// The same with a tone.
    pub(super) fn toned<T: ToString>(&mut self, name: &str, value: Option<T>, tone: Tone) {
        let Some(value) = value else { return };
        let value = tone.paint(&safe(&value.to_string(), MAX_VALUE_CHARS), self.options.colour);
        let name = format!("{}:", safe(name, 60));
        self.line(&format!("{name:VALUE_COLUMN$} {value}"));
    }

    pub(super) fn line(&mut self, line: &str) {
        self.text.push_str(self.indent);
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    /// A sentence of the server.
    pub(super) fn text(&mut self, text: &str) {
        self.line(&safe(text, MAX_VALUE_CHARS));
    }

    pub(super) fn table(&mut self, table: &Table) {
        for line in table.lines(self.options.headers, self.options.colour, MAX_CELL_CHARS) {
            self.line(&line);
        }
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}
