//! Limits on writes of one Node's conditions. Pure: the caller passes the time.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use backon::ExponentialBackoff;
use virtfleet_collector_core::{node_conditions::NodeConditionInput, reported::ReportedConditions};
use virtfleet_wire::ids::{NodeName, Uid};

use super::rate_limit::backoff;

/// Maximum writes to one Node within [`WRITE_WINDOW`]. Held conditions need fewer: more writes mean
/// that another writer changes them too.
const MAX_WRITES: usize = 20;
/// Time for which a write counts.
const WRITE_WINDOW: Duration = Duration::from_mins(10);
/// Maximum time for which the conditions that the last request returned are preferred to the
/// watched ones.
const MAX_WATCH_LAG: Duration = Duration::from_secs(30);

/// A Node's conditions in the answer to the last write.
#[derive(Debug)]
struct AnsweredConditions {
    node: NodeName,
    uid: Option<Uid>,
    resource_version: String,
    conditions: ReportedConditions,
    at: Instant,
}

/// Writes of one Node's conditions between two reconcile runs.
#[derive(Debug, Default)]
pub(super) struct ConditionWrites {
    answered: Option<AnsweredConditions>,
    writes: VecDeque<Instant>,
    retries: Option<ExponentialBackoff>,
    not_before: Option<Instant>,
}

impl ConditionWrites {
    /// Replaces conditions and version in `input` by those of the last answer, until the watch has
    /// caught up.
    pub(super) fn overlay(&mut self, input: &mut NodeConditionInput, now: Instant) {
        let Some(last) = &self.answered else { return };
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok());
        let watched = number(input.resource_version.as_deref());
        let is_newer = watched
            .zip(number(Some(&last.resource_version)))
            .is_some_and(|(watched, last)| watched < last);
        let is_same = last.node == input.node && last.uid == input.node_uid;
        if !is_newer || !is_same || now.duration_since(last.at) > MAX_WATCH_LAG {
            self.answered = None;
            return;
        }
        input.present = last.conditions.clone();
        input.resource_version = Some(last.resource_version.clone());
    }

    /// Time until the next write is allowed.
    pub(super) fn wait(&mut self, now: Instant) -> Option<Duration> {
        self.writes.retain(|at| now.duration_since(*at) < WRITE_WINDOW);
        let oldest = self.writes.front().filter(|_| self.writes.len() >= MAX_WRITES);
        let limited = oldest.map(|oldest| *oldest + WRITE_WINDOW);
        let until = limited.into_iter().chain(self.not_before).max()?;
        until.checked_duration_since(now).filter(|wait| !wait.is_zero())
    }

    /// Records a successful write and its answer.
    pub(super) fn written(
        &mut self,
        input: &NodeConditionInput,
        resource_version: Option<String>,
        conditions: ReportedConditions,
        now: Instant,
    ) {
        self.writes.push_back(now);
        self.retries = None;
        self.not_before = None;
        self.answered = resource_version.map(|resource_version| AnsweredConditions {
            node: input.node.clone(),
            uid: input.node_uid.clone(),
            resource_version,
            conditions,
            at: now,
        });
    }

    /// Records a failed write: the next one waits, longer with each failure, from `min` to `max`.
    pub(super) fn failed(&mut self, min: Duration, max: Duration, now: Instant) -> Duration {
        let pause = self
            .retries
            .get_or_insert_with(|| backoff(min, max))
            .next()
            .unwrap_or(max);
        self.not_before = Some(now + pause);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(version: &str) -> NodeConditionInput {
        NodeConditionInput {
            vm: virtfleet_wire::ids::VmKey {
                namespace: "ns".parse().unwrap(),
                name: "a".parse().unwrap(),
            },
            cluster: "c".parse().unwrap(),
            requested: std::collections::BTreeSet::new(),
            node: "a".parse().unwrap(),
            node_uid: Some("u".parse().unwrap()),
            resource_version: Some(version.to_owned()),
            present: ReportedConditions::default(),
            health: Vec::new(),
        }
    }

    #[test]
    fn another_writer_cannot_cause_any_number_of_writes() {
        let now = Instant::now();
        let mut writes = ConditionWrites::default();
        for _ in 0..MAX_WRITES {
            assert_eq!(writes.wait(now), None);
            writes.written(&input("7"), None, ReportedConditions::default(), now);
        }
        assert_eq!(writes.wait(now), Some(WRITE_WINDOW));
        assert_eq!(writes.wait(now + WRITE_WINDOW), None);
    }

    #[test]
    fn failures_delay_the_next_write_and_a_success_ends_that() {
        let now = Instant::now();
        let mut writes = ConditionWrites::default();
        let pause = writes.failed(Duration::from_secs(1), Duration::from_secs(8), now);
        assert_eq!(writes.wait(now), Some(pause));
        assert!(pause >= Duration::from_secs(1));
        writes.written(&input("7"), None, ReportedConditions::default(), now);
        assert_eq!(writes.wait(now), None);
    }

    #[test]
    fn the_answer_counts_until_the_watch_has_caught_up() {
        let now = Instant::now();
        let mut writes = ConditionWrites::default();
        writes.written(
            &input("7"),
            Some("9".to_owned()),
            ReportedConditions::default(),
            now,
        );
        let mut older = input("8");
        writes.overlay(&mut older, now);
        assert_eq!(older.resource_version.as_deref(), Some("9"));
        let mut newer = input("10");
        writes.overlay(&mut newer, now);
        assert_eq!(newer.resource_version.as_deref(), Some("10"));
        let mut again = input("8");
        writes.overlay(&mut again, now);
        assert_eq!(
            again.resource_version.as_deref(),
            Some("8"),
            "the answer is dropped"
        );
    }
}
