//! A page that comes in pieces, line by line: a page of any size costs one line of memory.

use virtfleet_wire::exposition::{Line, parse_line};

/// Maximum length of a line, in bytes.
const MAX_LINE: usize = 64 * 1024;

/// What has come and is no whole line yet.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The line that has begun and not ended.
    pending: Vec<u8>,
    line: u64,
}

impl Lines {
    /// Takes the next piece and hands on each line that ends in it, as text and as what it says.
    ///
    /// # Errors
    /// The line's number and what is wrong with it, or what `each` says.
    pub(super) fn take(
        &mut self,
        mut piece: &[u8],
        mut each: impl FnMut(&str, &Line<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        while let Some(end) = piece.iter().position(|&byte| byte == b'\n') {
            let (head, rest) = piece.split_at(end);
            piece = &rest[1..];
            if self.pending.is_empty() {
                self.read(head, &mut each)?;
            } else {
                self.pending.extend_from_slice(head);
                let line = std::mem::take(&mut self.pending);
                self.read(&line, &mut each)?;
                self.pending = line;
                self.pending.clear();
            }
        }
        if self.pending.len() + piece.len() > MAX_LINE {
            return Err(format!("line {} is longer than {MAX_LINE} bytes", self.line + 1));
        }
        self.pending.extend_from_slice(piece);
        Ok(())
    }

    /// The page has ended: its last line may have no line feed.
    pub(super) fn finish(
        &mut self,
        mut each: impl FnMut(&str, &Line<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        let rest = std::mem::take(&mut self.pending);
        if rest.is_empty() {
            return Ok(());
        }
        self.read(&rest, &mut each)
    }

    fn read(
        &mut self,
        line: &[u8],
        each: &mut impl FnMut(&str, &Line<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        self.line += 1;
        let number = self.line;
        if line.len() > MAX_LINE {
            return Err(format!("line {number} is longer than {MAX_LINE} bytes"));
        }
        let text = std::str::from_utf8(line).map_err(|_| format!("line {number} is not UTF-8"))?;
        let parsed = parse_line(text).map_err(|error| format!("line {number}: {error}"))?;
        each(text, &parsed).map_err(|error| format!("line {number}: {error}"))
    }
}
