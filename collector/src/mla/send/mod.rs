//! Sends write requests to one receiver.
//!
//! ```text
//! request of 2.0, compressed ─▶ Sender ─ form (negotiated) ─▶ body ─▶ client ─▶ TLS, HTTP/1.1 ─▶ receiver
//!                                  ▲ verdict (virtfleet-remote-write) ◀──── status, headers ◀──────┘
//!                                  └─▶ SendOutcome: delivered, retry, refused
//! backoff: when the next attempt may start
//! ```
//! A request that is delivered or refused is done. One to be sent again stays with the caller, who
//! waits as [`Backoff`] says and keeps the order of the requests.

mod backoff;
mod body;
mod client;
mod connector;
mod endpoint;
mod metadata_schedule;
mod outcome;
mod sender;

pub use backoff::{Backoff, MAX_RETRY_AFTER};
pub use endpoint::{Endpoint, EndpointError, parse_url};
pub use outcome::{SendFailure, SendOutcome, SendRefusal, SendResult};
pub use sender::Sender;
