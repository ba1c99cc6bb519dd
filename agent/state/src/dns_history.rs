//! Recent probe results of each nameserver and counts of their outcomes.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use virtfleet_agent_core::dns::answers::{Answer, QueryOutcome};

/// Maximum number of results that are kept for each nameserver.
const MAX_ANSWERS: usize = 10;

/// Probe results, shared between the nameserver watch (writer) and the report and metrics
/// (readers).
#[derive(Debug, Clone, Default)]
pub struct DnsHistory(Arc<Mutex<Vec<NameserverHistory>>>);

/// Probe results of one nameserver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameserverHistory {
    /// Address of the nameserver.
    pub nameserver: IpAddr,
    /// The last ten results, newest last.
    pub answers: Vec<RecordedAnswer>,
    /// Number of results for each outcome ([`QueryOutcome::word`]) since the agent started.
    pub outcomes: BTreeMap<&'static str, u64>,
}

/// Result of one probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedAnswer {
    /// Arrival of the answer, or the timeout: `CLOCK_BOOTTIME` in nanoseconds.
    pub at_boottime_ns: u64,
    /// Outcome, as in [`QueryOutcome::word`].
    pub outcome: &'static str,
    /// The answer is the expected one: the probed name does not exist.
    pub good: bool,
    /// Response time in microseconds. `None` if no answer arrived.
    pub micros: Option<u64>,
}

impl NameserverHistory {
    /// The newest result.
    pub fn last(&self) -> Option<&RecordedAnswer> {
        self.answers.last()
    }
}

/// True for the outcomes that a working nameserver returns for a name that does not exist.
pub fn is_good(outcome: &QueryOutcome) -> bool {
    matches!(
        outcome,
        QueryOutcome::NoSuchName | QueryOutcome::Addresses { count: 0 } | QueryOutcome::Truncated
    )
}

impl DnsHistory {
    /// A copy of the history of all nameservers.
    pub fn snapshot(&self) -> Vec<NameserverHistory> {
        self.lock().clone()
    }

    /// Records an answer. `at_boottime_ns` is `CLOCK_BOOTTIME` at its arrival.
    pub fn add(&self, answer: &Answer, at_boottime_ns: u64) {
        let outcome = &answer.outcome;
        let recorded = RecordedAnswer {
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
                    answers: Vec::new(),
                    outcomes: BTreeMap::new(),
                });
                all.len() - 1
            });
        let history = &mut all[index];
        *history.outcomes.entry(recorded.outcome).or_default() += 1;
        if history.answers.len() == MAX_ANSWERS {
            history.answers.remove(0);
        }
        history.answers.push(recorded);
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
