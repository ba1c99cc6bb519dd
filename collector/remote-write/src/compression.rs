//! Compression of request bodies.

use std::cell::RefCell;

use crate::DecodeError;

/// zstd's level for request bodies. Level 1 compresses them better than Snappy for about the same
/// CPU time.
const ZSTD_LEVEL: i32 = 1;

/// Compression of a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Compression {
    /// Snappy's block format, which every receiver must support.
    Snappy,
    /// zstd. Not part of the specification; VictoriaMetrics accepts it.
    Zstd,
}

impl Compression {
    /// The code that a record of the queue carries.
    pub const fn code(self) -> u8 {
        match self {
            Self::Snappy => 1,
            Self::Zstd => 2,
        }
    }

    /// The compression of a code of [`Self::code`].
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Snappy),
            2 => Some(Self::Zstd),
            _ => None,
        }
    }

    /// The value of the header `Content-Encoding`.
    pub const fn content_encoding(self) -> &'static str {
        match self {
            Self::Snappy => "snappy",
            Self::Zstd => "zstd",
        }
    }
}

thread_local! {
    /// Compressors are kept: their tables are larger than most requests.
    static SNAPPY: RefCell<snap::raw::Encoder> = RefCell::new(snap::raw::Encoder::new());
}

/// Compresses a message. Snappy's result is one block, without frames, as the specification
/// requires.
pub fn compress(compression: Compression, message: &[u8]) -> Vec<u8> {
    let packed = match compression {
        Compression::Snappy => SNAPPY.with_borrow_mut(|encoder| encoder.compress_vec(message).ok()),
        Compression::Zstd => zstd::bulk::compress(message, ZSTD_LEVEL).ok(),
    };
    // Both fail only for inputs of 4 GiB and more, and a request is bounded far below that.
    packed.unwrap_or_default()
}

/// Decompresses a body of at most `limit` bytes uncompressed.
///
/// # Errors
/// If the body is not compressed in this way, is damaged, or is larger than `limit`. Nothing larger
/// than `limit` is allocated.
pub fn decompress(compression: Compression, body: &[u8], limit: usize) -> Result<Vec<u8>, DecodeError> {
    match compression {
        Compression::Snappy => {
            let bytes = snap::raw::decompress_len(body).map_err(|error| failed(&error))?;
            if bytes > limit {
                return Err(DecodeError::TooLarge { bytes, limit });
            }
            snap::raw::Decoder::new()
                .decompress_vec(body)
                .map_err(|error| failed(&error))
        }
        Compression::Zstd => unpack_zstd(body, limit),
    }
}

fn unpack_zstd(body: &[u8], limit: usize) -> Result<Vec<u8>, DecodeError> {
    use std::io::Read as _;
    let decoder = zstd::stream::read::Decoder::with_buffer(body).map_err(|error| failed(&error))?;
    let mut message = Vec::new();
    // One byte more than allowed shows that the message is larger.
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    decoder
        .take(most)
        .read_to_end(&mut message)
        .map_err(|error| failed(&error))?;
    if message.len() > limit {
        return Err(DecodeError::TooLarge {
            bytes: message.len(),
            limit,
        });
    }
    Ok(message)
}

fn failed(error: &dyn std::fmt::Display) -> DecodeError {
    DecodeError::Compression(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [Compression; 2] = [Compression::Snappy, Compression::Zstd];

    #[test]
    fn a_message_survives_both_and_codes_are_unambiguous() {
        let message: Vec<u8> = (0..50_000_u32).flat_map(|i| (i % 300).to_le_bytes()).collect();
        for compression in BOTH {
            let body = compress(compression, &message);
            assert!(body.len() < message.len() / 2, "{compression:?}: {}", body.len());
            assert_eq!(decompress(compression, &body, message.len()).unwrap(), message);
            assert_eq!(Compression::from_code(compression.code()), Some(compression));
            assert!(
                decompress(compression, &compress(compression, b""), 0)
                    .unwrap()
                    .is_empty()
            );
        }
        assert_eq!(Compression::from_code(0), None);
    }

    #[test]
    fn what_is_larger_than_the_limit_or_damaged_is_refused() {
        let zeros = vec![0_u8; 1 << 20];
        for compression in BOTH {
            let mut body = compress(compression, &zeros);
            let error = decompress(compression, &body, (1 << 20) - 1).unwrap_err();
            assert!(matches!(error, DecodeError::TooLarge { limit, .. } if limit == (1 << 20) - 1));
            body.truncate(body.len() / 2);
            assert!(matches!(
                decompress(compression, &body, 1 << 20),
                Err(DecodeError::Compression(_))
            ));
            assert!(decompress(compression, &[], 10).is_err());
        }
    }

    #[test]
    fn snappy_is_a_block_without_frames() {
        // The framed format begins with a stream identifier: 0xff, a length, and "sNaPpY".
        let body = compress(Compression::Snappy, b"remote write");
        assert_eq!(body[0], 12, "a block begins with its uncompressed length");
        assert!(!body.starts_with(&[0xff, 0x06, 0x00, 0x00]));
    }
}
