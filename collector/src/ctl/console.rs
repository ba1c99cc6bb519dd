//! Where the output goes: two writers, and what is known of them.

use std::io::{self, IsTerminal as _, Write};

use super::text::safe;

/// The longest that a line of a note may be, in characters.
const LONGEST_NOTE: usize = 4000;

/// Standard output and standard error, or what stands in for them in a test.
pub(super) struct Console<'io> {
    pub(super) out: &'io mut dyn Write,
    pub(super) err: &'io mut dyn Write,
    /// `out` takes colours: a terminal, unless `NO_COLOR` or the like says otherwise.
    pub(super) colour: bool,
    /// `out` is a terminal that can be redrawn.
    pub(super) terminal: bool,
    /// Milliseconds since 1970.
    pub(super) now: fn() -> u64,
}

impl Console<'_> {
    /// Calls `act` with the real ones.
    pub(super) fn with_real<T>(act: impl FnOnce(Console<'_>) -> T) -> T {
        let (mut out, mut err) = (io::stdout(), io::stderr());
        let colour = anstream::AutoStream::choice(&out) != anstream::ColorChoice::Never;
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let terminal = out.is_terminal() && !dumb;
        act(Console {
            out: &mut out,
            err: &mut err,
            colour,
            terminal,
            now,
        })
    }

    /// Writes `text` as it is.
    pub(super) fn print(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// Writes `text` over what was drawn before: from the top left corner, clearing what is left of each line and below.
    pub(super) fn redraw(&mut self, text: &str) -> io::Result<()> {
        let lines = text.replace('\n', "\x1b[K\n");
        self.print(&format!("\x1b[H{lines}\x1b[J"))
    }

    /// Clears the terminal, once before the first [`Console::redraw`].
    pub(super) fn clear(&mut self) -> io::Result<()> {
        self.print("\x1b[2J")
    }

    /// A note for the person, beside the output; what a server said in it cannot move the cursor. When nobody can hear it,
    /// nobody can be told so either.
    pub(super) fn note(&mut self, text: &str) {
        for line in text.lines() {
            let (indent, words) = line.split_at(line.len() - line.trim_start_matches(' ').len());
            drop(writeln!(self.err, "{indent}{}", safe(words, LONGEST_NOTE)));
        }
    }
}

fn now() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0)
}
