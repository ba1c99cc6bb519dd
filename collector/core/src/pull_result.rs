//! Result of pulling an agent: an answer or a failure.

use std::{fmt, net::SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::ids::VmKey;

use crate::{
    enrolment::{CertificateLife, EnrolmentReason},
    findings::escaped,
    queue_traffic::QueueTotals,
    report::KeptReport,
    usage::UsageCounters,
};

/// Milliseconds since 1970, UTC.
pub type UnixMs = u64;

#[derive(Debug, Clone)]
pub struct PullResult {
    /// The VM that was pulled: known from the dialled address and the certificate, never from the
    /// guest's report.
    pub vm: VmKey,
    /// End of the pull.
    pub at: UnixMs,
    /// The dialled address; none when no address of the VM may be dialled. With `pushed` the
    /// address from which the agent connected.
    pub address: Option<SocketAddr>,
    /// Whether the agent opened the connection of this pull.
    pub pushed: bool,
    pub outcome: Result<Answer, Failure>,
}

impl PullResult {
    /// Whether the VM's certificate was verified in this pull, or earlier on the same connection.
    pub fn is_verified(&self) -> bool {
        match &self.outcome {
            Ok(_) => true,
            // The answer is read only after the certificate was verified.
            Err(failure) => matches!(
                failure.class,
                FailureClass::Http | FailureClass::TooLarge | FailureClass::Malformed
            ),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Answer {
    /// What is kept of the report.
    pub report: Box<KeptReport>,
    /// What the collector keeps of the metrics page.
    pub metrics: MetricsSummary,
    /// Counters of the metrics page, from which the use of CPU and memory follows.
    pub counters: UsageCounters,
    /// Counters of the queues of network interfaces, sorted by queue; bounded.
    pub queues: Box<[QueueTotals]>,
    /// From the dial to the last byte, in milliseconds.
    pub took_ms: u64,
    /// Whether it took longer than a healthy agent may: a quarter of `scrape.timeout`.
    pub slow: bool,
    /// The agent's certificate; none if its validity cannot be parsed.
    pub certificate: Option<PeerCertificateState>,
}

/// Certificate with which an agent answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerCertificateState {
    pub life: CertificateLife,
    /// Why the last attempt to renew it failed.
    pub renewal: Option<EnrolmentReason>,
}

/// What the collector keeps of a guest's metrics page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetricsSummary {
    /// Samples on the page.
    pub samples: u64,
    /// `node_memory_MemTotal_bytes`.
    pub memory_total_bytes: Option<f64>,
    /// `node_memory_MemAvailable_bytes`.
    pub memory_available_bytes: Option<f64>,
    /// `node_load1`.
    pub load1: Option<f64>,
    /// `node_boot_time_seconds`.
    pub boot_time_seconds: Option<f64>,
    /// CPUs seen in `node_cpu_seconds_total`.
    pub cpus: u64,
    /// The agent's failed collectors (`virtfleet_agent_collector_failed`).
    pub failed_collectors: u64,
    /// Whether the guest's kernel says that its clock is synchronised (`node_timex_sync_status`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_synchronised: Option<bool>,
    /// Samples of families that only the collector exports.
    #[serde(skip)]
    pub reserved_samples: u64,
}

/// Failure of a pull: a class for metrics and a message for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// The class.
    pub class: FailureClass,
    /// What was tried, where, the result, and what to do next. Private, so that every text is
    /// bounded and escaped.
    message: String,
    /// Why the VM got no certificate, with [`FailureClass::Enrolment`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enrolment: Option<EnrolmentReason>,
    /// Where the connection failed, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<FailurePoint>,
}

/// Point on the way to an agent at which a connection failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FailurePoint {
    /// The VM's address refused the connection: the guest answers, and no program listens.
    Refused,
    /// The relay of the user cluster: it does not work, or nothing answers at its address.
    Relay,
    /// The guest accepted a new connection, and its agent did not respond in time.
    Agent,
}

/// Maximum length of a failure's text, in bytes after escaping. It is in every list of VMs and in
/// the log.
const MAX_FAILURE_BYTES: usize = 512;

impl Failure {
    /// A failure of this class. `message` may contain data from a guest or the network: control
    /// characters are escaped, and it is cut after 512 bytes.
    pub fn new(class: FailureClass, message: impl fmt::Display) -> Self {
        Self {
            class,
            message: escaped(message, MAX_FAILURE_BYTES),
            enrolment: None,
            point: None,
        }
    }

    /// Whether the VM could not be reached, as opposed to an answer that is refused.
    pub fn is_unreachable(&self) -> bool {
        matches!(
            self.class,
            FailureClass::NoAddress
                | FailureClass::NotAllowed
                | FailureClass::Connect
                | FailureClass::Timeout
        )
    }

    /// Sets where the connection failed.
    #[must_use]
    pub fn at(self, point: impl Into<Option<FailurePoint>>) -> Self {
        Self {
            point: point.into(),
            ..self
        }
    }

    /// The VM got no certificate. `message` as in [`Failure::new`].
    pub fn of_enrolment(reason: EnrolmentReason, message: impl fmt::Display) -> Self {
        Self {
            enrolment: Some(reason),
            ..Self::new(FailureClass::Enrolment, message)
        }
    }

    /// The failure with another message, treated as in [`Failure::new`]; the reason of a refused
    /// certificate is left out.
    #[must_use]
    pub fn reworded(&self, message: impl fmt::Display) -> Self {
        Self {
            point: self.point,
            ..Self::new(self.class, message)
        }
    }

    pub fn message(&self) -> &str {
        &self.message
    }
}

/// Classes of [`Failure`], also a metric's label value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum FailureClass {
    /// The VM has no address yet.
    NoAddress,
    /// None of its addresses may be dialled (`scrape.allowCIDRs`).
    NotAllowed,
    /// The connection was refused, or the network is unreachable.
    Connect,
    /// Connecting or answering took too long.
    Timeout,
    /// The TLS handshake failed: wrong CA, expired certificate, unsupported protocol.
    Tls,
    /// The certificate is valid and names another VM, or has another key than the recorded one.
    WrongVm,
    /// The agent has no certificate that may be used, and got none.
    Enrolment,
    /// An HTTP status other than 200.
    Http,
    /// The answer exceeds the size limit.
    TooLarge,
    /// The answer is not a report or not an exposition.
    Malformed,
}

impl FailureClass {
    /// The name in JSON and metrics.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Every class, for metrics that must exist before the first failure.
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;
}
