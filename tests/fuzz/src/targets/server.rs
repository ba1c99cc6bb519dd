//! What comes over the network: queries of scrapers, answers of nameservers.

use std::net::IpAddr;

use virtfleet_agent_core::dns::answers::{Purpose, QueryOutcome, Question, Transport};

use super::input::text;
use crate::agent::{QueryMessage, Verdict, filter_of_query};

/// The query of `/metrics`.
pub(super) fn query(bytes: &[u8]) {
    let text = text(bytes);
    let filter = filter_of_query(Some(&text));
    let names = filter.collect.iter().chain(&filter.exclude);
    let pairs = text.split('&').count();
    assert!(filter.collect.len() + filter.exclude.len() <= pairs);
    // A byte that is no UTF-8 becomes a sign of three.
    assert!(names.map(String::len).sum::<usize>() <= 3 * text.len());
    // Written with every byte escaped, it is the same.
    let mut again = String::new();
    for (key, values) in [("collect[]", &filter.collect), ("exclude[]", &filter.exclude)] {
        for value in values {
            again.push_str(key);
            again.push('=');
            again.extend(value.bytes().map(|byte| format!("%{byte:02x}")));
            again.push('&');
        }
    }
    assert_eq!(filter_of_query(Some(&again)), filter);
}

/// A message that came as the answer to a question of ours.
pub(super) fn dns_answer(bytes: &[u8]) {
    for transport in [Transport::Udp, Transport::Tcp] {
        let question = Question {
            nameserver: IpAddr::from([10, 0, 0, 10]),
            zone: None,
            transport,
            name: "a.example.".to_owned(),
            purpose: Purpose::Named,
        };
        let asked =
            QueryMessage::new(&question, [0, 1, 0, 0, 0, 0, 0, 0]).expect("a name that can be asked for");
        for answer in [bytes.to_vec(), framed(&asked, bytes)] {
            if let Verdict::Answer(outcome) = asked.read(&answer) {
                assert!(answer.len() >= 12, "there is no answer without its head");
                if let QueryOutcome::Addresses { count } = outcome {
                    // A name of one byte at the least, type, class, time, length.
                    assert!(count * 11 <= answer.len(), "{count} addresses");
                }
            }
        }
    }
}

/// The input as what follows a good head and the question, so that records are reached at once.
fn framed(asked: &QueryMessage, bytes: &[u8]) -> Vec<u8> {
    let question = asked.bytes();
    let mut answer = question.to_vec();
    answer[2] |= 0x80;
    answer[7] = bytes.first().copied().unwrap_or_default();
    answer.extend(bytes.iter().skip(1));
    answer
}
