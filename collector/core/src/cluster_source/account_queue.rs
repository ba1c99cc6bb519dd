//! The order in which accounts in user clusters are worked on.
//!
//! A user cluster's API server may be slow, down or hostile. What has failed waits longer after
//! each failure, and gets only a part of the parallel work, so that it never delays the others.

use std::{collections::BTreeMap, time::Duration};

/// Accounts that are worked on at the same time.
const MAX_PARALLEL: usize = 8;
/// How many of them may be accounts whose last attempt has failed.
const MAX_PARALLEL_RETRIES: usize = 4;
/// Time until the second attempt; doubled after each further failure.
const FIRST_RETRY: Duration = Duration::from_secs(30);
/// Maximum time between two attempts.
const MAX_RETRY: Duration = Duration::from_mins(30);

/// Name of a ClusterSource, and of one of its UserClusters.
pub type AccountKey = (String, String);

#[derive(Debug)]
struct AccountEntry<J> {
    /// What is due and has not begun.
    job: Option<J>,
    is_running: bool,
    failures: u32,
    not_before: Duration,
    error: Option<String>,
}

/// The accounts for which something is due. Times are since any fixed moment of a clock that does
/// not jump.
#[derive(Debug)]
pub struct AccountQueue<J> {
    entries: BTreeMap<AccountKey, AccountEntry<J>>,
}

impl<J> Default for AccountQueue<J> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
        }
    }
}

impl<J> AccountQueue<J> {
    /// Sets what is due for the user clusters of a source. What is not due any more and has not
    /// begun is dropped, with its failures.
    pub fn set_due(&mut self, source: &str, due: BTreeMap<String, J>) {
        self.entries.retain(|(of, cluster), entry| {
            if of == source && !due.contains_key(cluster) {
                (entry.job, entry.error, entry.failures) = (None, None, 0);
                return entry.is_running;
            }
            true
        });
        for (cluster, job) in due {
            let entry = self.entries.entry((source.to_owned(), cluster));
            let entry = entry.or_insert_with(|| AccountEntry {
                job: None,
                is_running: false,
                failures: 0,
                not_before: Duration::ZERO,
                error: None,
            });
            entry.job = Some(job);
        }
    }

    /// Drops what is due for sources that do not exist any more, or that this process does not
    /// follow any more.
    pub fn retain_sources(&mut self, exists: impl Fn(&str) -> bool) {
        self.entries.retain(|(source, _), entry| {
            if !exists(source) {
                entry.job = None;
                return entry.is_running;
            }
            true
        });
    }

    /// What is worked on next: first what has not failed yet, then what has waited longest. None if
    /// nothing may begin now.
    pub fn next(&mut self, now: Duration) -> Option<(AccountKey, J)> {
        let running = self.entries.values().filter(|entry| entry.is_running);
        let (failed, fresh): (Vec<_>, Vec<_>) = running.partition(|entry| entry.failures > 0);
        if failed.len() + fresh.len() >= MAX_PARALLEL {
            return None;
        }
        let may_retry = failed.len() < MAX_PARALLEL_RETRIES;
        let may_begin = |entry: &AccountEntry<J>| {
            let is_waiting = entry.job.is_some() && !entry.is_running && entry.not_before <= now;
            is_waiting && (entry.failures == 0 || may_retry)
        };
        let waiting = self.entries.iter_mut().filter(|(_, entry)| may_begin(entry));
        let (key, entry) = waiting.min_by_key(|(_, entry)| (entry.failures > 0, entry.not_before))?;
        entry.is_running = true;
        Some((key.clone(), entry.job.take()?))
    }

