//! Recent probe results of each nameserver and counts of their outcomes.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use virtfleet_agent_core::dns::answers::{Answer, QueryOutcome};

/// Maximum number of results kept for each nameserver.
const MAX_RESULTS_PER_NAMESERVER: usize = 10;

/// Probe results, shared between the nameserver watch (writer) and the report and metrics
/// (readers).
#[derive(Debug, Clone, Default)]
pub struct DnsHistory(Arc<Mutex<Vec<NameserverHistory>>>);

/// Probe results of one nameserver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameserverHistory {
    pub nameserver: IpAddr,
    /// The most recent results, at most ten, oldest first.
    pub results: Vec<DnsProbeResult>,
    /// Number of results for each outcome ([`QueryOutcome::word`]) since the history of the
    /// nameserver began.
    pub outcomes: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsProbeResult {
    /// Time of the answer, or of the timeout if there was none: `CLOCK_BOOTTIME` in nanoseconds.
    pub at_boottime_ns: u64,
    /// Name of the outcome ([`QueryOutcome::word`]).
    pub outcome: &'static str,
    /// True if a working nameserver returns this outcome ([`is_good`]).
    pub good: bool,
    /// Response time in microseconds. `None` if no answer arrived.
    pub micros: Option<u64>,
}

impl NameserverHistory {
    /// The newest result.
    pub fn last(&self) -> Option<&DnsProbeResult> {
        self.results.last()
    }
}

/// True for the outcomes that a working nameserver returns for the probed name, which does not
/// exist.
pub fn is_good(outcome: &QueryOutcome) -> bool {
    matches!(
        outcome,
        QueryOutcome::NoSuchName | QueryOutcome::Addresses { count: 0 } | QueryOutcome::Truncated
    )
}

impl DnsHistory {
    /// Returns a copy of the history of all nameservers.
    pub fn snapshot(&self) -> Vec<NameserverHistory> {
        self.lock().clone()
    }

    /// Records the result of a probe. `at_boottime_ns`: see [`DnsProbeResult::at_boottime_ns`].
    pub fn add(&self, answer: &Answer, at_boottime_ns: u64) {
        let outcome = &answer.outcome;
        let result = DnsProbeResult {
            at_boottime_ns,
            outcome: outcome.word(),
            good: is_good(outcome),
            micros: outcome.is_answer().then_some(answer.micros),
        };
        let nameserver = answer.question.nameserver;
        let mut all = self.lock();
        let index = all
            .iter()
            .position(|history| history.nameserver == nameserver)
            .unwrap_or_else(|| {
                all.push(NameserverHistory {
                    nameserver,
                    results: Vec::new(),
                    outcomes: BTreeMap::new(),
                });
                all.len() - 1
            });
        let history = &mut all[index];
        *history.outcomes.entry(result.outcome).or_default() += 1;
        if history.results.len() == MAX_RESULTS_PER_NAMESERVER {
            history.results.remove(0);
        }
        history.results.push(result);
    }

    /// Removes the history of every nameserver that is not in `nameservers`.
    pub fn keep(&self, nameservers: &[IpAddr]) {
        self.lock()
            .retain(|history| nameservers.contains(&history.nameserver));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<NameserverHistory>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
