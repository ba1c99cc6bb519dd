//! Plans one Node: compares desired and actual labels key by key, and builds the patch.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use super::{
    action::Action,
    decision::Decision,
    input::{LabelInput, Reason},
};
use super::{
    evidence::Evidence,
    merge::{Merged, merge},
    owned::{self, ANNOTATION, Owned},
    safety,
    steps::{self, LabelGroup, NodeContext},
};
use crate::facts::Labels;

/// Plan for one Node.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePlan {
    /// One decision per key, sorted by key.
    pub decisions: Vec<Decision>,
    /// The patch to send; none if no label changes.
    pub patch: Option<NodePatch>,
    /// Whether a key may follow only if that is safe, and there was no evidence: plan again with
    /// [`Evidence`].
    pub needs_evidence: bool,
}

/// A change of one Node's metadata.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePatch {
    /// Label key → new value; none removes it.
    pub labels: BTreeMap<String, Option<String>>,
    /// The new text of the ownership annotation; none removes it.
    pub owned: Option<String>,
}

impl NodePatch {
    /// The JSON merge patch (RFC 7396). With `resource_version` and `uid` the API server rejects it
    /// (409) if the Node changed since it was read, or was replaced by another Node of that name.
    ///
    /// It contains metadata only. Server-side apply would merge the whole Node by list keys, which
    /// fails on dual-stack Nodes, whose addresses have one key twice (CAPI #8417, kubernetes
    /// #121896).
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

/// Plans the labels of one Node. Without `evidence`, a key that follows only if it is safe is
/// reported as [`Reason::SafetyUnknown`], and [`NodePlan::needs_evidence`] is set unless nothing
/// would be sent anyway (a dry run, a suspended cluster). The patch then has the other keys.
///
/// The rules of each key are in `decide`. Rules over all keys:
/// - While the placement is unknown (decision 6) or the annotation cannot be read, nothing changes.
/// - The collector owns a label while it has the value recorded in the annotation. An owned label
///   that no policy selects is reverted; other labels change only under the takeover rule
///   (decisions 7 and 8).
/// - A topology label and its beta name change together or not at all (cloud-node-controller
///   overwrites the former from the latter).
/// - All changes of a Node are one patch, including the annotation. There is no patch if no label
///   changes, even if the UID of the VMI or of its host changed: a steady fleet sends no requests.
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
            let message = "it is unknown where the VM runs (the VMI has no node, or the node is not in the inventory), so \
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
    let requested = safety::apply(&mut real, &mut dry, &input.labels, evidence);
    NodePlan {
        patch: patch(input, &owned, &real).filter(|_| !input.suspended),
        needs_evidence: requested && !input.suspended,
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

/// By key; if a dry run selects a withdrawn key, the decision with an action comes first.
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
