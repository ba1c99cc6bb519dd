//! Changes of an infra node's labels that wait for confirmation: a label that flaps must not rewrite the Nodes of every tenant.
//! Pure: the caller passes the time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use virtfleet_collector_core::labels::{
    owned,
    plan::{Decision, LabelInput},
};
use virtfleet_wire::ids::NodeName;

/// Time for which a label of an infra node must be as it is before Nodes follow.
#[derive(Debug, Clone, Copy)]
pub struct Confirm {
    /// When the infra node has lost it.
    pub removal: Duration,
    /// When it has another value while the VM stays on that infra node.
    pub change: Duration,
}

/// The labels of one VM's infra node, by their keys there, that differ from the user cluster's Node, and since when.
#[derive(Debug, Default)]
pub(super) struct Unconfirmed {
    /// The infra node of the last plan that had one.
    host: Option<NodeName>,
    /// The labels of that infra node by key, as plans have known them last.
    known: BTreeMap<String, Option<String>>,
    waiting: BTreeMap<String, Waiting>,
}

/// A value that is not on the Node yet.
#[derive(Debug)]
struct Waiting {
    /// None when the infra node has lost the label.
    desired: Option<String>,
    since: Instant,
}

impl Waiting {
    /// Time that is left until it is confirmed.
    fn left(&self, now: Instant, confirm: Confirm) -> Duration {
        let length = if self.desired.is_none() {
            confirm.removal
        } else {
            confirm.change
        };
        length.saturating_sub(now.saturating_duration_since(self.since))
    }
}

impl Unconfirmed {
    /// Takes from a plan which labels differ at `now`. When [`Self::keys`] are others afterwards, the plan is to be made again.
    ///
    /// A lost label always waits. Another value waits when the last plan knew the infra node with a different one or, in the first
    /// plan, when the Node's value was taken from that infra node: a VM that has moved follows at once.
    pub(super) fn note(&mut self, input: &LabelInput, decisions: &[Decision], now: Instant) {
        let first = self.host.is_none();
        if let Some(host) = &input.host
            && self.host.as_ref() != Some(&host.name)
        {
            self.host = Some(host.name.clone());
            self.known.clear();
            self.waiting.retain(|_, waiting| waiting.desired.is_none());
        }
        let owned = owned::read(input.owned.as_deref()).unwrap_or_default();
        let uid = input.host.as_ref().and_then(|host| host.uid.as_ref());
        let written_here = |key: &str| {
            let from = owned.get(key).and_then(|entry| entry.infra_node_uid.as_ref());
            from.is_some() && from == uid
        };
        let waits = |one: &Decision, source: &str| match (&one.desired, self.known.get(source)) {
            (None, _) => true,
            (Some(_), Some(known)) if *known == one.desired => {
                // As in the last plan: the VM has moved or the policy was edited, unless it was waiting then.
                let waiting = self.waiting.get(source);
                waiting.is_some_and(|waiting| waiting.desired == one.desired)
            }
            (Some(_), Some(_)) => true,
            (Some(_), None) => first && written_here(&one.key),
        };
        let mut differing: BTreeMap<String, Option<String>> = BTreeMap::new();
        for one in decisions
            .iter()
            .filter(|one| !one.dry_run && one.current.is_some())
        {
            let Some(source) = &one.source else { continue };
            if one.current != one.desired && waits(one, source) {
                differing.insert(source.clone(), one.desired.clone());
            }
        }
        self.waiting
            .retain(|source, waiting| differing.get(source) == Some(&waiting.desired));
        for (source, desired) in differing {
            let waiting = Waiting { desired, since: now };
            self.waiting.entry(source).or_insert(waiting);
        }
        if input.host.is_some() {
            let values = decisions.iter().filter(|one| !one.dry_run);
            let values = values.filter_map(|one| Some((one.source.clone()?, one.desired.clone())));
            self.known.extend(values);
        }
    }

    /// The keys that are not confirmed at `now`.
    pub(super) fn keys(&self, now: Instant, confirm: Confirm) -> BTreeSet<String> {
        let young = self
            .waiting
            .iter()
            .filter(|(_, waiting)| !waiting.left(now, confirm).is_zero());
        young.map(|(source, _)| source.clone()).collect()
    }

    /// When the next of them is confirmed.
    pub(super) fn due(&self, now: Instant, confirm: Confirm) -> Option<Duration> {
        let left = self.waiting.values().map(|waiting| waiting.left(now, confirm));
        left.filter(|left| !left.is_zero()).min()
    }
}

#[cfg(test)]
mod tests;
