//! One Node: what is wanted against what is there, key by key, and the patch that follows.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use virtfleet_wire::ids::{ClusterName, NodeName, Uid, VmKey};

use super::{
    evidence::Evidence,
    merge::{Merged, merge},
    owned::{self, ANNOTATION, Owned},
    policy::{LabelPolicy, Mode},
    safety,
    steps::{self, LabelGroup, NodeContext},
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
    /// The infra node on which the VM stands (`vmi.status.nodeName`); none when it is not scheduled or the inventory does not
    /// have it: then nothing changes.
    pub host: Option<InfraNode>,
    /// Keys that the infra node has lost or changed so recently that the Node keeps its value (`labels.confirmRemoval`,
    /// `labels.confirmChange`).
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unconfirmed: BTreeSet<String>,
    /// Labels of the infra nodes on which it has run before, as they are now.
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
    /// The `LabelPropagation` that asks for it, several joined by `, `; none when it is withdrawn.
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
    /// The infra node is not known, or the VM is not scheduled: nothing changes.
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

impl NodePatch {
    /// The JSON merge patch (RFC 7396). With `resource_version` and `uid` the API server refuses it (409) when the Node has
    /// changed since it was read, or is another Node of that name by now.
    ///
    /// It names metadata only. Server-side apply would send the whole Node through the merge by keys, which fails on dual-stack
    /// Nodes, whose addresses have one key twice (CAPI #8417, kubernetes #121896).
    pub fn to_merge_patch(&self, resource_version: Option<&str>, uid: Option<&str>) -> Value {
        let mut metadata = Map::new();
        let preconditions = [("resourceVersion", resource_version), ("uid", uid)];
        for (field, value) in preconditions {
            metadata.extend(value.map(|value| (field.to_owned(), Value::from(value))));
        }
        if !self.labels.is_empty() {
            metadata.insert("labels".into(), json!(self.labels));
        }
        metadata.insert("annotations".into(), json!({ ANNOTATION: self.owned }));
        json!({ "metadata": metadata })
    }
}

/// See the module. With `evidence` left out, a key that follows only if it is safe is reported as
/// [`Reason::SafetyUnknown`] and [`NodePlan::needs_evidence`] is set, unless nothing would be sent anyway (a dry run, a
/// suspended cluster); the patch has the other keys.
///
/// The rules of each key stand in `decide`. Over all of them:
/// - While the placement is not known (decision 6) or the annotation cannot be read, nothing changes.
/// - A label is ours while it has the value that the annotation says. What is ours and not asked for is taken back; what is not
///   ours changes only under the takeover rule (decisions 7 and 8).
/// - A topology label and its beta name change together or not at all (cloud-node-controller rewrites the former from the
///   latter).
/// - All that changes goes in one patch, with the annotation that says so; a patch that would change nothing is none, also when
///   the VM or its host has another UID by now. So the fleet is silent while nothing changes.
pub fn plan(input: &LabelInput, evidence: Option<&Evidence>) -> NodePlan {
    let (owned, broken) = match owned::read(input.owned.as_deref()) {
        Ok(owned) => (owned, None),
        Err(message) => (Owned::new(), Some(message)),
    };
    let nowhere = Labels::new();
    let labels = input.host.as_ref().map_or(&nowhere, |host| &host.labels);
    let merged = merge(&input.policies, labels, owned.keys());
    let host = match (broken, &input.host) {
        (Some(message), _) => {
            let why = (Action::Report, Reason::AnnotationBroken, message.as_str());
            return frozen(input, &owned, &merged, why);
        }
        (None, None) => {
            let message = "where the VM runs is not known (the VMI has no node, or the inventory does not have that node), so \
                           nothing changes";
            return frozen(
                input,
                &owned,
                &merged,
                (Action::Keep, Reason::PlacementUnknown, message),
            );
        }
        (None, Some(host)) => host,
    };
    let context = NodeContext {
        input,
        host,
        owned: &owned,
    };
    let (mut real, mut dry) = (context.real(&merged), context.dry(&merged));
    let asked = safety::apply(&mut real, &mut dry, &input.labels, evidence);
    NodePlan {
        patch: patch(input, &owned, &real).filter(|_| !input.suspended),
        needs_evidence: asked && !input.suspended,
        decisions: decisions(real, dry, input.suspended),
    }
}

fn frozen(input: &LabelInput, owned: &Owned, merged: &Merged, why: (Action, Reason, &str)) -> NodePlan {
    NodePlan {
        decisions: steps::frozen(input, owned, merged, why),
        ..NodePlan::default()
    }
}

fn patch(input: &LabelInput, before: &Owned, real: &[LabelGroup]) -> Option<NodePatch> {
    let mut after = before.clone();
    let mut labels = BTreeMap::new();
    for step in real.iter().flatten() {
        let Some(outcome) = &step.outcome else {
            continue;
        };
        match outcome.entry.clone() {
            Some(entry) => after.insert(step.decision.key.clone(), entry),
            None => after.remove(&step.decision.key),
        };
        if outcome.changes() {
            labels.insert(step.decision.key.clone(), outcome.value.clone());
        }
    }
    let owned = if after == *before {
        input.owned.clone()
    } else {
        owned::text(&after)
    };
    (after != *before || !labels.is_empty()).then_some(NodePatch { labels, owned })
}

/// By key; where a dry run speaks of a key that is withdrawn, what is done comes first.
fn decisions(real: Vec<LabelGroup>, dry: Vec<LabelGroup>, suspended: bool) -> Vec<Decision> {
    let steps = real.into_iter().chain(dry).flatten();
    let mut decisions: Vec<_> = steps.map(|step| step.decided(suspended)).collect();
    decisions.sort_by(|a, b| (&a.key, a.dry_run).cmp(&(&b.key, b.dry_run)));
    decisions
}

#[cfg(test)]
mod pairs_and_safety;
#[cfg(test)]
mod random_history;
#[cfg(test)]
mod table;
#[cfg(test)]
mod tests;
