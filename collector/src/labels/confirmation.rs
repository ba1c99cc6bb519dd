//! Delays changes of an infra node's labels until they are stable: a label that flaps must not
//! rewrite the Nodes of every tenant. Pure: the caller passes the time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use virtfleet_collector_core::labels::{
    owned,
    plan::{Decision, LabelInput},
};
use virtfleet_wire::ids::NodeName;

/// Time for which a changed label of an infra node must be stable before Nodes follow.
#[derive(Debug, Clone, Copy)]
pub struct ConfirmationDelays {
    /// Delay when the infra node has lost the label.
    pub removal: Duration,
    /// Delay when the label has another value while the VM stays on that infra node.
    pub change: Duration,
}

/// Labels of one VM's infra node that differ from the user cluster's Node and are not confirmed
/// yet, by the key on the infra node.
#[derive(Debug, Default)]
pub(super) struct UnconfirmedChanges {
    /// The infra node of the last plan that had one.
    host: Option<NodeName>,
    /// The labels of that infra node in the last plan.
    planned: BTreeMap<String, Option<String>>,
    pending: BTreeMap<String, PendingValue>,
}

/// A value that is not confirmed yet.
#[derive(Debug)]
struct PendingValue {
    /// None when the infra node has lost the label.
    desired: Option<String>,
    since: Instant,
}

impl PendingValue {
    /// Time left until the value is confirmed.
    fn left(&self, now: Instant, confirm: ConfirmationDelays) -> Duration {
        let length = if self.desired.is_none() {
            confirm.removal
        } else {
            confirm.change
        };
        length.saturating_sub(now.saturating_duration_since(self.since))
    }
}

impl UnconfirmedChanges {
    /// Updates the pending labels from a plan made at `now`. If [`Self::keys`] changes, plan again.
    ///
    /// A lost label always waits. Another value waits if the infra node had a different one in the
    /// last plan or, in the first plan, if the Node's value was copied from that infra node: a VM
    /// that has moved follows at once.
    pub(super) fn update(&mut self, input: &LabelInput, decisions: &[Decision], now: Instant) {
        let first = self.host.is_none();
        if let Some(host) = &input.host
            && self.host.as_ref() != Some(&host.name)
        {
            self.host = Some(host.name.clone());
            self.planned.clear();
            self.pending.retain(|_, pending| pending.desired.is_none());
        }
        let owned = owned::read(input.owned.as_deref()).unwrap_or_default();
        let uid = input.host.as_ref().and_then(|host| host.uid.as_ref());
        let copied_from_host = |key: &str| {
            let from = owned.get(key).and_then(|entry| entry.infra_node_uid.as_ref());
            from.is_some() && from == uid
        };
        let waits = |one: &Decision, source: &str| match (&one.desired, self.planned.get(source)) {
            (None, _) => true,
            (Some(_), Some(known)) if *known == one.desired => {
                // As in the last plan: the VM has moved or the policy was edited, unless the value
                // was already pending.
                let pending = self.pending.get(source);
                pending.is_some_and(|pending| pending.desired == one.desired)
            }
            (Some(_), Some(_)) => true,
            (Some(_), None) => first && copied_from_host(&one.key),
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
        self.pending
            .retain(|source, pending| differing.get(source) == Some(&pending.desired));
        for (source, desired) in differing {
            let pending = PendingValue { desired, since: now };
            self.pending.entry(source).or_insert(pending);
        }
        if input.host.is_some() {
            let values = decisions.iter().filter(|one| !one.dry_run);
            let values = values.filter_map(|one| Some((one.source.clone()?, one.desired.clone())));
            self.planned.extend(values);
        }
    }

    /// The keys that are not confirmed at `now`.
    pub(super) fn keys(&self, now: Instant, confirm: ConfirmationDelays) -> BTreeSet<String> {
        let unconfirmed = self
            .pending
            .iter()
            .filter(|(_, pending)| !pending.left(now, confirm).is_zero());
        unconfirmed.map(|(source, _)| source.clone()).collect()
    }

    /// Time until the next pending label is confirmed.
    pub(super) fn due(&self, now: Instant, confirm: ConfirmationDelays) -> Option<Duration> {
        let left = self.pending.values().map(|pending| pending.left(now, confirm));
        left.filter(|left| !left.is_zero()).min()
    }
}

#[cfg(test)]
mod tests;
