//! Status of each VM's labels, for the API, the metrics and GuestHealth.

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

/// The last plan for one VM's Node, and the result of sending it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelStatus {
    /// The user cluster of the Node.
    pub cluster: ClusterName,
    /// The Node.
    pub node: NodeName,
    /// The VM's infra node when it was planned.
    pub infra_node: Option<NodeName>,
    /// The decision for each key, and the patch that was not sent yet.
    pub plan: NodePlan,
    /// Time of the plan, RFC 3339.
    pub planned_at: String,
    /// Time of this process's last write to the Node, RFC 3339.
    pub written_at: Option<String>,
    /// Error of the last read or write; none when it succeeded.
    pub error: Option<String>,
    /// Keys that another writer keeps changing: not written for a while.
    pub contested: BTreeSet<String>,
    /// Keys that were contested, and did not have their values for a while since.
    #[serde(default)]
    pub contested_lately: BTreeSet<String>,
    /// Whether this process led when it planned. A standby does not read the objects that depend on
    /// a Node, so it does not know what is safe.
    pub by_leader: bool,
}

impl LabelStatus {
    /// Whether every key is as it should be, as far as a policy sets it; dry runs are not counted.
    pub fn in_sync(&self) -> bool {
        let differs = |action: Action| !matches!(action, Action::Keep);
        !self
            .plan
            .decisions
            .iter()
            .any(|one| differs(one.action) && !one.dry_run)
    }
}

/// Number of Nodes per cluster, key and reason on which the key does not have its desired value.
pub type Drift = BTreeMap<(ClusterName, String, Reason), u64>;

/// Counts of the Nodes that one policy applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PolicyTally {
    pub nodes: usize,
    /// Nodes on which every key of the policy has its desired value.
    pub in_sync: usize,
    /// Nodes where an object depends on a present value, or it is unknown whether one does.
    pub not_safe: usize,
}

/// Status of every VM's labels. Share it as `Arc<LabelStatusStore>`.
#[derive(Debug)]
pub struct LabelStatusStore {
    all: RwLock<BTreeMap<VmKey, Arc<LabelStatus>>>,
    version: watch::Sender<u64>,
}

impl Default for LabelStatusStore {
    fn default() -> Self {
        Self {
            all: RwLock::default(),
            version: watch::Sender::new(0),
        }
    }
}

impl LabelStatusStore {
    /// Status of one VM; none before the first plan, and while the VM has no Node.
    pub fn get(&self, key: &VmKey) -> Option<Arc<LabelStatus>> {
        self.read().get(key).cloned()
    }

    /// Status of all VMs.
    pub fn all(&self) -> BTreeMap<VmKey, Arc<LabelStatus>> {
        self.read().clone()
    }

    /// Hash of what GuestHealth shows of a VM's labels; none without a status.
    pub(crate) fn digest(&self, key: &VmKey) -> Option<u64> {
        let all = self.read();
        let status = all.get(key)?;
        let mut hasher = DefaultHasher::new();
        for one in &status.plan.decisions {
            let kept = one.action == Action::Keep;
            (&one.key, one.reason, kept, one.dry_run, &one.message).hash(&mut hasher);
        }
        (&status.error, &status.contested).hash(&mut hasher);
        Some(hasher.finish())
    }

    /// Counts keys that do not have their desired value, without dry runs. Empty on a standby, so
    /// that only the leader exports the metric.
    pub fn drift(&self) -> Drift {
        let mut drift = Drift::new();
        for status in self.read().values().filter(|status| status.by_leader) {
            for one in &status.plan.decisions {
                if let Some(reason) = status.drift_of(one) {
                    let key = (status.cluster.clone(), one.key.clone(), reason);
                    *drift.entry(key).or_default() += 1;
                }
            }
        }
        drift
    }

    /// Node counts by policy.
    pub fn tallies(&self) -> BTreeMap<String, PolicyTally> {
        let mut tallies = BTreeMap::<String, PolicyTally>::new();
        for status in self.read().values() {
            // By policy: whether all keys are in sync, and whether one is not safe.
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

    /// Conflicts between policies: names (joined by `, `) and message, each once, sorted.
    pub fn conflicts(&self) -> BTreeSet<(String, String)> {
        let all = self.read();
        let decisions = all.values().flat_map(|status| &status.plan.decisions);
        decisions
            .filter(|one| one.reason == Reason::Conflict)
            .filter_map(|one| Some((one.policy.clone()?, one.message.clone())))
            .collect()
    }

    /// A counter that grows with every change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Stores the status of a new plan; returns the previous one.
    pub(crate) fn put(&self, key: &VmKey, mut status: LabelStatus) -> Option<Arc<LabelStatus>> {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        let before = all.get(key).cloned();
        if status.written_at.is_none() {
            // Of the same Node only: a Node created again was never written to.
            let same = before.as_ref().filter(|old| old.node == status.node);
            status.written_at = same.and_then(|old| old.written_at.clone());
        }
        all.insert(key.clone(), Arc::new(status));
        drop(all);
        self.version.send_modify(|count| *count += 1);
        before
    }

    /// Stores the error of the last request, or none.
    pub(super) fn set_error(&self, key: &VmKey, error: Option<String>) {
        self.change(key, |status| status.error = error);
    }

    /// Stores that the Node was just written.
    pub(super) fn set_written(&self, key: &VmKey) {
        self.change(key, |status| {
            status.written_at = Some(now());
            status.error = None;
        });
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
        self.version.send_modify(|count| *count += 1);
    }

    pub(super) fn remove(&self, key: &VmKey) {
        let gone = self
            .all
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(key);
        if gone.is_some() {
            self.version.send_modify(|count| *count += 1);
        }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<VmKey, Arc<LabelStatus>>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn now() -> String {
    format!("{:.0}", Timestamp::now())
}
