//! The system bus: a connection, calls and answers, each with a timeout and a size limit.
//!
//! ```text
//! connect ─ EXTERNAL ─ Hello ─▶ Connection ─ call_all ─▶ windows of calls ─▶ Answer per call
//! ```
//! No signals are subscribed to, so only answers arrive. The holder drops a connection after a
//! failure.

mod connection;
mod kept_bus;

use virtfleet_agent_core::dbus::{Call, Reader, WireError};

pub use connection::Connection;
pub use kept_bus::KeptBus;

/// Why a call failed. Displays without a path, because there is one system bus.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    #[error("there is no system bus")]
    NoBus,
    #[error("the system bus did not answer in time")]
    TimedOut,
    #[error("the system bus cannot be reached: {0}")]
    Io(std::io::Error),
    #[error("the system bus rejected the authentication: {0}")]
    Refused(String),
    #[error("the system bus sent a malformed message")]
    Wire(#[from] WireError),
    #[error("{0}")]
    Answer(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The returned values.
    Body {
        /// Encoded values.
        bytes: Vec<u8>,
        /// True if the byte order is big-endian.
        big: bool,
    },
    /// Name of an error, e.g. `org.freedesktop.DBus.Error.ServiceUnknown`.
    Error(String),
}

impl Answer {
    /// A reader of the returned values.
    ///
    /// # Errors
    /// The answer is an error.
    pub fn reader(&self) -> Result<Reader<'_>, BusError> {
        match self {
            Self::Body { bytes, big } => Ok(Reader::new(bytes, *big)),
            Self::Error(name) => Err(BusError::Answer(name.clone())),
        }
    }
}

/// True if the error of an [`Answer`] means that the bus name has no owner.
pub fn has_no_owner(error: &str) -> bool {
    ["ServiceUnknown", "NameHasNoOwner"]
        .iter()
        .any(|name| error.strip_prefix("org.freedesktop.DBus.Error.") == Some(name))
}

/// Makes calls to systemd and logind.
pub trait Bus: Send {
    /// Makes all calls; the answers are in their order. An error ends the connection, an
    /// [`Answer::Error`] does not.
    ///
    /// # Errors
    /// The connection failed or timed out.
    fn call_all(&mut self, calls: &[Call<'_>]) -> Result<Vec<Answer>, BusError>;
}
