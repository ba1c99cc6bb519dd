//! Results of the pulls of one VM over time.

use std::net::SocketAddr;

use crate::{
    pull_result::{Answer, Failure, FailureClass, PullResult, UnixMs},
    queue_traffic::{QueueTraffic, traffic},
    usage::{GuestUsage, UsagePage},
    usage_history::UsageHistory,
};

/// Results of the pulls of one incarnation of a VM.
#[derive(Debug, Clone, Default)]
pub(crate) struct PullHistory {
    /// The last answer and its time.
    pub(crate) answer: Option<(UnixMs, Box<Answer>)>,
    /// Time of the last pull, and its failure, if any.
    pub(crate) last_try: Option<(UnixMs, Option<Failure>)>,
    /// Failed pulls since the last answer; none if the last pull succeeded.
    pub(crate) failing: Option<Streak>,
    /// Use of CPU and memory between two answers of one boot.
    pub(crate) usage: Option<GuestUsage>,
    /// The same over the last hour.
    pub(crate) history: UsageHistory,
    /// Traffic of each queue between two answers of one boot.
    pub(crate) queues: Box<[QueueTraffic]>,
    /// The page from which the next use is computed.
    usage_since: Option<UsagePage>,
    /// Only the first answer is known, so the next one shows the use. Not after a boot: a guest
    /// that boots again and again would keep what was known before.
    pub(crate) is_usage_pending: bool,
    /// Consecutive slow answers; none if the last answer was not slow.
    pub(crate) slow: Option<Streak>,
    pub(crate) verified: Option<Verified>,
    /// Where the agent connected from, if the last pull used such a connection.
    pub(crate) pushed: Option<SocketAddr>,
}

/// Consecutive pulls of an agent that failed, or were slow.
#[derive(Debug, Clone)]
pub(crate) struct Streak {
    /// Time of the first of them, RFC 3339 in UTC.
    pub(crate) since: Box<str>,
    pub(crate) pulls: u32,
}

impl Streak {
    fn extend(before: Option<Self>, now: &str) -> Self {
        match before {
            Some(streak) => Self {
                pulls: streak.pulls.saturating_add(1),
                ..streak
            },
            None => Self {
                since: now.into(),
                pulls: 1,
            },
        }
    }
}

/// Last verification of a VM's certificate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Verified {
    at: UnixMs,
    address: SocketAddr,
    /// Pulls since then that did not verify it.
    missed: u8,
}

/// Consecutive pulls without verification after which a VM is no longer verified: its address may
/// belong to another VM.
const MAX_UNVERIFIED: u8 = 3;

impl PullHistory {
    /// Records a pull at the time `now`, RFC 3339 in UTC.
    pub(crate) fn record_attempt(&mut self, at: UnixMs, failure: Option<Failure>, now: &str) {
        self.failing = failure
            .is_some()
            .then(|| Streak::extend(self.failing.take(), now));
        self.last_try = Some((at, failure));
    }

    /// Updates the use of CPU and memory by the answer of a pull at the time `at`.
    pub(crate) fn record_usage(&mut self, at: UnixMs, answer: &Answer) {
        let now = UsagePage {
            at_ms: at,
            counters: answer.counters,
            cpus: answer.metrics.cpus,
        };
        let earlier = self.answer.as_ref();
        let is_same_boot = earlier.is_some_and(|(_, before)| before.report.boot_id == answer.report.boot_id);
        let before = self.usage_since.filter(|_| is_same_boot);
        self.queues = match earlier {
            Some((then, before)) if is_same_boot => {
                traffic(&before.queues, &answer.queues, at.saturating_sub(*then))
            }
            _ => Box::default(),
        };
        let usage = if before.is_some_and(|before| now.is_too_soon_after(before)) {
            Some(self.usage.unwrap_or_default())
        } else {
            self.usage_since = Some(now);
            self.is_usage_pending = earlier.is_none();
            before.map(|before| GuestUsage::between(before, now))
        };
        let metrics = &answer.metrics;
        self.usage = usage
            .map(|usage| usage.with_memory(metrics.memory_available_bytes, metrics.memory_total_bytes))
            .filter(|usage| *usage != GuestUsage::default());
        self.history.record(at, self.usage.unwrap_or_default());
    }

