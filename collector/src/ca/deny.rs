//! List of serial numbers that are no longer accepted.

use std::collections::BTreeSet;

use super::{CaError, Serial};

/// Maximum number of entries, so that the list fits into a Secret (1 MiB) beside the roots.
pub(super) const MAX_DENIED_SERIALS: usize = 10_000;
/// Maximum size of the file, in bytes.
const MAX_DENY_BYTES: usize = 768 * 1024;

/// List of serial numbers that are no longer accepted, with the lines and comments of its file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DenyList {
    serials: BTreeSet<Serial>,
    /// Lines as they were read.
    lines: Vec<String>,
}

impl DenyList {
    /// Parses one serial number a line; `#` starts a comment.
    ///
    /// # Errors
    /// A line that is neither, or too many lines.
    pub(super) fn parse(file: &str, bytes: &[u8]) -> Result<Self, CaError> {
        let invalid = |line, reason: String| CaError::Invalid {
            file: file.to_owned(),
            line,
            reason,
        };
        if bytes.len() > MAX_DENY_BYTES {
            return Err(invalid(
                1,
                "larger than 768 KiB; remove expired serial numbers".to_owned(),
            ));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| invalid(1, "not text".to_owned()))?;
        let mut list = Self::default();
        for (index, line) in text.lines().enumerate() {
            let serial = line.split('#').next().unwrap_or_default().trim();
            if !serial.is_empty() {
                let serial = serial
                    .parse()
                    .map_err(|error| invalid(index + 1, format!("{error}")))?;
                list.serials.insert(serial);
            }
            if list.serials.len() > MAX_DENIED_SERIALS {
                let reason = format!("more than {MAX_DENIED_SERIALS} serial numbers; remove expired ones");
                return Err(invalid(index + 1, reason));
            }
            list.lines.push(line.to_owned());
        }
        Ok(list)
    }

    pub(super) fn text(&self) -> String {
        self.lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect()
    }

    pub(super) fn contains(&self, serial: &Serial) -> bool {
        self.serials.contains(serial)
    }

    pub(super) fn insert(&mut self, serial: Serial) {
        if !self.serials.contains(&serial) {
            self.lines.push(serial.to_string());
            self.serials.insert(serial);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.serials.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_kept_and_serials_found() {
        let text = "# revoked after the incident\n0a1b # worker-3\n\n0C:0D\n";
        let mut list = DenyList::parse("deny", text.as_bytes()).unwrap();
        assert_eq!((list.text(), list.len()), (text.to_owned(), 2));
        for serial in ["a1b", "0c0d"] {
            assert!(list.contains(&serial.parse().unwrap()), "{serial}");
        }
        list.insert("0a1b".parse().unwrap());
        list.insert("ff".parse().unwrap());
        assert_eq!(list.text(), format!("{text}ff\n"));
    }

    #[test]
    fn a_wrong_line_is_named() {
        let error = DenyList::parse("deny", b"0a\nworker-3\n")
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("deny:2: ") && error.contains("worker-3"),
            "{error}"
        );
    }

    #[test]
    fn the_size_is_bounded() {
        let lines: Vec<_> = (1..=MAX_DENIED_SERIALS + 1)
            .map(|serial| format!("{serial:x}"))
            .collect();
        let text = lines.join("\n");
        let error = DenyList::parse("deny", text.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("deny:10001: "), "{error}");
        DenyList::parse("deny", &vec![b'#'; MAX_DENY_BYTES + 1]).unwrap_err();
    }
}
