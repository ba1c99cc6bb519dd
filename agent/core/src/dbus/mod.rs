//! D-Bus messages as bytes (room: `agent/core`; D-Bus Specification, "Message Protocol"): as much as it takes to ask systemd and logind.
//!
//! ```text
//! Call ─ to_bytes ─▶ socket ─▶ Header::parse, then Reader ─▶ values
//! ```
//! Everything that comes in is bounded and checked: a message that lies about its lengths is an error, never a panic.

mod call;
mod message;
mod reader;
mod units;
mod writer;

pub use call::{Call, unit_path};
pub use message::{FIXED, Header, Kind, MAX_MESSAGE};
pub use reader::{Reader, Value};
pub use units::{Unit, units};
pub use writer::Writer;

/// A message that is not as the specification has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// It ends in the middle of a value.
    #[error("it ends too early")]
    Short,
    /// It is larger than what we take.
    #[error("it is larger than {MAX_MESSAGE} bytes")]
    TooLarge,
    /// Its first bytes are none of a message.
    #[error("it does not begin as a message does")]
    NoMessage,
    /// A text that is no UTF-8, or does not end where it says.
    #[error("it holds a text that is none")]
    BadText,
    /// A value of a type that nobody asked for.
    #[error("it holds a value of another type")]
    OtherType,
}
