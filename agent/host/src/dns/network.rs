//! Sends queries to nameservers.

use std::time::Duration;

use super::{Ask, ask, random_bytes};
use virtfleet_agent_core::dns::answers::{Answer, Question};

/// Port of nameservers (RFC 1035, 4.2).
const PORT: u16 = 53;

/// Sends DNS queries.
pub trait DnsClient {
    /// Answers in the order of the questions, not later than the timeout.
    fn query(&self, questions: &[Question], timeout: Duration) -> Vec<Answer>;
}

/// Queries over the network of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Network;

impl DnsClient for Network {
    fn query(&self, questions: &[Question], timeout: Duration) -> Vec<Answer> {
        let how = Ask {
            timeout,
            port: PORT,
            random: &mut random_bytes,
        };
        ask(questions, how)
    }
}
