//! Answers of probed nameservers, and the health that follows from them.

pub use answer::{Answer, ECHO, Health, Judged, Purpose, QueryOutcome, Question, SLOW_MICROS, Transport};
use std::{collections::BTreeMap, net::IpAddr};

use super::{asked::Asked, seen::Seen};

mod answer;
mod judging;

/// Returns the domain of random names: the cluster's domain, otherwise `invalid`, which does not
/// exist (RFC 6761, 6.4). For an address of the user cluster it is always `example`, which does not
/// exist either (RFC 6761, 6.5). The user cluster's cache answers for its own domain, which may
/// have the same name, and for `invalid` itself; it forwards `example`, so a loop becomes visible.
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

/// Returns the queries per nameserver of a run, in this order: a random name over UDP and over TCP,
/// the cluster's own name over UDP, each of `probe.names` over UDP. One datagram more than
/// necessary, so that one lost datagram does not make a nameserver dead.
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

/// A domain that does not exist and that no nameserver has to forward (RFC 6761, 6.4).
const NONEXISTENT_DOMAIN: &str = "invalid";

/// Returns an additional query for nameservers that returned only errors: a name outside of the
/// cluster. A nameserver that answers it works, but does not know the cluster. Not for nameservers
/// that must know the cluster, and not if the first query was for such a name.
pub fn error_questions(asked: &Asked, judged: &[Judged]) -> Vec<Question> {
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
            name: NONEXISTENT_DOMAIN.to_owned(),
        })
        .collect()
}

/// Sets the interface of each query to that of its nameserver.
pub fn by_interface(mut questions: Vec<Question>, zones: &BTreeMap<IpAddr, String>) -> Vec<Question> {
    for question in &mut questions {
        question.zone = zones.get(&question.nameserver).cloned();
    }
    questions
}

/// Returns the periodic query of a nameserver, sent at most once per `probe.interval`.
pub fn periodic_question(asked: &Asked, nameserver: IpAddr) -> Question {
    Question {
        nameserver,
        zone: None,
        transport: Transport::Udp,
        purpose: Purpose::Random,
        name: random_below(asked, nameserver),
    }
}

/// Returns the health of each nameserver, in the order of the queries. Pure: it depends only on the
/// answers and on the addresses in the guest.
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
