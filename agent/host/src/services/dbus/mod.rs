//! The system bus: a connection, calls, answers, each with a deadline and a bound.
//!
//! ```text
//! connect ─ EXTERNAL ─ Hello ─▶ Connection ─ ask(calls) ─▶ windows of calls, answers in any order ─▶ Answer per call
//! ```
//! Nothing is subscribed to, so nothing but answers comes in. A connection that failed once is given up by its holder.

mod connection;
mod kept;

use virtfleet_agent_core::dbus::{Call, Reader, WireError};

pub use connection::Connection;
pub use kept::KeptBus;

/// Why the bus could not be asked. Displays without a path; there is one system bus.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// There is none here.
    #[error("there is no system bus")]
    NoBus,
    /// It did not answer in time.
    #[error("the system bus did not answer in time")]
    TimedOut,
    /// The socket.
    #[error("the system bus cannot be reached: {0}")]
    Io(std::io::Error),
    /// It does not let us in.
    #[error("the system bus does not know us: {0}")]
    Refused(String),
    /// What it said.
    #[error("the system bus sent a message that is none")]
    Wire(#[from] WireError),
    /// An answer that is an error.
    #[error("{0}")]
    Answer(String),
}

/// The answer to one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The values that it gave.
    Body {
        /// Their bytes.
        bytes: Vec<u8>,
        /// Their byte order.
        big: bool,
    },
    /// The name of an error, e.g. `org.freedesktop.DBus.Error.ServiceUnknown`.
    Error(String),
}

impl Answer {
    /// The values.
    pub fn reader(&self) -> Result<Reader<'_>, BusError> {
        match self {
            Self::Body { bytes, big } => Ok(Reader::new(bytes, *big)),
            Self::Error(name) => Err(BusError::Answer(name.clone())),
        }
    }
}

/// Whether the error of an [`Answer`] says that nobody has the name on the bus.
pub fn is_away(error: &str) -> bool {
    ["ServiceUnknown", "NameHasNoOwner"]
        .iter()
        .any(|name| error.strip_prefix("org.freedesktop.DBus.Error.") == Some(name))
}

/// Someone who carries calls to systemd and logind.
pub trait Bus: Send {
    /// Asks all of `calls`; the answers are in their order. An error ends the connection, an [`Answer::Error`] does not.
    fn ask(&mut self, calls: &[Call<'_>]) -> Result<Vec<Answer>, BusError>;
}
