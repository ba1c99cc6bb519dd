//! Compression of what becomes user-data.

use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};

/// The content compressed by gzip. Equal content gives equal bytes.
pub fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // Writing to a vector cannot fail.
    encoder.write_all(content).ok();
    encoder.finish().unwrap_or_default()
}
