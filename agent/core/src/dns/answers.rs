//! What nameservers answered when they were asked, and what follows for each.

use std::{collections::BTreeMap, net::IpAddr};

use serde::{Deserialize, Serialize};

use super::{asked::Asked, seen::Seen};

mod judging;

/// What a question is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// A name that nobody has, below the cluster's domain: a good nameserver says NXDOMAIN, a loop says nothing in time, a liar gives an address.
    Random,
    /// `kubernetes.default.svc.<domain>`: the cluster's DNS resolves it.
    Cluster,
    /// A name of `probe.names`: it resolves.
    Named,
}

/// How it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the two")]
pub enum Transport {
    Udp,
    Tcp,
}

/// A question to one nameserver. The random part of a name is put in by the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Question {
    /// Whom.
    pub nameserver: IpAddr,
    /// By which interface only, for a link-local address: its name, or its index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// How.
    pub transport: Transport,
    /// What for.
    pub purpose: Purpose,
    /// The name; for [`Purpose::Random`] what stands behind the random label.
    pub name: String,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "outcome")]
pub enum Outcome {
    /// NOERROR with so many addresses (none: the name exists without).
    Addresses {
        /// How many.
        count: usize,
    },
    /// The name does not exist.
    NoSuchName,
    /// SERVFAIL, REFUSED, or another code, by its name in IANA's list.
    Code {
        /// E.g. `SERVFAIL`.
        code: String,
    },
    /// Cut off (TC), and to be asked again by TCP.
    Truncated,
    /// Nothing in time.
    Timeout,
    /// It cannot be reached: no route, nobody listens, connection refused.
    Unreachable {
        /// The kernel's word.
        error: String,
    },
    /// What came is no answer to what was asked.
    Garbled {
        /// What is wrong with it.
        reason: String,
    },
}

impl Outcome {
    /// Whether the nameserver said anything that is an answer, good or bad.
    pub fn is_answer(&self) -> bool {
        matches!(
            self,
            Self::Addresses { .. } | Self::NoSuchName | Self::Code { .. } | Self::Truncated
        )
    }
}

impl Outcome {
    /// Which it is, as a label of a metric.
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

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Addresses { count: 0 } => f.write_str("no address"),
            Self::Addresses { count } => write!(f, "{count} addresses"),
            Self::NoSuchName => f.write_str("NXDOMAIN"),
            Self::Code { code } => f.write_str(code),
            Self::Truncated => f.write_str("cut off"),
            Self::Timeout => f.write_str("no answer in time"),
            Self::Unreachable { error } => write!(f, "cannot be reached: {error}"),
            Self::Garbled { reason } => write!(f, "no answer to the question: {reason}"),
        }
    }
}

/// A question with its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// What was asked.
    pub question: Question,
    /// What came.
    pub outcome: Outcome,
    /// From sending to the answer, or to giving up, in microseconds.
    pub micros: u64,
}

/// How a nameserver is, by its answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Health {
    /// It answers as it should.
    Healthy,
    /// It answers, and takes more than a second.
    Slow,
    /// UDP answers and TCP does not: long answers fail.
    NoTcp,
    /// TCP answers and UDP does not.
    TcpOnly,
    /// It gives addresses for a name that nobody has.
    Lying,
    /// It answers, and does not know what it should: the cluster's name, or one of `probe.names`.
    Incomplete,
    /// It answers with failure (SERVFAIL, REFUSED).
    Failing,
    /// Questions come back to where they came from, or run out of time at an address of the guest itself.
    Looping,
    /// It does not answer.
    Dead,
}

impl Health {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Healthy,
        Self::Slow,
        Self::NoTcp,
        Self::TcpOnly,
        Self::Lying,
        Self::Incomplete,
        Self::Failing,
        Self::Looping,
        Self::Dead,
    ];

    /// As it is printed.
    pub fn word(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Slow => "slow",
            Self::NoTcp => "no-tcp",
            Self::TcpOnly => "tcp-only",
            Self::Lying => "lying",
            Self::Incomplete => "incomplete",
            Self::Failing => "failing",
            Self::Looping => "looping",
            Self::Dead => "dead",
        }
    }

    /// Whether it may be used: it gives true answers, if slowly or not to everything.
    pub fn is_usable(self) -> bool {
        matches!(
            self,
            Self::Healthy | Self::Slow | Self::NoTcp | Self::TcpOnly | Self::Incomplete
        )
    }
}

/// One nameserver and what was found out about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Judged {
    /// Whom.
    pub nameserver: IpAddr,
    /// How it is.
    pub health: Health,
    /// Why, in one sentence.
    pub because: String,
    /// The least time of its answers, in microseconds; none when there was none.
    pub micros: Option<u64>,
    /// All that was asked and answered.
    pub answers: Vec<Answer>,
}

