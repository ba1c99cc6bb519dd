//! One Node: what is wanted against what is there, key by key, and the patch that follows.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::ids::{ClusterName, NodeName, Uid, VmKey};

use super::{
    evidence::Evidence,
    policy::{LabelPolicy, Mode},
};
use crate::facts::{InfraNode, Labels};

/// Everything that a plan for one VM's Node follows from; see [`crate::index::FleetIndex::label_input`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelInput {
    /// The VM.
    pub vm: VmKey,
    /// Its incarnation.
    pub vmi_uid: Option<Uid>,
    /// Whose it is.
    pub cluster: ClusterName,
    /// The labels of its `UserCluster`, by which policies select it.
    pub cluster_labels: Labels,
    /// Whether the `UserCluster` is suspended: planned and shown, never written.
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
    /// Its `metadata.resourceVersion`, when it comes from a live cluster.
    pub resource_version: Option<String>,
    /// The infra node on which the VM stands (`vmi.status.nodeName`); none when it stands nowhere or the inventory does not
    /// have it: then nothing changes.
    pub host: Option<InfraNode>,
    /// Labels of the infra nodes on which it has stood before, as they are now.
    pub stood_on: Vec<Labels>,
    /// The policies whose cluster selector matches, by name.
    pub policies: Vec<LabelPolicy>,
}

/// What is to be done to one Node, and why, key by key.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePlan {
    /// By key.
    pub decisions: Vec<Decision>,
    /// What is to be sent; none when all is as it should be.
    pub patch: Option<NodePatch>,
    /// A key would follow if it is safe, and nobody has looked: plan again with [`Evidence`].
    pub needs_evidence: bool,
}

/// What is to be done about one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// The key on the user cluster's Node.
    pub key: String,
    /// The key on the infra node.
    pub source: Option<String>,
    /// The `LabelPropagation` that asks for it; none when it is withdrawn.
    pub policy: Option<String>,
    /// How it follows.
    pub mode: Option<Mode>,
    /// What the Node has.
    pub current: Option<String>,
    /// What the infra node has.
    pub desired: Option<String>,
    /// What is done.
    pub action: Action,
    /// Why, in one word.
    pub reason: Reason,
    /// Why, for people: one line, with what to do when it is not as asked for.
    pub message: String,
    /// Only a policy with `dryRun` asks for it: shown, not sent.
    pub dry_run: bool,
}

/// What is done about a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// Nothing: it is as it should be.
    Keep,
    /// The desired value is written.
    Set,
    /// It is removed.
    Remove,
    /// The value that stood there before ours is written back.
    Restore,
    /// Nothing, and it differs: somebody should know.
    Report,
}

/// Why a key is treated as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Reason {
    /// It has the desired value.
    InLine,
    /// The Node had none.
    Missing,
    /// The infra node's value has changed, or the VM has moved.
    Moved,
    /// A value that others wrote is replaced under the takeover rule.
    TakenOver,
    /// We wrote it, somebody removed it, and it follows.
    Repaired,
    /// No policy asks for it any more.
    Withdrawn,
    /// The infra node has no such label any more.
    SourceGone,
    /// Mode `InitialOnly`: it has a value.
    Initial,
    /// Mode `ReportDrift`: it differs.
    Drift,
    /// Mode `FollowIfSafe`: something on the Node depends on the old value.
    Unsafe,
    /// Mode `FollowIfSafe`: whether it is safe is not known (yet).
    SafetyUnknown,
    /// Others wrote it, and the takeover rule does not allow to replace it.
    Foreign,
    /// The Node's kubelet imposes it at every start.
    KubeletImposes,
    /// Two policies ask for different things.
    Conflict,
    /// The key is protected.
    Protected,
    /// The value is not one that a label may have.
    InvalidValue,
    /// The infra node is not known, or the VM stands nowhere: nothing changes.
    PlacementUnknown,
    /// The ownership annotation cannot be read: nothing changes.
    AnnotationBroken,
    /// The `UserCluster` is suspended.
    Suspended,
}

impl Reason {
    /// As in JSON, metrics and Events.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InLine => "InLine",
            Self::Missing => "Missing",
            Self::Moved => "Moved",
            Self::TakenOver => "TakenOver",
            Self::Repaired => "Repaired",
            Self::Withdrawn => "Withdrawn",
            Self::SourceGone => "SourceGone",
            Self::Initial => "Initial",
            Self::Drift => "Drift",
            Self::Unsafe => "Unsafe",
            Self::SafetyUnknown => "SafetyUnknown",
            Self::Foreign => "Foreign",
            Self::KubeletImposes => "KubeletImposes",
            Self::Conflict => "Conflict",
            Self::Protected => "Protected",
            Self::InvalidValue => "InvalidValue",
            Self::PlacementUnknown => "PlacementUnknown",
            Self::AnnotationBroken => "AnnotationBroken",
            Self::Suspended => "Suspended",
        }
    }
}

/// A change of one Node's metadata, and of nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePatch {
    /// Label key → new value; none removes it.
    pub labels: BTreeMap<String, Option<String>>,
    /// The new text of the ownership annotation; none removes it.
    pub owned: Option<String>,
}

/// See the module. With `evidence` left out, a key that follows only if it is safe is reported as
/// [`Reason::SafetyUnknown`] and [`NodePlan::needs_evidence`] is set.
pub fn plan(_input: &LabelInput, _evidence: Option<&Evidence>) -> NodePlan {
    NodePlan::default()
}
