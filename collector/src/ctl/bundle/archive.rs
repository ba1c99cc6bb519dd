//! The archive of a bundle: a gzipped tar file in memory.

use std::io::{self, Write as _};

use flate2::{Compression, write::GzEncoder};
use tar::{Builder, Header};

/// Builds an archive whose files are below one folder.
pub(super) struct Archive {
    builder: Builder<GzEncoder<Vec<u8>>>,
    folder: String,
    /// Seconds since 1970.
    time: u64,
}

impl Archive {
    pub(super) fn new(folder: &str, time: u64) -> Self {
        let gzip = GzEncoder::new(Vec::new(), Compression::default());
        Self {
            builder: Builder::new(gzip),
            folder: folder.to_owned(),
            time,
        }
    }

    /// Adds a file that its owner may read.
    ///
    /// # Errors
    /// The name is too long.
    pub(super) fn add(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(self.time);
        let path = format!("{}/{name}", self.folder);
        self.builder.append_data(&mut header, path, content)
    }

    /// The bytes of the archive.
    ///
    /// # Errors
    /// As of writing to memory: none in practice.
    pub(super) fn finish(self) -> io::Result<Vec<u8>> {
        let mut gzip = self.builder.into_inner()?;
        gzip.flush()?;
        gzip.finish()
    }
}