/// What a host says as [`Outcome::Garbled`]'s reason when its own question came back as if it were the answer: one that forwards to itself, or a mirror.
pub const ECHO: &str = "the question itself came back";
/// From when on an answer is slow, in microseconds.
pub const SLOW_MICROS: u64 = 1_000_000;

/// The name below which a random one exists nowhere: the cluster's domain; without one `invalid`, which nobody has (RFC 6761, 6.4). Of an address that is the user cluster's
/// own it is always `example`, which nobody has, either (RFC 6761, 6.5): its cache answers for its own domain, which may have the same name, and for `invalid` (6.4), and
/// forwards this, so that a loop shows.
pub fn random_below(asked: &Asked, nameserver: IpAddr) -> String {
    let of_user_cluster = asked.node_local.contains(&nameserver)
        || asked.user_nameservers.contains(&nameserver)
        || asked
            .service_ranges
            .iter()
            .any(|range| range.contains(nameserver));
    if of_user_cluster {
        "example".to_owned()
    } else if asked.cluster_domain.is_empty() {
        "invalid".to_owned()
    } else {
        asked.cluster_domain.clone()
    }
}

/// What each nameserver is asked in a pass, in this order: a random name by UDP and by TCP, the cluster's own name by UDP, each of `probe.names` by UDP.
/// That is one datagram more than needed, so that one that was lost makes nobody dead.
pub fn questions(asked: &Asked, nameservers: &[IpAddr]) -> Vec<Question> {
    let mut all = Vec::new();
    for nameserver in nameservers {
        let mut ask = |transport, purpose, name: String| {
            all.push(Question {
                nameserver: *nameserver,
                zone: None,
                transport,
                purpose,
                name,
            });
        };
        ask(Transport::Udp, Purpose::Random, random_below(asked, *nameserver));
        ask(Transport::Tcp, Purpose::Random, random_below(asked, *nameserver));
        if !asked.cluster_domain.is_empty() {
            let name = format!("kubernetes.default.svc.{}", asked.cluster_domain);
            ask(Transport::Udp, Purpose::Cluster, name);
        }
        for name in &asked.probe_names {
            ask(Transport::Udp, Purpose::Named, name.clone());
        }
    }
    all
}

/// A name that nobody has and that no nameserver has to forward (RFC 6761, 6.4).
const ELSEWHERE: &str = "invalid";

/// What those are asked in addition that gave nothing but failure: a name that is not the cluster's. One that answers that works, and only does not know the cluster. None to those
/// that are to know the cluster, and none where the first question was such a name already.
pub fn once_more(asked: &Asked, judged: &[Judged]) -> Vec<Question> {
    let of_cluster = |one: &IpAddr| asked.cluster_first() && asked.cluster_nameservers.contains(one);
    judged
        .iter()
        .filter(|one| one.health == Health::Failing && !of_cluster(&one.nameserver))
        .filter(|one| random_below(asked, one.nameserver) == asked.cluster_domain)
        .map(|one| Question {
            nameserver: one.nameserver,
            zone: None,
            transport: Transport::Udp,
            purpose: Purpose::Random,
            name: ELSEWHERE.to_owned(),
        })
        .collect()
}

/// The same questions, each by the interface that its nameserver is reached by.
pub fn by_interface(mut questions: Vec<Question>, zones: &BTreeMap<IpAddr, String>) -> Vec<Question> {
    for question in &mut questions {
        question.zone = zones.get(&question.nameserver).cloned();
    }
    questions
}

/// The one question that a nameserver is asked while nothing happens, at most once in `probe.interval`.
pub fn at_rest(asked: &Asked, nameserver: IpAddr) -> Question {
    Question {
        nameserver,
        zone: None,
        transport: Transport::Udp,
        purpose: Purpose::Random,
        name: random_below(asked, nameserver),
    }
}

/// How each nameserver is, in the order in which they were asked. A pure function of the answers, and of where the address is.
pub fn judge(asked: &Asked, seen: &Seen, answers: &[Answer]) -> Vec<Judged> {
    let mut order: Vec<IpAddr> = Vec::new();
    for answer in answers {
        if !order.contains(&answer.question.nameserver) {
            order.push(answer.question.nameserver);
        }
    }
    order
        .into_iter()
        .map(|nameserver| {
            let own: Vec<Answer> = answers
                .iter()
                .filter(|answer| answer.question.nameserver == nameserver)
                .cloned()
                .collect();
            let (health, because) = judging::health(asked, seen, nameserver, &own);
            Judged {
                nameserver,
                health,
                because,
                micros: own
                    .iter()
                    .filter(|answer| answer.outcome.is_answer())
                    .map(|answer| answer.micros)
                    .min(),
                answers: own,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests;
