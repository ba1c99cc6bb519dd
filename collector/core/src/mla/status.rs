//! State of MLA as an admin sees it: of each VM's page, and of each stream's queue. Plain data: the
//! streams publish it, the API, the metrics and the findings read it.

mod counts;
mod endpoint;
mod name;
mod queue;
mod summary;
mod target;

pub use counts::{DropReason, DroppedSamples, RefusalReason, RefusedSamples};
pub use endpoint::endpoint_host;
pub use name::{InvalidStreamName, StreamName};
pub use queue::{QueueStatusView, StreamCompression, StreamError, StreamProtocol, StreamState};
pub use summary::{MlaSummary, StreamProblem};
pub use target::{TargetError, TargetErrorReason, TargetStatus};

/// Maximum bytes of a message in a status. Messages may quote what a guest or a receiver sent.
pub const MAX_STATUS_MESSAGE_BYTES: usize = 512;

/// `text` with control characters escaped, at most [`MAX_STATUS_MESSAGE_BYTES`] bytes.
pub fn status_message(text: &str) -> String {
    crate::findings::escaped(text, MAX_STATUS_MESSAGE_BYTES)
}

#[cfg(test)]
mod tests;
