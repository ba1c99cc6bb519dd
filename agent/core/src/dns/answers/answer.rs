//! Questions to nameservers, their answers, and the health that follows.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// A random name below the cluster's domain, which does not exist. A healthy nameserver answers
    /// NXDOMAIN, a loop times out, a lying nameserver returns an address.
    Random,
    /// `kubernetes.default.svc.<domain>`, which the cluster's DNS resolves.
    Cluster,
    /// A name of `probe.names`, which must resolve.
    Named,
}

/// Transport protocol of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    Udp,
    Tcp,
}

/// Query to one nameserver. The host adds the random label of a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Question {
    pub nameserver: IpAddr,
    /// Interface of a link-local nameserver: its name or its index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    pub transport: Transport,
    pub purpose: Purpose,
    /// Name; for [`Purpose::Random`] the part after the random label.
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "outcome")]
pub enum QueryOutcome {
    /// NOERROR with this number of addresses (0: the name exists without addresses).
    Addresses { count: usize },
    /// NXDOMAIN.
    NoSuchName,
    /// SERVFAIL, REFUSED, or another code, by its name in the IANA registry.
    Code {
        /// E.g. `SERVFAIL`.
        code: String,
    },
    /// Truncated (TC); a retry over TCP is needed.
    Truncated,
    /// No answer before the timeout.
    Timeout,
    /// Not reachable: no route, port closed, connection refused.
    Unreachable { error: String },
    /// The response is not an answer to the query.
    Garbled {
        /// What is wrong with it.
        reason: String,
    },
}

impl QueryOutcome {
    /// Whether the response is an answer, good or bad.
    pub fn is_answer(&self) -> bool {
        matches!(
            self,
            Self::Addresses { .. } | Self::NoSuchName | Self::Code { .. } | Self::Truncated
        )
    }
}

impl QueryOutcome {
    /// Name of the result, a metric label.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Addresses { .. } => "addresses",
            Self::NoSuchName => "nxdomain",
            Self::Code { .. } => "failure",
            Self::Truncated => "truncated",
            Self::Timeout => "timeout",
            Self::Unreachable { .. } => "unreachable",
            Self::Garbled { .. } => "garbled",
        }
    }
}

impl std::fmt::Display for QueryOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Addresses { count: 0 } => f.write_str("no address"),
            Self::Addresses { count } => write!(f, "{count} addresses"),
            Self::NoSuchName => f.write_str("NXDOMAIN"),
            Self::Code { code } => f.write_str(code),
            Self::Truncated => f.write_str("truncated"),
            Self::Timeout => f.write_str("no answer in time"),
            Self::Unreachable { error } => write!(f, "unreachable: {error}"),
            Self::Garbled { reason } => write!(f, "not an answer to the query: {reason}"),
        }
    }
}

/// Query with its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    pub question: Question,
    pub outcome: QueryOutcome,
    /// Time from sending to the answer or the timeout, in microseconds.
    pub micros: u64,
}

/// Health of a nameserver according to its answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Health {
    /// Correct answers.
    Healthy,
    /// Correct answers that take more than a second.
    Slow,
    /// UDP works, TCP does not: long answers fail.
    NoTcp,
    /// TCP works, UDP does not.
    TcpOnly,
    /// Returns addresses for a name that does not exist.
    Lying,
    /// Answers, but cannot resolve the cluster's name or a name of `probe.names`.
    Incomplete,
    /// Returns only errors (SERVFAIL, REFUSED).
    Failing,
    /// Queries return to the sender, or time out at an address of the guest itself.
    Looping,
    /// No answers.
    Dead,
}

impl Health {
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Name in output.
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// Whether it may be used: its answers are correct, even if they are slow or incomplete.
    pub fn is_usable(self) -> bool {
        matches!(
            self,
            Self::Healthy | Self::Slow | Self::NoTcp | Self::TcpOnly | Self::Incomplete
        )
    }
}

/// Probe results of one nameserver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Judged {
    pub nameserver: IpAddr,
    pub health: Health,
    /// Reason of the health, one sentence.
    pub because: String,
    /// Shortest response time in microseconds; `None` without an answer.
    pub micros: Option<u64>,
    /// All queries with their results.
    pub answers: Vec<Answer>,
}

/// Reason in [`QueryOutcome::Garbled`] if the query itself was returned as response, by a mirror or
/// by a nameserver that forwards to itself.
pub const ECHO: &str = "the question itself came back";

/// Minimum response time of a slow answer, in microseconds.
pub const SLOW_MICROS: u64 = 1_000_000;
