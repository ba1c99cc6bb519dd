//! Output of the CLI: two writers and their properties.

use std::io::{self, IsTerminal as _, Write};

use super::text::safe;

/// Maximum characters of a note.
const MAX_NOTE_CHARS: usize = 4000;

/// Standard output and standard error, or their replacements in a test.
pub(super) struct Console<'io> {
    pub(super) out: &'io mut dyn Write,
    pub(super) err: &'io mut dyn Write,
    /// Whether `out` gets colours: it is a terminal, and `NO_COLOR` or the like is not set.
    pub(super) colour: bool,
    /// Whether `out` is a terminal that can be redrawn.
    pub(super) terminal: bool,
    /// Milliseconds since 1970.
    pub(super) now: fn() -> u64,
}

impl Console<'_> {
    /// Calls `run` with the standard streams.
    pub(super) fn with_real<T>(run: impl FnOnce(Console<'_>) -> T) -> T {
        let (mut out, mut err) = (io::stdout(), io::stderr());
        let colour = anstream::AutoStream::choice(&out) != anstream::ColorChoice::Never;
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let terminal = out.is_terminal() && !dumb;
        run(Console {
            out: &mut out,
            err: &mut err,
            colour,
            terminal,
            now,
        })
    }

    /// Writes `text` unchanged.
    pub(super) fn print(&mut self, text: &str) -> io::Result<()> {
        self.print_bytes(text.as_bytes())
    }

    /// Writes `bytes` unchanged.
    pub(super) fn print_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.out.flush()
    }

    /// Redraws the terminal with `text`: from the top left corner, clearing the rest of each line
    /// and everything below.
    pub(super) fn redraw(&mut self, text: &str) -> io::Result<()> {
        let lines = text.replace('\n', "\x1b[K\n");
        self.print(&format!("\x1b[H{lines}\x1b[J"))
    }

    /// Clears the terminal, once before the first [`Console::redraw`].
    pub(super) fn clear(&mut self) -> io::Result<()> {
        self.print("\x1b[2J")
    }

    /// Writes a note to standard error, with control characters of servers escaped. Errors are
    /// ignored: there is no other stream to report them.
    pub(super) fn note(&mut self, text: &str) {
        for line in text.lines() {
            let (indent, words) = line.split_at(line.len() - line.trim_start_matches(' ').len());
            drop(writeln!(self.err, "{indent}{}", safe(words, MAX_NOTE_CHARS)));
        }
    }
}

fn now() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0)
}
