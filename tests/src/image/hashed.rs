//! A writer that computes the digest of what passes.

use std::{
    fmt::Write as _,
    io::{Result, Write},
};

use sha2::{Digest as _, Sha256};

/// Passes bytes on, and computes their SHA-256 and their number.
pub(super) struct Hashed<W> {
    inner: W,
    hasher: Sha256,
    bytes: u64,
}

impl<W> Hashed<W> {
    pub(super) fn new(inner: W) -> Self {
        Self {
            inner,
            hasher: Sha256::new(),
            bytes: 0,
        }
    }

    /// The inner writer, the digest (`sha256:…`), and the number of bytes.
    pub(super) fn finish(self) -> (W, String, u64) {
        let mut digest = "sha256:".to_owned();
        for byte in self.hasher.finalize() {
            write!(digest, "{byte:02x}").ok();
        }
        (self.inner, digest, self.bytes)
    }
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }
    fn flush(&mut self) -> Result<()> {
        self.inner.flush()
    }
}
