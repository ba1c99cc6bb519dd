//! Detects another writer that keeps changing a label that the collector writes, so that the Node
//! does not flap. Pure: the caller passes the time.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use virtfleet_collector_core::labels::{pairs::PAIRS, plan::NodePatch};

/// Rewrites of one value within [`REWRITE_WINDOW`] that make a key contested.
const MAX_REWRITES: usize = 5;
/// Time for which a rewrite counts, and for which a contested key is not written after the last
/// one.
const REWRITE_WINDOW: Duration = Duration::from_mins(10);

/// Recent writes to one Node, by label key.
#[derive(Debug, Default)]
pub(super) struct OwnershipConflicts(BTreeMap<String, RecentWrites>);

#[derive(Debug)]
struct RecentWrites {
    value: Option<String>,
    /// When the same value was written again.
    rewrites: VecDeque<Instant>,
    last: Instant,
}

/// Keys that were contested, and when each of them last did not have its value.
#[derive(Debug, Default)]
pub(super) struct ContestedLately(BTreeMap<String, Instant>);

impl ContestedLately {
    /// Takes the keys that are contested at `now`, and which ones would be written to have their
    /// values. Returns the keys that have not had them for long since: another writer gives up only
    /// then.
    pub(super) fn update(
        &mut self,
        contested: &BTreeSet<String>,
        is_off: impl Fn(&str) -> bool,
        now: Instant,
    ) -> BTreeSet<String> {
        self.0.extend(contested.iter().map(|key| (key.clone(), now)));
        for (key, off) in &mut self.0 {
            if is_off(key) {
                *off = now;
            }
        }
        self.0.retain(|_, off| now.duration_since(*off) < REWRITE_WINDOW);
        self.0.keys().cloned().collect()
    }

    /// Time until the first of them has had its value for long.
    pub(super) fn due(&self, now: Instant) -> Option<Duration> {
        let first = self.0.values().min()?;
        Some(REWRITE_WINDOW.saturating_sub(now.duration_since(*first)))
    }
}

impl OwnershipConflicts {
    /// Removes the keys from `patch` that are contested at `now`, and returns them. A new value is
    /// never contested: the VM has moved.
    pub(super) fn remove_contested(&self, patch: &mut NodePatch, now: Instant) -> BTreeSet<String> {
        let contested = |key: &str, value: &Option<String>| {
            self.0.get(key).is_some_and(|written| {
                let recent = written
                    .rewrites
                    .iter()
                    .filter(|at| now.duration_since(**at) < REWRITE_WINDOW);
                written.value == *value && recent.count() >= MAX_REWRITES
            })
        };
        let found = patch.labels.iter().filter(|(key, value)| contested(key, value));
        let mut keys: BTreeSet<String> = found.map(|(key, _)| key.clone()).collect();
        // Kubernetes' own controllers keep the members of a pair equal.
        for (one, other) in PAIRS {
            let pair = [one, other];
            if pair.iter().any(|key| keys.contains(*key)) {
                let present = pair.iter().filter(|key| patch.labels.contains_key(**key));
                keys.extend(present.map(|key| (*key).to_owned()));
            }
        }
        patch.labels.retain(|key, _| !keys.contains(key));
        keys
    }

    pub(super) fn written(&mut self, patch: &NodePatch, now: Instant) {
        self.0
            .retain(|_, written| now.duration_since(written.last) < REWRITE_WINDOW);
        for (key, value) in &patch.labels {
            let known = self.0.entry(key.clone()).or_insert_with(|| RecentWrites {
                value: None,
                rewrites: VecDeque::new(),
                last: now,
            });
            known.last = now;
            if known.value == *value && value.is_some() {
                known
                    .rewrites
                    .retain(|at| now.duration_since(*at) < REWRITE_WINDOW);
                known.rewrites.push_back(now);
            } else {
                known.value.clone_from(value);
                known.rewrites.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patch(pairs: &[(&str, Option<&str>)]) -> NodePatch {
        let labels = pairs.iter().map(|(k, v)| ((*k).to_owned(), v.map(str::to_owned)));
        NodePatch {
            labels: labels.collect(),
            owned: None,
        }
    }

    #[test]
    fn a_value_rewritten_too_often_is_contested_for_a_while_and_a_new_value_is_not() {
        let start = Instant::now();
        let minute = |n: u64| start + Duration::from_secs(60 * n);
        let mut conflicts = OwnershipConflicts::default();
        for n in 0..=5 {
            let mut next = patch(&[("rack", Some("r1")), ("row", Some("x"))]);
            assert_eq!(
                conflicts.remove_contested(&mut next, minute(n)),
                BTreeSet::new(),
                "write {n}"
            );
            conflicts.written(&patch(&[("rack", Some("r1"))]), minute(n));
        }
        let mut next = patch(&[("rack", Some("r1")), ("row", Some("x"))]);
        assert_eq!(
            conflicts.remove_contested(&mut next, minute(6)),
            BTreeSet::from(["rack".to_owned()])
        );
        assert_eq!(next, patch(&[("row", Some("x"))]), "other keys are still written");
        let mut moved = patch(&[("rack", Some("r2"))]);
        assert_eq!(conflicts.remove_contested(&mut moved, minute(6)), BTreeSet::new());
        let mut later = patch(&[("rack", Some("r1"))]);
        assert_eq!(
            conflicts.remove_contested(&mut later, minute(15)),
            BTreeSet::new()
        );
    }

    #[test]
    fn a_vm_that_moves_often_is_not_contested() {
        let start = Instant::now();
        let mut conflicts = OwnershipConflicts::default();
        for n in 0..50 {
            let value = format!("r{}", n % 2);
            let mut next = patch(&[("rack", Some(&value))]);
            assert!(conflicts.remove_contested(&mut next, start).is_empty());
            conflicts.written(&next, start);
        }
    }

    #[test]
    fn topology_pairs_are_contested_together() {
        let now = Instant::now();
        let mut conflicts = OwnershipConflicts::default();
        for _ in 0..=5 {
            conflicts.written(&patch(&[("topology.kubernetes.io/zone", Some("a"))]), now);
        }
        let mut both = patch(&[
            ("topology.kubernetes.io/zone", Some("a")),
            ("failure-domain.beta.kubernetes.io/zone", Some("a")),
        ]);
        assert_eq!(conflicts.remove_contested(&mut both, now).len(), 2);
        assert!(both.labels.is_empty());
    }
}
