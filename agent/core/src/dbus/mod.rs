//! D-Bus messages as bytes (D-Bus Specification, "Message Protocol"), as far as needed for calls to
//! systemd and logind.
//!
//! ```text
//! Call ─ to_bytes ─▶ socket ─▶ Header::parse, then Reader ─▶ values
//! ```
//! Received bytes are untrusted: a malformed message is an error, never a panic.

mod call;
mod message;
mod reader;
mod units;
mod writer;

pub use call::{Call, unit_path};
pub use message::{FIXED_BYTES, Header, Kind, MAX_MESSAGE_BYTES};
pub use reader::{Reader, Value};
pub use units::{Unit, units};
pub use writer::Writer;

/// Malformed D-Bus message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("it ends within a value")]
    Short,
    #[error("it is larger than {MAX_MESSAGE_BYTES} bytes")]
    TooLarge,
    #[error("it does not begin with a valid message header")]
    NoMessage,
    /// A string is not UTF-8 or has a wrong length.
    #[error("it contains an invalid string")]
    BadText,
    #[error("it contains a value of an unexpected type")]
    OtherType,
}
