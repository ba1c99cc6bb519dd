//! Blocks of a PEM file with their line numbers. The parser of rustls has none, but an admin needs
//! to find a broken block in a bundle.

use std::fmt;

use zeroize::Zeroizing;

use super::CaError;

/// Maximum size of a file, in bytes.
const MAX_PEM_BYTES: usize = 64 * 1024;

/// One block, e.g. a certificate.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct PemBlock {
    /// Line of its first line, from 1.
    pub(super) line: usize,
    /// The block with its first and last line, each ended by a newline. Zeroed when dropped: it may
    /// be a private key.
    pub(super) text: Zeroizing<String>,
}

impl fmt::Debug for PemBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PemBlock")
            .field("line", &self.line)
            .finish_non_exhaustive()
    }
}

/// The blocks of a file; text between blocks is skipped (RFC 7468, 2).
///
/// # Errors
/// The file is too large, is not text, or a block does not end.
pub(super) fn blocks(file: &str, bytes: &[u8]) -> Result<Vec<PemBlock>, CaError> {
    let invalid = |line, reason: &str| CaError::Invalid {
        file: file.to_owned(),
        line,
        reason: reason.to_owned(),
    };
    if bytes.len() > MAX_PEM_BYTES {
        return Err(invalid(1, "larger than 64 KiB; remove what is not needed"));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        let line = before.split(|byte| *byte == b'\n').count();
        invalid(line, "not PEM: it contains bytes that are not text")
    })?;
    let mut found = Vec::new();
    let mut open: Option<PemBlock> = None;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with("-----BEGIN ") {
            if let Some(open) = open {
                return Err(invalid(open.line, "this PEM block has no END line"));
            }
            open = Some(PemBlock {
                line: index + 1,
                // Growing would leave copies.
                text: Zeroizing::new(String::with_capacity(bytes.len() + 1)),
            });
        }
        if let Some(block) = &mut open {
            block.text.push_str(line);
            block.text.push('\n');
            if line.starts_with("-----END ") {
                found.extend(open.take());
            }
        }
    }
    match open {
        Some(open) => Err(invalid(open.line, "this PEM block has no END line")),
        None => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_their_lines() {
        let text =
            "subject=x\n-----BEGIN A-----\nAA\r\n-----END A-----\n\n  -----BEGIN B-----\n-----END B-----";
        let found = blocks("f", text.as_bytes()).unwrap();
        assert_eq!((found[0].line, found[1].line, found.len()), (2, 6, 2));
        assert_eq!(found[0].text.as_str(), "-----BEGIN A-----\nAA\n-----END A-----\n");
        assert!(!format!("{found:?}").contains("AA"), "a key may be among them");
    }

    #[test]
    fn each_problem_has_its_line() {
        let large = vec![b'a'; MAX_PEM_BYTES + 1];
        for (text, expected) in [
            (&b"\n-----BEGIN A-----\nAA\n"[..], "f:2: "),
            (
                b"-----BEGIN A-----\n-----BEGIN A-----\n-----END A-----\n",
                "f:1: ",
            ),
            (b"\n\n\xff", "f:3: "),
            (&large, "f:1: larger"),
        ] {
            let error = blocks("f", text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
