//! Notices when somebody else keeps changing what we write, so that nobody's Node flaps. Pure.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use virtfleet_collector_core::labels::plan::NodePatch;

/// Rewrites of one value within [`WINDOW`] that are still taken for coincidence.
pub(super) const PATIENCE: usize = 5;
/// How long a rewrite counts, and how long a contested key is left alone after the last one.
pub(super) const WINDOW: Duration = Duration::from_mins(10);

/// What was written to one Node of late.
#[derive(Debug, Default)]
pub(super) struct Contest(BTreeMap<String, Written>);

#[derive(Debug)]
struct Written {
    value: Option<String>,
    /// When the same value was written again.
    again: VecDeque<Instant>,
    last: Instant,
}

/// Kubernetes' own controllers keep these pairs equal, so they are left alone together.
const PAIRS: [(&str, &str); 3] = [
    (
        "topology.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/zone",
    ),
    (
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/region",
    ),
    (
        "node.kubernetes.io/instance-type",
        "beta.kubernetes.io/instance-type",
    ),
];

impl Contest {
    /// Takes out of `patch` what is contested at `now`, and returns those keys. A value that is new is never contested: the
    /// VM has moved.
    pub(super) fn hold_back(&self, patch: &mut NodePatch, now: Instant) -> BTreeSet<String> {
        let contested = |key: &str, value: &Option<String>| {
            self.0.get(key).is_some_and(|written| {
                let recent = written
                    .again
                    .iter()
                    .filter(|at| now.duration_since(**at) < WINDOW);
                written.value == *value && recent.count() >= PATIENCE
            })
        };
        let found = patch.labels.iter().filter(|(key, value)| contested(key, value));
        let mut keys: BTreeSet<String> = found.map(|(key, _)| key.clone()).collect();
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

    /// `patch` was written at `now`.
    pub(super) fn written(&mut self, patch: &NodePatch, now: Instant) {
        self.0
            .retain(|_, written| now.duration_since(written.last) < WINDOW);
        for (key, value) in &patch.labels {
            let known = self.0.entry(key.clone()).or_insert_with(|| Written {
                value: None,
                again: VecDeque::new(),
                last: now,
            });
            known.last = now;
            if known.value == *value && value.is_some() {
                known.again.retain(|at| now.duration_since(*at) < WINDOW);
                known.again.push_back(now);
            } else {
                known.value.clone_from(value);
                known.again.clear();
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
    fn the_same_value_over_and_over_is_held_back_for_a_while_and_a_new_one_is_not() {
        let start = Instant::now();
        let minute = |n: u64| start + Duration::from_secs(60 * n);
        let mut contest = Contest::default();
        for n in 0..=5 {
            let mut next = patch(&[("rack", Some("r1")), ("room", Some("x"))]);
            assert_eq!(
                contest.hold_back(&mut next, minute(n)),
                BTreeSet::new(),
                "write {n}"
            );
            contest.written(&patch(&[("rack", Some("r1"))]), minute(n));
        }
        let mut next = patch(&[("rack", Some("r1")), ("room", Some("x"))]);
        assert_eq!(
            contest.hold_back(&mut next, minute(6)),
            BTreeSet::from(["rack".to_owned()])
        );
        assert_eq!(next, patch(&[("room", Some("x"))]), "the others go on");
        let mut moved = patch(&[("rack", Some("r2"))]);
        assert_eq!(contest.hold_back(&mut moved, minute(6)), BTreeSet::new());
        let mut later = patch(&[("rack", Some("r1"))]);
        assert_eq!(contest.hold_back(&mut later, minute(15)), BTreeSet::new());
    }

    #[test]
    fn who_moves_often_is_not_contested() {
        let start = Instant::now();
        let mut contest = Contest::default();
        for n in 0..50 {
            let value = format!("r{}", n % 2);
            let mut next = patch(&[("rack", Some(&value))]);
            assert!(contest.hold_back(&mut next, start).is_empty());
            contest.written(&next, start);
        }
    }

    #[test]
    fn topology_pairs_are_held_back_together() {
        let now = Instant::now();
        let mut contest = Contest::default();
        for _ in 0..=5 {
            contest.written(&patch(&[("topology.kubernetes.io/zone", Some("a"))]), now);
        }
        let mut both = patch(&[
            ("topology.kubernetes.io/zone", Some("a")),
            ("failure-domain.beta.kubernetes.io/zone", Some("a")),
        ]);
        assert_eq!(contest.hold_back(&mut both, now).len(), 2);
        assert!(both.labels.is_empty());
    }
}