    /// Records whether an answer at the time `now`, RFC 3339 in UTC, was slow.
    pub(crate) fn record_latency(&mut self, slow: bool, now: &str) {
        self.slow = slow.then(|| Streak::extend(self.slow.take(), now));
    }

    /// Records whether a pull verified the certificate.
    pub(crate) fn record_verification(&mut self, pull: &PullResult) {
        // Nothing with a usable certificate answers at the address.
        let wrong =
            |failure: &Failure| matches!(failure.class, FailureClass::WrongVm | FailureClass::Enrolment);
        self.verified = match (pull.address, self.verified) {
            (Some(address), _) if pull.is_verified() => Some(Verified {
                at: pull.at,
                address,
                missed: 0,
            }),
            (_, Some(known)) if !pull.outcome.as_ref().is_err_and(wrong) => Some(Verified {
                missed: known.missed + 1,
                ..known
            })
            .filter(|known| known.missed < MAX_UNVERIFIED),
            _ => None,
        };
    }

    /// Time of the last verification at `address`; none if the last pulls did not verify it.
    pub(crate) fn verified_at(&self, address: Option<SocketAddr>) -> Option<UnixMs> {
        let known = self.verified?;
        (Some(known.address) == address).then_some(known.at)
    }
}

#[cfg(test)]
mod tests {
    use virtfleet_wire::report::GuestReport;

    use super::*;
    use crate::{
        pull_result::MetricsSummary,
        report::KeptReport,
        usage::{CpuCounters, Share, UsageCounters},
    };

    fn answer(boot_id: &str, seconds: u32) -> Answer {
        let report = GuestReport {
            boot_id: boot_id.to_owned(),
            ..GuestReport::default()
        };
        let cpu = CpuCounters {
            total_ms: seconds * 2000,
            idle_ms: seconds * 1000,
            steal_ms: seconds * 200,
        };
        Answer {
            report: Box::new(KeptReport::of(&report)),
            metrics: MetricsSummary {
                cpus: 2,
                ..MetricsSummary::default()
            },
            counters: UsageCounters {
                cpu: Some(cpu),
                ..UsageCounters::default()
            },
            queues: Box::default(),
            took_ms: 1,
            slow: false,
            certificate: None,
        }
    }

    #[test]
    fn the_use_is_pending_after_the_first_answer_only() {
        let mut history = PullHistory::default();
        let mut is_pending = |boot_id: &str, seconds: u32| {
            let at = 1_000_000 + u64::from(seconds) * 1000;
            let answer = answer(boot_id, seconds);
            history.record_usage(at, &answer);
            history.answer = Some((at, Box::new(answer)));
            history.is_usage_pending
        };
        let pages = [("a", 0), ("a", 4), ("b", 30), ("c", 60), ("c", 90)];
        let pending = pages.map(|(boot_id, seconds)| is_pending(boot_id, seconds));
        assert_eq!(pending, [true, true, false, false, false]);
    }

    #[test]
    fn pulls_that_follow_soon_measure_the_use_too() {
        let mut history = PullHistory::default();
        let mut pull = |boot_id: &str, seconds: u32| {
            let at = 1_000_000 + u64::from(seconds) * 1000;
            let answer = answer(boot_id, seconds);
            history.record_usage(at, &answer);
            history.answer = Some((at, Box::new(answer)));
            history
                .usage
                .and_then(|usage| usage.cpu_steal)
                .map(Share::percent)
        };
        let steal: Vec<_> = (0..8).map(|second| pull("a", second)).collect();
        assert_eq!(steal[..5], [None; 5]);
        assert_eq!(steal[5..], [Some(10); 3]);
        // Another boot begins anew, and so does a clock that was set back.
        assert_eq!(pull("b", 8), None);
        assert_eq!(pull("b", 13), Some(10));
        assert_eq!(pull("b", 2), None);
        assert_eq!(pull("b", 7), Some(10));
    }
}
