//! What the planner of a Node's labels gets, and why it decides.

use super::policy::LabelPolicy;
use crate::facts::{InfraNode, Labels};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use virtfleet_wire::ids::{ClusterName, NodeName, Uid, VmKey};

/// Input of the plan for one VM's Node; see [`crate::index::FleetIndex::label_input`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelInput {
    /// The VM.
    pub vm: VmKey,
    /// UID of its VMI.
    pub vmi_uid: Option<Uid>,
    /// Its user cluster.
    pub cluster: ClusterName,
    /// The labels of its `UserCluster`, which policies select by.
    pub cluster_labels: Labels,
    /// Whether the `UserCluster` is suspended: labels are planned and shown, never written.
    pub suspended: bool,
    /// The user cluster's Node.
    pub node: NodeName,
    /// Its UID.
    pub node_uid: Option<Uid>,
    /// Its labels.
    pub labels: Labels,
    /// The text of its ownership annotation ([`super::owned::ANNOTATION`]).
    pub owned: Option<String>,
    /// Keys of its labels that its kubelet wrote last (`metadata.managedFields`).
    pub kubelet_labels: BTreeSet<String>,
    /// Its `metadata.resourceVersion`; none in a manifest folder.
    pub resource_version: Option<String>,
    /// The infra node on which the VM runs (`vmi.status.nodeName`). None if the VM is not scheduled
    /// or the node is not in the inventory: then nothing changes.
    pub host: Option<InfraNode>,
    /// Keys that the infra node lost or changed so recently that the change is not confirmed: the
    /// Node keeps its value (`labels.confirmRemoval`, `labels.confirmChange`).
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unconfirmed: BTreeSet<String>,
    /// Current labels of the infra nodes on which the VM ran before.
    pub stood_on: Vec<Labels>,
    /// The policies whose cluster selector matches, by name.
    pub policies: Vec<LabelPolicy>,
}

/// Reason of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
#[derive(strum::IntoStaticStr, strum::VariantArray)]
pub enum Reason {
    /// It has the desired value.
    InLine,
    /// The Node does not have the label.
    Missing,
    /// The infra node's value changed, or the VM moved.
    Moved,
    /// The takeover rule allows to replace the value of another writer.
    TakenOver,
    /// The collector wrote it, another writer removed it, and the label follows.
    Repaired,
    /// No policy selects it any more.
    Withdrawn,
    /// The infra node has no such label any more.
    SourceGone,
    /// Mode `InitialOnly`: the label has a value.
    Initial,
    /// Mode `ReportDrift`: the value differs.
    Drift,
    /// Mode `FollowIfSafe`: an object on the Node depends on the old value.
    Unsafe,
    /// Mode `FollowIfSafe`: the safety is unknown, because the evidence was not read or could not
    /// be read.
    SafetyUnknown,
    /// Another writer set it, and the takeover rule does not allow to replace the value.
    Foreign,
    /// The Node's kubelet sets it at every start.
    KubeletImposes,
    /// Policies contradict each other.
    Conflict,
    /// The key is protected.
    Protected,
    /// The value is not a valid label value.
    InvalidValue,
    /// The infra node is unknown, or the VM is not scheduled: nothing changes.
    PlacementUnknown,
    /// The ownership annotation cannot be read: nothing changes.
    AnnotationBroken,
    /// The `UserCluster` is suspended.
    Suspended,
    /// Another writer keeps changing it, so it is not written for a while. No plan has this reason:
    /// the label writer knows it.
    Contested,
    /// It is to be written, and cannot be: a request failed, or the settings forbid it. No plan has
    /// this reason, either.
    NotWritten,
}

impl Reason {
    /// The name in JSON, metrics and Events.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
