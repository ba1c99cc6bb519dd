//! Splits a page that arrives in pieces into lines: memory for one line is enough for a page of any
//! size.

use virtfleet_wire::exposition::LineError;

/// Maximum length of a line.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// Why a line ends the page.
#[derive(Debug, thiserror::Error)]
pub(super) enum LineFailure {
    #[error(transparent)]
    Malformed(#[from] LineError),
    #[error("{0}")]
    OverLimit(String),
}

/// The part of the page that is not a complete line yet.
#[derive(Debug, Default)]
pub(super) struct LineReader {
    pending: Vec<u8>,
    line: u64,
}

impl LineReader {
    /// Reads the next piece and calls `each` for every line that ends in it.
    ///
    /// # Errors
    /// The line's number and what is malformed, or the error of `each`.
    pub(super) fn take(
        &mut self,
        mut piece: &[u8],
        mut each: impl FnMut(&str) -> Result<(), LineFailure>,
    ) -> Result<(), String> {
        while let Some(end) = memchr::memchr(b'\n', piece) {
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
        if self.pending.len() + piece.len() > MAX_LINE_BYTES {
            return Err(format!(
                "line {} is longer than {MAX_LINE_BYTES} bytes",
                self.line + 1
            ));
        }
        self.pending.extend_from_slice(piece);
        Ok(())
    }

    /// Reads the last line, which may have no line feed.
    pub(super) fn finish(
        &mut self,
        mut each: impl FnMut(&str) -> Result<(), LineFailure>,
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
        each: &mut impl FnMut(&str) -> Result<(), LineFailure>,
    ) -> Result<(), String> {
        self.line += 1;
        let number = self.line;
        if line.len() > MAX_LINE_BYTES {
            return Err(format!("line {number} is longer than {MAX_LINE_BYTES} bytes"));
        }
        let text = std::str::from_utf8(line).map_err(|_| format!("line {number} is not UTF-8"))?;
        each(text).map_err(|error| format!("line {number}: {error}"))
    }
}