    /// The work on an account has ended, with the minimum time until it is worked on again, or with
    /// an error.
    pub fn done(&mut self, key: &AccountKey, result: Result<Duration, String>, now: Duration) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        entry.is_running = false;
        match result {
            Ok(pause) => {
                (entry.failures, entry.error) = (0, None);
                entry.not_before = now + pause;
            }
            Err(why) => {
                let doubled = FIRST_RETRY.saturating_mul(1 << entry.failures.min(16));
                entry.failures += 1;
                entry.error = Some(why);
                entry.not_before = now + doubled.min(MAX_RETRY);
            }
        }
    }

    /// Why the last attempt failed, while something is due.
    pub fn error(&self, source: &str, cluster: &str) -> Option<&str> {
        let entry = self.entries.get(&(source.to_owned(), cluster.to_owned()))?;
        entry.error.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(names: &[String]) -> BTreeMap<String, u8> {
        names.iter().map(|name| (name.clone(), 1)).collect()
    }

    fn names(prefix: &str, number: usize) -> Vec<String> {
        (0..number).map(|n| format!("{prefix}-{n:02}")).collect()
    }

    fn drain(queue: &mut AccountQueue<u8>, now: u64) -> Vec<AccountKey> {
        std::iter::from_fn(|| queue.next(Duration::from_secs(now)))
            .map(|(key, _)| key)
            .collect()
    }

    #[test]
    fn a_cluster_is_worked_on_once_at_a_time_and_waits_longer_after_each_failure() {
        let mut queue = AccountQueue::default();
        let one = names("c", 1);
        let at = Duration::from_secs;
        let mut now = 0;
        for wait in [30, 60, 120, 240, 480, 960, 1800, 1800] {
            queue.set_due("s", due(&one));
            let keys = drain(&mut queue, now);
            assert_eq!(keys.len(), 1, "at {now}");
            queue.set_due("s", due(&one));
            assert_eq!(drain(&mut queue, now), [], "it is running");
            queue.done(&keys[0], Err("no".into()), at(now));
            assert_eq!(queue.error("s", "c-00"), Some("no"));
            assert_eq!(drain(&mut queue, now + wait - 1), []);
            now += wait;
        }
        let keys = drain(&mut queue, now);
        queue.done(&keys[0], Ok(at(600)), at(now));
        assert_eq!(queue.error("s", "c-00"), None);
        queue.set_due("s", due(&one));
        assert_eq!(drain(&mut queue, now + 599), []);
        assert_eq!(drain(&mut queue, now + 600).len(), 1);
    }

    #[test]
    fn failed_clusters_leave_room_for_others() {
        let mut queue = AccountQueue::default();
        let bad = names("a-bad", 20);
        queue.set_due("s", due(&bad));
        let mut failed = 0;
        while failed < bad.len() {
            let keys = drain(&mut queue, 0);
            assert!((1..=MAX_PARALLEL).contains(&keys.len()));
            failed += keys.len();
            for key in &keys {
                queue.done(key, Err("down".into()), Duration::ZERO);
            }
        }
        let mut all = due(&bad);
        all.extend(due(&names("z-good", 6)));
        queue.set_due("s", all);
        let first = drain(&mut queue, 3600);
        let good = first.iter().filter(|(_, name)| name.starts_with("z-good"));
        assert_eq!((first.len(), good.count()), (8, 6), "{first:?}");
        for key in first.iter().filter(|(_, name)| name.starts_with("z-good")) {
            queue.done(key, Ok(Duration::ZERO), Duration::from_hours(1));
        }
        let second = drain(&mut queue, 3601);
        assert_eq!(second.len(), MAX_PARALLEL_RETRIES - 2, "{second:?}");
    }

    #[test]
    fn what_is_not_due_any_more_is_dropped() {
        let mut queue = AccountQueue::default();
        let two = names("c", 2);
        queue.set_due("s", due(&two));
        let (key, _) = queue.next(Duration::ZERO).unwrap();
        queue.set_due("s", due(&[]));
        assert_eq!(drain(&mut queue, 0), []);
        queue.done(&key, Err("late".into()), Duration::ZERO);
        queue.set_due("s", due(&[]));
        assert_eq!(queue.entries.len(), 0);
        queue.set_due("s", due(&two));
        queue.set_due("t", due(&two));
        queue.retain_sources(|source| source == "t");
        let left = drain(&mut queue, 0);
        assert!(
            left.len() == 2 && left.iter().all(|(source, _)| source == "t"),
            "{left:?}"
        );
    }
}
