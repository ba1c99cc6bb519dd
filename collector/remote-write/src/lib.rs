//! Prometheus remote write, versions 1.0 and 2.0: messages, their encoding, and what an answer of a
//! receiver means. No socket and no clock.
//!
//! The sender keeps every request as a message of 2.0. [`to_v1`] makes the one of 1.0 from it for
//! receivers that do not support 2.0, which [`Negotiation`] finds out by the specification's rules.
//!
//! Sources: <https://prometheus.io/docs/specs/prw/remote_write_spec/> and
//! <https://prometheus.io/docs/specs/prw/remote_write_spec_2_0/> (2.0-rc.4).

mod answer;
mod blocks;
mod compression;
mod decode;
mod error;
mod family;
mod headers;
pub mod message;
mod negotiation;
pub mod request;
mod retry_after;
mod transcode;
mod wire;

pub use answer::{AnswerHeaders, RefusedReason, RetryReason, Sent, Verdict, judge};
pub use compression::{Compression, compress, decompress};
pub use decode::{decode_v1, decode_v2};
pub use error::DecodeError;
pub use headers::{Protocol, RESERVED_HEADERS, WireForm, headers, is_reserved};
pub use negotiation::{
    CompressionSetting, Negotiation, ProtocolSetting, REPROBE_INTERVAL, RESTART_REPROBE_INTERVAL,
    check_settings,
};
pub use transcode::{to_v1, to_v1_with};

/// Largest message that is decoded, in bytes, uncompressed. A request of 10,000 samples has 1 to 2
/// MB.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;
