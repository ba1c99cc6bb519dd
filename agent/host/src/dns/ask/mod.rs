//! Queries nameservers concurrently. Each query has its own socket (so a random source port chosen
//! by the kernel), a random id and a timeout. No query is repeated.

mod message;
mod pending_query;
#[cfg(test)]
pub(super) mod responder;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use nix::{
    errno::Errno,
    poll::{PollFd, PollTimeout, poll},
};
use virtfleet_agent_core::dns::answers::{Answer, Question};

pub use message::{QueryMessage, Verdict};
pub(super) use pending_query::nameserver_address;

use pending_query::PendingQuery;

/// Parameters of [`ask`].
pub struct Ask<'a> {
    /// Maximum time for an answer.
    pub timeout: Duration,
    /// Port of every nameserver; 53 except in tests.
    pub port: u16,
    /// Source of ids and random labels; [`random_bytes`] except in tests.
    pub random: &'a mut dyn FnMut() -> [u8; 8],
}

/// Random bytes from the kernel (getrandom(2)). The call does not fail after boot. If it did, a
/// predictable id would be preferable to no query.
pub fn random_bytes() -> [u8; 8] {
    let mut bytes = [0; 8];
    if let Err(error) = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        tracing::warn!(%error, "getrandom failed");
    }
    bytes
}

/// Sends all queries. The answers are in the order of the questions. Returns when all are answered
/// or the timeout has passed.
pub fn ask(questions: &[Question], ask: Ask<'_>) -> Vec<Answer> {
    let mut queries: Vec<PendingQuery<'_>> = questions
        .iter()
        .map(|question| PendingQuery::start(question, ask.port, (ask.random)()))
        .collect();
    while let Some(wait) = queries.iter().filter_map(|query| query.left(ask.timeout)).min() {
        let (mut indexes, mut watched) = (Vec::new(), Vec::new());
        for (index, query) in queries.iter().enumerate() {
            if let Some((socket, events)) = query.poll_events() {
                indexes.push(index);
                watched.push(PollFd::new(socket, events));
            }
        }
        // Rounded up, so that the last iteration does not spin.
        let limit = PollTimeout::try_from(wait + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        let polled = poll(&mut watched, limit);
        let ready: Vec<usize> = watched
            .iter()
            .zip(&indexes)
            .filter(|(fd, _)| fd.revents().is_some_and(|events| !events.is_empty()))
            .map(|(_, index)| *index)
            .collect();
        drop(watched);
        for index in ready {
            queries[index].advance();
        }
        let broken = polled.err().filter(|error| *error != Errno::EINTR);
        let now = Instant::now();
        for query in &mut queries {
            match broken {
                Some(error) => query.unreachable(&error.into()),
                None => query.check_timeout(now, ask.timeout),
            }
        }
    }
    queries.into_iter().map(PendingQuery::answer).collect()
}
