//! The file with the join token (decision 0034). Its content is a secret: no error and no log
//! message contains any of it.

use std::path::PathBuf;

use virtfleet_agent_host::{ReadError, Roots, read_text};
use virtfleet_wire::enrolment::MAX_TOKEN_BYTES;
use zeroize::Zeroizing;

/// The file. It is read each time, so that an admin can replace it.
#[derive(Debug, Clone)]
pub struct TokenFile {
    /// Its path in the guest, for messages.
    shown: String,
    path: PathBuf,
}

/// Why there is no token. Displays as a sentence.
#[derive(Debug, thiserror::Error)]
pub enum JoinTokenFileError {
    #[error("{path}: {source}")]
    Read { path: String, source: ReadError },
    #[error("{path}: empty")]
    Empty { path: String },
    /// It has spaces, line breaks or other characters that no token has.
    #[error("{path}: not one word of printable ASCII characters")]
    Malformed { path: String },
}

impl TokenFile {
    /// The file with this path in the guest.
    pub fn new(roots: &Roots, path: &str) -> Self {
        Self {
            shown: path.to_owned(),
            path: roots.root(path),
        }
    }

    /// Reads the token.
    ///
    /// # Errors
    /// There is none; the error never contains the content.
    pub fn read(&self) -> Result<Zeroizing<String>, JoinTokenFileError> {
        let path = || self.shown.clone();
        let text = read_text(&self.path, MAX_TOKEN_BYTES).map(Zeroizing::new);
        let text = text.map_err(|source| JoinTokenFileError::Read { path: path(), source })?;
        let token = text.trim_ascii();
        if token.is_empty() {
            return Err(JoinTokenFileError::Empty { path: path() });
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(JoinTokenFileError::Malformed { path: path() });
        }
        Ok(Zeroizing::new(token.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_token_is_one_word_and_no_error_shows_it() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            rootfs: dir.path().to_owned(),
            ..Roots::default()
        };
        let file = TokenFile::new(&roots, "/token");
        let read = |content: Option<&[u8]>| {
            if let Some(content) = content {
                fs::write(dir.path().join("token"), content).unwrap();
            }
            file.read()
                .map(|token| token.to_string())
                .map_err(|error| format!("{error} {error:?}"))
        };
        assert!(read(None).unwrap_err().starts_with("/token: no such file"));
        assert_eq!(read(Some(b" vft1.a.secret\n")).unwrap(), "vft1.a.secret");
        let long = [b'x'; MAX_TOKEN_BYTES + 1];
        for (content, reason) in [
            (&b"\n "[..], "/token: empty"),
            (b"secret secret", "/token: not one word"),
            (b"secret\xff", "/token: not UTF-8"),
            ("secr\u{e9}t".as_bytes(), "/token: not one word"),
            (&long, "/token: larger than 256 bytes"),
        ] {
            let error = read(Some(content)).unwrap_err();
            assert!(error.starts_with(reason), "{error}");
            assert!(!error.contains("secr") && !error.contains("xxx"), "{error}");
        }
    }
}
