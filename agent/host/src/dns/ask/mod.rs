//! Asks nameservers: every question at the same time, each with a socket (so a random source port of the kernel's choice) and a random id of
//! its own, and none longer than its deadline. Nothing is asked twice, and nothing but what is given.

mod flight;
mod message;
#[cfg(test)]
mod responder;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use nix::{
    errno::Errno,
    poll::{PollFd, PollTimeout, poll},
};
use virtfleet_agent_core::dns::answers::{Answer, Question};

pub use message::{Asked, Verdict};

use flight::Flight;

/// How to ask.
pub struct Ask<'a> {
    /// How long an answer may take.
    pub timeout: Duration,
    /// The port of every nameserver; 53 but in tests.
    pub port: u16,
    /// Where ids and random labels come from: [`random_bytes`] but in tests.
    pub random: &'a mut dyn FnMut() -> [u8; 8],
}

/// Random bytes of the kernel (getrandom(2)). It does not fail after boot; if it did, an id that could be guessed would be the lesser evil.
pub fn random_bytes() -> [u8; 8] {
    let mut bytes = [0; 8];
    if let Err(error) = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        tracing::warn!(%error, "no random bytes from the kernel");
    }
    bytes
}

/// An answer to each question, in their order. Returns when the last is answered or given up, so not later than the timeout.
pub fn ask(questions: &[Question], ask: Ask<'_>) -> Vec<Answer> {
    let mut flights: Vec<Flight<'_>> = questions
        .iter()
        .map(|question| Flight::start(question, ask.port, (ask.random)()))
        .collect();
    while let Some(wait) = flights.iter().filter_map(|flight| flight.left(ask.timeout)).min() {
        let (mut indexes, mut watched) = (Vec::new(), Vec::new());
        for (index, flight) in flights.iter().enumerate() {
            if let Some((socket, events)) = flight.waits_for() {
                indexes.push(index);
                watched.push(PollFd::new(socket, events));
            }
        }
        // Rounded up, so that the last round does not spin.
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
            flights[index].go_on();
        }
        let broken = polled.err().filter(|error| *error != Errno::EINTR);
        let now = Instant::now();
        for flight in &mut flights {
            match broken {
                Some(error) => flight.unreachable(&error.into()),
                None => flight.give_up(now, ask.timeout),
            }
        }
    }
    flights.into_iter().map(Flight::answer).collect()
}
