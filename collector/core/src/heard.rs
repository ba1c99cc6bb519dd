//! What was heard of a VM's agent: the last answer, and the last failure to get one.

use std::{fmt, net::SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::ids::VmKey;

use crate::{findings::escaped, report::KeptReport};

/// Milliseconds since 1970, UTC.
pub type UnixMs = u64;

/// One attempt to hear an agent, finished.
#[derive(Debug, Clone)]
pub struct Heard {
    /// The VM that was meant: by what was dialled and by its certificate, never by what the guest says.
    pub vm: VmKey,
    /// When the attempt ended.
    pub at: UnixMs,
    /// Where it was dialled; none when no address of the VM may be dialled.
    pub address: Option<SocketAddr>,
    /// What came of it.
    pub outcome: Result<Answer, Failure>,
}

impl Heard {
    /// Whether the certificate of the VM was verified in this attempt, or on a connection that is still used.
    pub fn is_verified(&self) -> bool {
        match &self.outcome {
            Ok(_) => true,
            // What is read at all is read after the certificate was.
            Err(failure) => matches!(
                failure.class,
                FailureClass::Http | FailureClass::TooLarge | FailureClass::Malformed
            ),
        }
    }
}

/// A complete answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// What is kept of the report.
    pub report: Box<KeptReport>,
    /// What the collector keeps of the metrics page.
    pub metrics: MetricsSummary,
    /// From the dial to the last byte, in milliseconds.
    pub took_ms: u64,
    /// Whether it took longer than a healthy agent may: a quarter of `scrape.timeout`.
    pub slow: bool,
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
    /// Collectors of the agent that failed (`virtfleet_agent_collector_failed`); those that have nothing to tell have not.
    pub failed_collectors: u64,
    /// Samples of families that only the collector exports.
    #[serde(skip)]
    pub reserved_samples: u64,
}

/// Why there was no answer: a class for metrics, a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// The class.
    pub class: FailureClass,
    /// What was tried, where, what came back, and what to do next. Private, so that every text is bounded and escaped.
    message: String,
}

/// Maximum length of a failure's text, in bytes after escaping. It stands in every list of VMs and in the log.
const MAX_FAILURE_BYTES: usize = 512;

impl Failure {
    /// A failure of this class. Of `message`, which may hold what a guest or the network sent, control characters are escaped,
    /// and what is over 512 bytes is cut.
    pub fn new(class: FailureClass, message: impl fmt::Display) -> Self {
        Self {
            class,
            message: escaped(message, MAX_FAILURE_BYTES),
        }
    }

    /// The text for people.
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// Classes of [`Failure`], also a metric's label value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// The VM has no address yet.
    NoAddress,
    /// None of its addresses may be dialled (`scrape.allowCIDRs`).
    NotAllowed,
    /// Nobody listens, or the network says no.
    Connect,
    /// Too slow: to connect, to answer, or to end.
    Timeout,
    /// The TLS handshake failed: wrong CA, expired, not what we speak.
    Tls,
    /// The certificate is valid, and another VM's.
    WrongVm,
    /// HTTP, but not 200.
    Http,
    /// More bytes than may be.
    TooLarge,
    /// Not a report, or not an exposition.
    Malformed,
}

impl FailureClass {
    /// As in JSON and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoAddress => "no_address",
            Self::NotAllowed => "not_allowed",
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Tls => "tls",
            Self::WrongVm => "wrong_vm",
            Self::Http => "http",
            Self::TooLarge => "too_large",
            Self::Malformed => "malformed",
        }
    }

    /// Every class, for metrics that must exist before the first failure.
    pub const ALL: [Self; 9] = [
        Self::NoAddress,
        Self::NotAllowed,
        Self::Connect,
        Self::Timeout,
        Self::Tls,
        Self::WrongVm,
        Self::Http,
        Self::TooLarge,
        Self::Malformed,
    ];
}
