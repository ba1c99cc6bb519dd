//! Why bytes are no message of remote write.

use crate::MAX_MESSAGE_BYTES;

/// Why bytes are no message of remote write, or no compressed block.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The message, or what it unpacks to, is larger than the limit.
    #[error("message of {bytes} bytes or more; at most {limit} are decoded")]
    TooLarge {
        /// Size of the message, or a lower bound of it.
        bytes: usize,
        /// Largest size that is decoded.
        limit: usize,
    },
    #[error("message with more than {limit} series")]
    TooManySeries {
        /// Largest number of series.
        limit: usize,
    },
    /// The bytes end within a field, or a length exceeds what follows.
    #[error("message ends within a field, {left} bytes before its end")]
    Truncated {
        /// Bytes that were left.
        left: usize,
    },
    /// A varint of more than ten bytes, or a field number of 0.
    #[error("malformed protobuf key or varint")]
    Malformed,
    /// A wire type that protobuf 3 does not have (groups, or reserved), or one that the field does
    /// not have.
    #[error("field {field} with unexpected wire type {wire_type}")]
    WireType {
        field: u32,
        /// Wire type, 0 to 7.
        wire_type: u8,
    },
    #[error("a string is not UTF-8")]
    NotUtf8,
    #[error("the first of the symbols is not the empty string")]
    FirstSymbol,
    #[error("reference to symbol {index} of {count}")]
    Symbol {
        /// The reference.
        index: u64,
        count: usize,
    },
    #[error("series with an odd number of label references")]
    OddLabels,
    #[error("series with an empty label name")]
    EmptyLabelName,
    /// Protobuf decoding failed for another reason.
    #[error("malformed message: {0}")]
    Protobuf(String),
    #[error("cannot decompress: {0}")]
    Compression(String),
}

pub(crate) fn check_size(message: &[u8]) -> Result<(), DecodeError> {
    if message.len() > MAX_MESSAGE_BYTES {
        return Err(DecodeError::TooLarge {
            bytes: message.len(),
            limit: MAX_MESSAGE_BYTES,
        });
    }
    Ok(())
}
