//! What nameservers answered to the watch: the last few of each, and how often what.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use virtfleet_agent_core::dns::answers::{Answer, Outcome};

/// Answers that are kept of each nameserver.
const KEPT: usize = 10;

/// Shared between the watch, which adds, and whoever shows it.
#[derive(Debug, Clone, Default)]
pub struct DnsHistory(Arc<Mutex<Vec<Heard>>>);

/// One nameserver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// Whom.
    pub nameserver: IpAddr,
    /// The last ten, the newest last.
    pub answers: Vec<Once>,
    /// How often what came, since the agent started; the words of [`Outcome::word`].
    pub outcomes: BTreeMap<&'static str, u64>,
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Once {
    /// When, `CLOCK_BOOTTIME`.
    pub at_boottime_ns: u64,
    /// What came: a word of [`Outcome::word`].
    pub outcome: &'static str,
    /// Whether it is true: nobody has the name.
    pub good: bool,
    /// How long it took, in microseconds; none when nothing came.
    pub micros: Option<u64>,
}

impl Heard {
    /// The newest answer.
    pub fn last(&self) -> Option<&Once> {
        self.answers.last()
    }
}

/// Whether it is what a good nameserver says of a name that nobody has.
pub fn is_good(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::NoSuchName | Outcome::Addresses { count: 0 } | Outcome::Truncated
    )
}

impl DnsHistory {
    /// All of it.
    pub fn heard(&self) -> Vec<Heard> {
        self.lock().clone()
    }

    /// Adds an answer; `at_boottime_ns` is `CLOCK_BOOTTIME` at its arrival.
    pub fn add(&self, answer: &Answer, at_boottime_ns: u64) {
        let outcome = &answer.outcome;
        let once = Once {
            at_boottime_ns,
            outcome: outcome.word(),
            good: is_good(outcome),
            micros: outcome.is_answer().then_some(answer.micros),
        };
        let nameserver = answer.question.nameserver;
        let mut all = self.lock();
        let index = all
            .iter()
            .position(|heard| heard.nameserver == nameserver)
            .unwrap_or_else(|| {
                all.push(Heard {
                    nameserver,
                    answers: Vec::new(),
                    outcomes: BTreeMap::new(),
                });
                all.len() - 1
            });
        let heard = &mut all[index];
        *heard.outcomes.entry(once.outcome).or_default() += 1;
        if heard.answers.len() == KEPT {
            heard.answers.remove(0);
        }
        heard.answers.push(once);
    }

    /// Forgets all but these.
    pub fn keep(&self, nameservers: &[IpAddr]) {
        self.lock()
            .retain(|heard| nameservers.contains(&heard.nameserver));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Heard>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
