//! Faults of requests and watches: random ones, or one chosen by its number (a sieve).

use std::collections::BTreeSet;

use super::world::ApiCall;

/// The fate of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// It arrives later by so many milliseconds.
    Slow(u64),
    /// The connection is refused.
    Refused,
    /// It is lost: no answer.
    Dropped,
    /// It is handled, and the answer is lost.
    AnswerLost,
    /// It is handled a second time so many milliseconds later.
    Twice(u64),
    /// It is answered with this status and not handled.
    Status(u16),
    /// It is answered from an older state.
    Stale,
}

impl Fault {
    pub(super) fn describe(self) -> String {
        if self == Self::None {
            String::new()
        } else {
            format!(" [{self:?}]")
        }
    }
}

/// What happens to a line of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineFault {
    /// It arrives after so many milliseconds.
    Late(u64),
    /// It is lost, and the watch ends; the server has forgotten it.
    Missed,
    /// It is lost, and nothing shows it.
    Lost,
}

/// A fault that a sieve applies to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SieveFault {
    /// The collector is restarted before it gets the answer.
    Restart,
    /// The watch event of the change that the request causes is lost.
    EventLost,
    /// The request is answered from an older state.
    Stale,
}

/// Which faults happen.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// Requests of a thousand with a fault.
    pub(super) per_mille: u32,
    /// The number of a request, and its fault.
    pub(super) sieve: Option<(usize, SieveFault)>,
    /// Minimum delay of the lines of a watch, in milliseconds.
    pub(super) line_delay: u64,
    /// Collectors that do not reach the Lease.
    pub(super) cut_from_lease: BTreeSet<usize>,
    /// Cluster and version of a watch line that is lost.
    pub(super) lost_line: Option<(String, u64)>,
}

impl Faults {
    /// The fate of a request.
    pub(super) fn pick(&self, rng: &mut fastrand::Rng, call: &ApiCall, number: usize) -> Fault {
        if self.sieve == Some((number, SieveFault::Stale)) {
            return Fault::Stale;
        }
        if rng.u32(..1000) >= self.per_mille {
            return Fault::None;
        }
        let is_patch = matches!(call, ApiCall::PatchNode(..));
        match rng.u32(..20) {
            0..=2 => Fault::Slow(rng.u64(20..8_000)),
            3 => Fault::Refused,
            4..=5 => Fault::Dropped,
            6..=8 => Fault::AnswerLost,
            9..=10 if is_patch => Fault::Twice(rng.u64(1..15_000)),
            11..=12 if is_patch => Fault::Status(409),
            13..=14 => Fault::Status(429),
            15..=16 => Fault::Status(500),
            17 => Fault::Status(503),
            _ if is_patch => Fault::AnswerLost,
            _ => Fault::Stale,
        }
    }

    /// The fate of a line of a watch with an object of `version`.
    pub(super) fn line(&self, rng: &mut fastrand::Rng, cluster: &str, version: u64) -> LineFault {
        let lost = self.lost_line.as_ref();
        if lost.is_some_and(|(at, lost)| at == cluster && *lost == version) {
            return LineFault::Lost;
        }
        if rng.u32(..1000) >= self.per_mille {
            return LineFault::Late(self.line_delay + rng.u64(1..30));
        }
        if rng.u32(..3) == 0 {
            LineFault::Missed
        } else {
            LineFault::Late(rng.u64(100..8_000))
        }
    }

    /// The lag of a watch of the infra cluster, in milliseconds.
    pub(super) fn lag(&self, rng: &mut fastrand::Rng) -> u64 {
        if rng.u32(..1000) < self.per_mille {
            rng.u64(100..8_000)
        } else {
            rng.u64(1..30)
        }
    }
}
