//! What is remembered between looks: of one VM, and of one user cluster.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use backon::ExponentialBackoff;
use virtfleet_collector_core::labels::plan::LabelInput;
use virtfleet_wire::ids::{ClusterName, NodeName};

use super::{
    confirm::Unconfirmed,
    contest::Contest,
    pace::{Bucket, backoff},
    queue::Next,
    writer::Fresh,
};

/// How long what a request has just told of a Node is preferred to what the watch says, when nobody can tell which is newer.
const ECHO: Duration = Duration::from_secs(30);

/// What one user cluster's lane remembers of a VM between two looks.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// The Node as a request has told it, newer than the watch has.
    pub(super) fresh: Option<(NodeName, Fresh, Instant)>,
    pub(super) contest: Contest,
    pub(super) unconfirmed: Unconfirmed,
    pub(super) failures: Option<ExponentialBackoff>,
}

/// What all looks at one user cluster share.
#[derive(Debug)]
pub(super) struct Road {
    pub(super) cluster: ClusterName,
    pub(super) bucket: Mutex<Bucket>,
    /// Nodes to which a patch is on its way: two VMs may be joined to one.
    pub(super) busy: Mutex<BTreeSet<NodeName>>,
}

/// How one look ended.
#[derive(Debug)]
pub(super) struct Looked {
    pub(super) next: Next,
    pub(super) memory: Memory,
    /// Whether the cluster answered; none when it was not asked.
    pub(super) answered: Option<bool>,
}

/// While it lives, nobody else patches the Node.
pub(super) struct Claim<'a>(&'a Road, &'a NodeName);

impl<'a> Claim<'a> {
    pub(super) fn new(road: &'a Road, node: &'a NodeName) -> Option<Self> {
        let mut busy = road.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.insert(node.clone()).then_some(Self(road, node))
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut busy = self.0.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.remove(self.1);
    }
}

impl Memory {
    /// The Node as it is known best: what a request told stands until the watch has caught up with it.
    pub(super) fn overlay(&mut self, mut input: LabelInput, now: Instant) -> LabelInput {
        let Some((node, fresh, since)) = &self.fresh else {
            return input;
        };
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok());
        let known = number(input.resource_version.as_deref());
        let caught_up = known.zip(number(fresh.resource_version.as_deref()));
        let caught_up = caught_up.map_or(input.resource_version == fresh.resource_version, |(a, b)| a >= b);
        let same = *node == input.node && fresh.uid == input.node_uid;
        if caught_up || !same || now.duration_since(*since) > ECHO {
            self.fresh = None;
            return input;
        }
        input.labels.clone_from(&fresh.labels);
        input.owned.clone_from(&fresh.owned);
        input.resource_version.clone_from(&fresh.resource_version);
        input
    }

    pub(super) fn pause(&mut self, first: Duration, most: Duration) -> Duration {
        let pauses = self.failures.get_or_insert_with(|| backoff(first, most));
        pauses.next().unwrap_or(most)
    }
}
