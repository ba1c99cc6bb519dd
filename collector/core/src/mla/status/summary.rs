//! Summary of all streams.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{QueueStatusView, StreamName, StreamState};
use crate::pull_result::UnixMs;

/// Maximum streams that a summary names.
const MAX_NAMED_STREAMS: usize = 10;

/// Summary of the streams of samples.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MlaSummary {
    /// Streams that have an endpoint.
    pub streams: usize,
    /// Of these, streams in the state `live`.
    pub live: usize,
    /// Streams that are neither live nor without endpoint, the gravest first, at most ten.
    pub not_live: Vec<StreamProblem>,
    /// Number of these streams.
    pub not_live_total: usize,
    /// Bytes in all queues.
    pub backlog_bytes: u64,
    /// Timestamp of the oldest sample in a queue; none if all are empty.
    pub oldest_ms: Option<UnixMs>,
}

/// A stream that is not live.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StreamProblem {
    /// The stream.
    pub stream: StreamName,
    /// Its state.
    pub state: StreamState,
}

impl MlaSummary {
    /// The summary; none if no stream has an endpoint.
    pub fn of(queues: &[QueueStatusView]) -> Option<Self> {
        let configured = || {
            queues
                .iter()
                .filter(|queue| queue.state != StreamState::NotConfigured)
        };
        let streams = configured().count();
        if streams == 0 {
            return None;
        }
        let not_live = configured().filter(|queue| queue.state != StreamState::Live);
        let mut not_live: Vec<StreamProblem> = not_live
            .map(|queue| StreamProblem {
                stream: queue.stream.clone(),
                state: queue.state,
            })
            .collect();
        not_live.sort_by(|a, b| b.state.cmp(&a.state).then_with(|| a.stream.cmp(&b.stream)));
        let not_live_total = not_live.len();
        not_live.truncate(MAX_NAMED_STREAMS);
        Some(Self {
            streams,
            live: streams - not_live_total,
            not_live,
            not_live_total,
            backlog_bytes: queues
                .iter()
                .map(|queue| queue.bytes)
                .fold(0, u64::saturating_add),
            oldest_ms: queues.iter().filter_map(|queue| queue.oldest_ms).min(),
        })
    }

    /// Whether a stream loses samples until somebody acts.
    pub fn needs_action(&self) -> bool {
        self.not_live.iter().any(|one| one.state.needs_action())
    }
}
