//! gzip with a reused compressor: creating one costs more than compressing a small page.

use bytes::Bytes;
use flate2::{Compress, Compression, Crc, FlushCompress, Status};

/// gzip header: no name, no time, unknown system (RFC 1952, 2.3).
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// Bytes by which the buffer grows if the output does not fit.
const BUFFER_STEP: usize = 16 << 10;

/// A reusable gzip compressor.
pub(super) struct Gzip(Compress);

impl Gzip {
    /// With the fastest level: a page is compressed once and read once.
    pub(super) fn new() -> Self {
        Self(Compress::new(Compression::fast(), false))
    }

    /// Compresses the body to one gzip member.
    ///
    /// # Errors
    /// The compressor fails; its error as text.
    pub(super) fn pack(&mut self, body: &[u8]) -> Result<Bytes, String> {
        self.0.reset();
        let mut packed = Vec::with_capacity(body.len() / 6 + BUFFER_STEP);
        packed.extend_from_slice(&HEADER);
        let mut taken = 0;
        loop {
            let rest = body.get(taken..).unwrap_or_default();
            let before = self.0.total_in();
            let status = self
                .0
                .compress_vec(rest, &mut packed, FlushCompress::Finish)
                .map_err(|error| error.to_string())?;
            taken += usize::try_from(self.0.total_in() - before).unwrap_or(rest.len());
            if status == Status::StreamEnd {
                break;
            }
            packed.reserve(BUFFER_STEP);
        }
        let mut sum = Crc::new();
        sum.update(body);
        packed.extend_from_slice(&sum.sum().to_le_bytes());
        packed.extend_from_slice(&sum.amount().to_le_bytes());
        Ok(packed.into())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn packed_data_unpacks_each_time() {
        let mut gzip = Gzip::new();
        let random: Vec<u8> = (0..300_000_u32)
            .map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3])
            .collect();
        let text = "node_x 1\n".repeat(10_000);
        for body in [text.as_bytes(), b"", &random, b"x", text.as_bytes()] {
            let mut back = Vec::new();
            flate2::read::GzDecoder::new(gzip.pack(body).unwrap().as_ref())
                .read_to_end(&mut back)
                .unwrap();
            assert!(back == body);
        }
    }
}
