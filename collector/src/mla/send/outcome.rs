//! What happened to a request.

use std::time::Duration;

use virtfleet_remote_write::{RefusedReason, RetryReason, WireForm};

/// What happened to a request, in all its attempts in different forms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendOutcome {
    /// What the caller does next.
    pub result: SendResult,
    /// Status of the last answer; none if there was no answer.
    pub status: Option<u16>,
    /// Version and compression of the last attempt.
    pub form: WireForm,
    /// HTTP requests that were made: more than one after a fall-back.
    pub requests: u32,
    /// Bytes of the bodies that were sent, compressed.
    pub body_bytes: u64,
}

/// What the caller does next with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendResult {
    /// The receiver has accepted it; it is done.
    Delivered {
        /// Samples that the receiver reports as written; unknown with 1.0. Zero is a receiver that
        /// deduplicated the request.
        written: Option<u64>,
        /// Samples of a partial write: the receiver accepted the request and reports fewer samples
        /// than it had, but not zero.
        missing: u32,
    },
    /// Keep it, and send it again later.
    Retry {
        /// How long the receiver asked to wait. Unbounded; [`super::Backoff`] bounds it.
        after: Option<Duration>,
        reason: SendFailure,
        /// What happened, for people: bounded, without control characters.
        message: String,
    },
    /// It will never be accepted; it is done, and its samples are lost.
    Refused {
        reason: SendRefusal,
        /// Samples that were not written.
        samples: u32,
        /// What the receiver answered, for people: bounded, without control characters.
        message: String,
    },
}

/// Why a request is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SendFailure {
    /// The receiver answered so.
    Answer(RetryReason),
    /// No connection.
    Connect,
    /// The TLS handshake failed, or the receiver rejected the client certificate.
    Tls,
    /// No complete answer in time.
    Timeout,
    /// The connection ended before a complete answer, or the answer is no HTTP.
    Interrupted,
}

impl SendFailure {
    /// Value of the label `reason`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answer(reason) => reason.as_str(),
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Timeout => "timeout",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Why a request is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SendRefusal {
    /// The receiver answered so.
    Answer(RefusedReason),
    /// The stored request is damaged.
    Unreadable,
}

impl SendRefusal {
    /// Value of the label `reason`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answer(reason) => reason.as_str(),
            Self::Unreadable => "unreadable",
        }
    }
}
