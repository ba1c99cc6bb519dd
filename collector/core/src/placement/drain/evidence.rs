//! What a drain depends on and what only the API servers know: the volumes of the VMs, and the pods
//! that run on their Nodes. Read when a drain is requested, never kept.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::ids::{ClusterName, VmKey};

use crate::{facts::InfraNode, scheduling::NodeTerm};

/// What was read for a drain. The default: nothing was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DrainEvidence {
    /// The volumes of each VM on the infra node.
    pub volumes: BTreeMap<VmKey, Vec<VmVolume>>,
    /// All volumes of all VMs on the infra node were read.
    pub knows_volumes: bool,
    /// The pods on the Node of each VM that a drain of that Node evicts.
    pub pods: BTreeMap<VmKey, Vec<NodePod>>,
    /// User clusters whose pods and PodDisruptionBudgets were read.
    pub clusters: BTreeSet<ClusterName>,
    /// What could not be read, why, and how to change that.
    pub gaps: Vec<String>,
}

/// A volume of a VM, in the infra cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VmVolume {
    /// Its PersistentVolumeClaim.
    pub claim: String,
    /// Phase of the claim: `Pending`, `Bound` or `Lost`; none: there is no such claim.
    pub phase: Option<String>,
    /// Storage class of the claim.
    pub storage_class: Option<String>,
    /// Access modes of the claim.
    pub access_modes: Vec<String>,
    /// The PersistentVolume to which it is bound.
    pub volume: Option<String>,
    /// Infra nodes that can use the volume, e.g. `topology.kubernetes.io/zone in (a)`; none: all.
    pub bound_to: Option<String>,
    /// `spec.nodeAffinity.required` of the volume: one term must match; none: all infra nodes do.
    #[serde(skip)]
    pub terms: Option<Box<[NodeTerm]>>,
}

impl VmVolume {
    /// Whether an infra node can use it.
    pub fn reaches(&self, host: &InfraNode) -> bool {
        let matches = |terms: &[NodeTerm]| terms.iter().any(|term| term.matches(host.traits()));
        self.terms.as_deref().is_none_or(matches)
    }
}

/// A pod on the Node of a VM, in the user cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// No controller creates it again.
    pub unmanaged: bool,
    /// PersistentVolumeClaims that it uses.
    pub claims: Vec<String>,
    /// PodDisruptionBudgets that select it.
    pub budgets: Vec<String>,
    /// Why it cannot be evicted now; none: it can.
    pub refused: Option<String>,
}

impl DrainEvidence {
    pub(super) fn volumes_of(&self, vm: &VmKey) -> &[VmVolume] {
        self.volumes.get(vm).map_or(&[], Vec::as_slice)
    }

    /// The pods of a VM, those that cannot be evicted first, then those with volumes.
    pub(super) fn pods_of(&self, vm: &VmKey) -> Vec<NodePod> {
        let mut pods = self.pods.get(vm).cloned().unwrap_or_default();
        pods.sort_by(|a, b| {
            let rank = |pod: &NodePod| (pod.refused.is_none(), pod.claims.is_empty(), !pod.unmanaged);
            (rank(a), &a.namespace, &a.name).cmp(&(rank(b), &b.namespace, &b.name))
        });
        pods
    }
}
