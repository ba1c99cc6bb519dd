//! How long labels of an infra node have been gone: one that flaps must not rewrite the Nodes of every tenant. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use virtfleet_collector_core::labels::plan::Decision;

/// Since when which source keys are gone while the Node has their labels.
#[derive(Debug, Default)]
pub(super) struct Absence(BTreeMap<String, Instant>);

impl Absence {
    /// Takes from a plan which sources are gone at `now`. Returns whether there is one that was not before: then the plan does not
    /// know yet that it is unconfirmed.
    pub(super) fn note(&mut self, decisions: &[Decision], now: Instant) -> bool {
        let gone: BTreeSet<&String> = decisions
            .iter()
            .filter(|one| !one.dry_run && one.desired.is_none() && one.current.is_some())
            .filter_map(|one| one.source.as_ref())
            .collect();
        self.0.retain(|source, _| gone.contains(source));
        let before = self.0.len();
        for source in gone {
            self.0.entry(source.clone()).or_insert(now);
        }
        self.0.len() > before
    }

    /// The sources that are gone for less than `confirm`.
    pub(super) fn unconfirmed(&self, now: Instant, confirm: Duration) -> BTreeSet<String> {
        let young = self
            .0
            .iter()
            .filter(|(_, since)| now.duration_since(**since) < confirm);
        young.map(|(source, _)| source.clone()).collect()
    }

    /// When the next of them is confirmed.
    pub(super) fn due(&self, now: Instant, confirm: Duration) -> Option<Duration> {
        let left = self
            .0
            .values()
            .map(|since| confirm.saturating_sub(now.duration_since(*since)));
        left.filter(|left| !left.is_zero()).min()
    }
}
