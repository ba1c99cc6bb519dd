//! State of a stream: its queue on disk and its endpoint.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DroppedSamples, RefusedSamples, StreamName};
use crate::pull_result::UnixMs;

/// State of a stream. Counters start when the collector, or MLA, starts to run the stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueStatusView {
    /// The stream: `fleet`, or `cluster/` and the name of its user cluster.
    pub stream: StreamName,
    /// State.
    pub state: StreamState,
    /// Why it is stopped or not configured.
    pub problem: Option<String>,
    /// Host and port of the endpoint, without credentials; see [`super::endpoint_host`].
    pub endpoint: Option<String>,
    /// Protocol in use; none before the first success.
    pub protocol: Option<StreamProtocol>,
    /// Compression in use; none before the first success.
    pub compression: Option<StreamCompression>,
    /// Requests in the queue.
    pub records: u64,
    /// Samples in the queue.
    pub samples: u64,
    /// Bytes of the queue on disk.
    pub bytes: u64,
    /// Maximum of `bytes`.
    pub limit_bytes: u64,
    /// Timestamp of the oldest sample in the queue; none if it is empty.
    pub oldest_ms: Option<UnixMs>,
    /// Samples of pages and of the platform that were put into the stream.
    pub scraped_samples: u64,
    /// Samples that survive a power loss or have been delivered.
    pub accepted_samples: u64,
    /// Samples that the endpoint has accepted.
    pub sent_samples: u64,
    /// Bytes of the requests that the endpoint has accepted, compressed.
    pub sent_bytes: u64,
    /// Samples sent per second over the last minute or so; computed by the registry of statuses.
    pub rate_samples_per_s: f64,
    /// Bytes sent per second over the same time; computed by the registry of statuses.
    pub rate_bytes_per_s: f64,
    /// Samples that were dropped before they were sent.
    pub dropped: DroppedSamples,
    /// Samples that the endpoint refused for good.
    pub refused: RefusedSamples,
    /// Time of the last accepted request.
    pub last_success_ms: Option<UnixMs>,
    /// The last failed request; it stays after a success.
    pub last_error: Option<StreamError>,
}

impl QueueStatusView {
    /// A stream that has done nothing yet.
    pub fn new(stream: StreamName, state: StreamState) -> Self {
        Self {
            stream,
            state,
            problem: None,
            endpoint: None,
            protocol: None,
            compression: None,
            records: 0,
            samples: 0,
            bytes: 0,
            limit_bytes: 0,
            oldest_ms: None,
            scraped_samples: 0,
            accepted_samples: 0,
            sent_samples: 0,
            sent_bytes: 0,
            rate_samples_per_s: 0.0,
            rate_bytes_per_s: 0.0,
            dropped: DroppedSamples::default(),
            refused: RefusedSamples::default(),
            last_success_ms: None,
            last_error: None,
        }
    }

    /// Whether the last request succeeded; none if there was none.
    pub fn is_endpoint_up(&self) -> Option<bool> {
        match (self.last_success_ms, self.last_error.as_ref()) {
            (None, None) => None,
            (Some(success), Some(error)) => Some(success >= error.at_ms),
            (success, _) => Some(success.is_some()),
        }
    }

    /// Age of the oldest sample in the queue, in milliseconds; 0 if it is empty.
    pub fn oldest_age_ms(&self, now: UnixMs) -> u64 {
        self.oldest_ms.map_or(0, |oldest| now.saturating_sub(oldest))
    }
}

/// State of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum StreamState {
    /// Requests are sent as samples arrive.
    Live,
    /// The endpoint accepts requests, and the queue has older ones to send first.
    CatchingUp,
    /// The last request failed and is sent again.
    Retrying,
    /// The endpoint refuses requests for good, so that their samples are lost.
    Refused,
    /// The stream cannot be used, e.g. because its Secret is missing or its queue is not writable.
    Stopped,
    /// The stream has no endpoint.
    NotConfigured,
}

impl StreamState {
    /// Every state, in order.
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// As in JSON.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether samples are lost, or will be, until somebody acts.
    pub const fn needs_action(self) -> bool {
        matches!(self, Self::Refused | Self::Stopped)
    }
}

/// A failed request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StreamError {
    /// Time of the failure.
    pub at_ms: UnixMs,
    /// One sentence; see [`super::status_message`].
    pub message: String,
    /// HTTP status of the answer; none without an answer.
    pub status: Option<u16>,
}

/// Version of the remote-write protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StreamProtocol {
    /// Remote write 1.0.
    #[serde(rename = "1.0")]
    V1,
    /// Remote write 2.0.
    #[serde(rename = "2.0")]
    V2,
}

impl StreamProtocol {
    /// As in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "1.0",
            Self::V2 => "2.0",
        }
    }
}

/// Compression of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StreamCompression {
    /// Snappy, block format.
    Snappy,
    /// Zstandard.
    Zstd,
}

impl StreamCompression {
    /// As in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Snappy => "snappy",
            Self::Zstd => "zstd",
        }
    }
}
