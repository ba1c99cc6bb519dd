//! What became of each VM's labels, for those who ask: the API, the metrics, GuestHealth.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, PoisonError, RwLock},
};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use virtfleet_collector_core::labels::plan::{Action, NodePlan, Reason};
use virtfleet_wire::ids::{ClusterName, NodeName, VmKey};

/// The last plan for one VM's Node, and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelStatus {
    /// Whose Node it is.
    pub cluster: ClusterName,
    /// The Node.
    pub node: NodeName,
    /// The infra node that it was planned for.
    pub infra_node: Option<NodeName>,
    /// What is wanted, key by key, and the patch that is still to be sent.
    pub plan: NodePlan,
    /// When it was planned, RFC 3339.
    pub planned_at: String,
    /// When this process last wrote to the Node, RFC 3339.
    pub written_at: Option<String>,
    /// Why the last attempt to read or write failed; none when it did not.
    pub error: Option<String>,
    /// Keys that others keep changing: left alone for a while.
    pub contested: BTreeSet<String>,
    /// Whether it was planned while this process led. Who does not lead looks at nothing that depends on a Node, and so does not know
    /// what is safe.
    pub by_leader: bool,
}

impl LabelStatus {
    /// Whether every key is as it should be, as far as somebody asks for it.
    pub fn in_line(&self) -> bool {
        let off = |action: Action| !matches!(action, Action::Keep);
        !self
            .plan
            .decisions
            .iter()
            .any(|one| off(one.action) && !one.dry_run)
    }
}

/// How many Nodes have a key that is not as asked for.
pub type Drift = BTreeMap<(ClusterName, String, Reason), u64>;

/// Nodes about which one policy says something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// All of them.
    pub nodes: usize,
    /// Those on which every key that it asks for is as it asks.
    pub in_sync: usize,
    /// Those where something depends on a present value, or it is not known whether.
    pub not_safe: usize,
}

/// See the module. Share it as `Arc<LabelBook>`.
#[derive(Debug)]
pub struct LabelBook {
    all: RwLock<BTreeMap<VmKey, Arc<LabelStatus>>>,
    tell: watch::Sender<u64>,
}

impl Default for LabelBook {
    fn default() -> Self {
        Self {
            all: RwLock::default(),
            tell: watch::Sender::new(0),
        }
    }
}

impl LabelBook {
    /// One VM's; none before it was planned, and when it has no Node.
    pub fn get(&self, key: &VmKey) -> Option<Arc<LabelStatus>> {
        self.read().get(key).cloned()
    }

    /// Everything, by VM.
    pub fn all(&self) -> BTreeMap<VmKey, Arc<LabelStatus>> {
        self.read().clone()
    }

    /// A number that changes with what is said of a VM's labels; none when nothing is.
    pub(crate) fn digest(&self, key: &VmKey) -> Option<u64> {
        let all = self.read();
        let status = all.get(key)?;
        let mut hasher = DefaultHasher::new();
        for one in &status.plan.decisions {
            let kept = one.action == Action::Keep;
            (&one.key, one.reason, kept, one.dry_run, &one.message).hash(&mut hasher);
        }
        status.error.hash(&mut hasher);
        Some(hasher.finish())
    }

    /// Keys that are not as asked for, counted; dry runs are not. Of a process that does not lead there are none: two truths would
    /// stand in the metrics.
    pub fn drift(&self) -> Drift {
        let mut drift = Drift::new();
        for status in self.read().values().filter(|status| status.by_leader) {
            let off = status.plan.decisions.iter();
            for one in off.filter(|one| one.action != Action::Keep && !one.dry_run) {
                let key = (status.cluster.clone(), one.key.clone(), one.reason);
                *drift.entry(key).or_default() += 1;
            }
        }
        drift
    }

    /// By policy, how its Nodes stand.
    pub fn tallies(&self) -> BTreeMap<String, Tally> {
        let mut tallies = BTreeMap::<String, Tally>::new();
        for status in self.read().values() {
            // By policy: whether all is as asked, and whether something is not safe.
            let mut of_node = BTreeMap::<&str, (bool, bool)>::new();
            for one in &status.plan.decisions {
                for policy in one.policy.iter().flat_map(|names| names.split(", ")) {
                    let (in_sync, not_safe) = of_node.entry(policy).or_insert((true, false));
                    *in_sync &= one.action == Action::Keep;
                    *not_safe |= matches!(one.reason, Reason::Unsafe | Reason::SafetyUnknown);
                }
            }
            for (policy, (in_sync, not_safe)) in of_node {
                let tally = tallies.entry(policy.to_owned()).or_default();
                tally.nodes += 1;
                tally.in_sync += usize::from(in_sync);
                tally.not_safe += usize::from(not_safe);
            }
        }
        tallies
    }

    /// What policies conflict about: who (joined by `, `) and what, each once, in a fixed order.
    pub fn conflicts(&self) -> BTreeSet<(String, String)> {
        let all = self.read();
        let decisions = all.values().flat_map(|status| &status.plan.decisions);
        decisions
            .filter(|one| one.reason == Reason::Conflict)
            .filter_map(|one| Some((one.policy.clone()?, one.message.clone())))
            .collect()
    }

    /// Grows with every change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.tell.subscribe()
    }

    /// Writes down a plan; returns what stood there before.
    pub(crate) fn put(&self, key: &VmKey, mut status: LabelStatus) -> Option<Arc<LabelStatus>> {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        let before = all.get(key).cloned();
        if status.written_at.is_none() {
            // Of the same Node only: a successor was never written to.
            let same = before.as_ref().filter(|old| old.node == status.node);
            status.written_at = same.and_then(|old| old.written_at.clone());
        }
        all.insert(key.clone(), Arc::new(status));
        drop(all);
        self.tell.send_modify(|count| *count += 1);
        before
    }

    /// What came of an attempt to write.
    pub(super) fn set_error(&self, key: &VmKey, error: Option<String>) {
        self.change(key, |status| status.error = error);
    }

    /// The Node was just written to.
    pub(super) fn set_written(&self, key: &VmKey) {
        self.change(key, |status| status.written_at = Some(now()));
    }

    fn change(&self, key: &VmKey, change: impl FnOnce(&mut LabelStatus)) {
        if let Some(status) = self
            .all
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .get_mut(key)
        {
            change(Arc::make_mut(status));
        }
        self.tell.send_modify(|count| *count += 1);
    }

    pub(super) fn remove(&self, key: &VmKey) {
        let gone = self
            .all
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(key);
        if gone.is_some() {
            self.tell.send_modify(|count| *count += 1);
        }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<VmKey, Arc<LabelStatus>>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn now() -> String {
    format!("{:.0}", Timestamp::now())
}
