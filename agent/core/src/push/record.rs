//! What the running agent records about the way on which collectors reach it.

use serde::{Deserialize, Serialize};

/// Format version of the record. Readers reject every other version.
pub const FORMAT: u32 = 1;
/// Maximum length of a message that is kept, in characters.
const MAX_MESSAGE_CHARS: usize = 300;

/// The record. Times are in seconds since the guest booted, which no change of the clock moves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WayRecord {
    /// [`FORMAT`].
    pub v: u32,
    pub boot_id: String,
    /// When the agent started.
    pub started_at: u64,
    /// The setting `push.collector`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collector: Option<String>,
    /// The setting `push.after`, in seconds.
    pub after_seconds: u64,
    /// The last pull of a collector that dialled this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direct: Option<LastPull>,
    /// The last pull over a connection that this agent opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pushed: Option<LastPull>,
    /// The last request to enrol this agent, until a collector issues a certificate or pulls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<LastPull>,
    /// The connection to the collector.
    pub push: PushState,
    /// The last failure, until a collector pulls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<PushFailure>,
    /// Why the join token cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_problem: Option<String>,
}

/// A pull, or another request of a collector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastPull {
    pub at: u64,
    /// Address of the collector, or of the relay.
    pub peer: String,
}

/// State of the connection to the collector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "state")]
pub enum PushState {
    /// The agent does not connect: no address is set, a collector pulls directly, or the agent
    /// waits for one.
    #[default]
    Idle,
    Connecting,
    Connected {
        since: u64,
        peer: String,
    },
    /// The last connection failed or has ended.
    Waiting {
        /// When the agent connects again.
        next: u64,
    },
}

/// A connection that led to no pull.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PushFailure {
    pub at: u64,
    pub reason: PushFailureReason,
    /// Why, as a sentence.
    pub message: String,
}

impl PushFailure {
    /// With a bounded message.
    pub fn new(at: u64, reason: PushFailureReason, message: &str) -> Self {
        Self {
            at,
            reason,
            message: message.chars().take(MAX_MESSAGE_CHARS).collect(),
        }
    }
}

/// Kinds of failures, as in the metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum PushFailureReason {
    /// The name has no address, or no nameserver answers.
    Resolve,
    /// The address refuses the connection.
    Refused,
    /// The address does not answer.
    Timeout,
    /// The kernel cannot connect for another reason, e.g. without a route.
    Unreachable,
    /// What answers is not a collector of this fleet: the TLS handshake failed.
    Tls,
    /// The client has a certificate of the fleet's authority, and is not a collector.
    Unauthorized,
    /// The collector closed the connection without a pull.
    Unused,
}

impl PushFailureReason {
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// The kind as in the metric.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

impl WayRecord {
    /// The last time at which a collector pulled or, if none did, at which the agent started.
    pub fn unpulled_since(&self) -> u64 {
        let pulls = [&self.direct, &self.pushed].into_iter().flatten();
        pulls.map(|pull| pull.at).fold(self.started_at, u64::max)
    }
}
