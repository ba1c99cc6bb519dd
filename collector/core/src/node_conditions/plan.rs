//! Compares the conditions of a Node with those that are requested.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use virtfleet_wire::ids::{ClusterName, NodeName, Uid, VmKey};

use super::kind::{NODE_CONDITION_PREFIX, NodeConditionKind};
use crate::{
    findings::escaped,
    health::{HealthCause, HealthConditionStatus, HealthConditionView},
    reported::{ReportedCondition, ReportedConditions, ReportedStatus},
};

/// Maximum bytes of the message of a condition on a Node.
pub const MAX_NODE_MESSAGE_BYTES: usize = 250;

/// Input of the plan for one VM's Node; see
/// [`FleetIndex::node_condition_input`](crate::index::FleetIndex::node_condition_input).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeConditionInput {
    pub vm: VmKey,
    pub cluster: ClusterName,
    /// Conditions that the `UserCluster` requests; none while it is suspended, and for a Node that
    /// may be another machine.
    pub requested: BTreeSet<NodeConditionKind>,
    /// The Node, which the guest cannot choose.
    pub node: NodeName,
    pub node_uid: Option<Uid>,
    /// Its `metadata.resourceVersion`; none in a manifest folder.
    pub resource_version: Option<String>,
    pub present: ReportedConditions,
    pub health: Vec<HealthConditionView>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedCondition {
    /// Its type, with the prefix.
    pub kind: String,
    pub status: HealthConditionStatus,
    pub reason: String,
    /// Its message, bounded and escaped.
    pub message: String,
    /// The status differs from that of the Node: `lastTransitionTime` is set.
    pub is_transition: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeConditionPatch {
    /// Conditions to add or change.
    pub set: Vec<PlannedCondition>,
    pub remove: Vec<String>,
}

impl NodeConditionPatch {
    /// The strategic merge patch for the Node's `status` subresource, with UID and
    /// `resourceVersion` as preconditions. `now` is RFC 3339.
    ///
    /// The API server merges conditions by type, so it leaves the others as they are. It keeps
    /// `lastTransitionTime` of a condition whose entry in the patch has none. A JSON merge patch
    /// would replace the list, and server-side apply would fail on dual-stack Nodes (decision 7).
    pub fn to_strategic_patch(&self, resource_version: &str, uid: &str, now: &str) -> Value {
        let set = self.set.iter().map(|one| {
            let mut entry = json!({
                "type": one.kind,
                "status": one.status.as_str(),
                "reason": one.reason,
                "message": one.message,
                "lastHeartbeatTime": now,
            });
            if one.is_transition {
                entry["lastTransitionTime"] = now.into();
            }
            entry
        });
        let remove = self.remove.iter();
        let remove = remove.map(|kind| json!({ "$patch": "delete", "type": kind }));
        json!({
            "metadata": { "resourceVersion": resource_version, "uid": uid },
            "status": { "conditions": set.chain(remove).collect::<Vec<_>>() },
        })
    }
}

/// Plans the conditions of one Node; none if nothing changes.
///
/// - A condition is set if its status or reason differs from the Node's, or its message, unless
///   that has numbers that change with each report.
/// - A condition that the collector has not decided yet, e.g. after its start, is not touched.
/// - Conditions with the prefix that are not requested are removed.
pub fn plan_conditions(input: &NodeConditionInput) -> Option<NodeConditionPatch> {
    let mut patch = NodeConditionPatch::default();
    let mut wanted = BTreeSet::new();
    for kind in &input.requested {
        let node_type = kind.node_type();
        let mut health = input.health.iter();
        let health = health.find(|one| one.kind == kind.as_str());
        let present = input.present.get(&node_type);
        patch
            .set
            .extend(health.and_then(|health| planned(&node_type, health, present)));
        wanted.insert(node_type);
    }
    let present = input.present.iter().map(|one| &*one.kind);
    let ours = present.filter(|kind| kind.starts_with(NODE_CONDITION_PREFIX));
    let surplus: BTreeSet<&str> = ours.filter(|kind| !wanted.contains(*kind)).collect();
    patch.remove.extend(surplus.into_iter().map(str::to_owned));
    (!patch.set.is_empty() || !patch.remove.is_empty()).then_some(patch)
}

fn planned(
    node_type: &str,
    health: &HealthConditionView,
    present: Option<&ReportedCondition>,
) -> Option<PlannedCondition> {
    if health.is_undecided {
        return None;
    }
    let message = message(health);
    let is_transition = present.is_none_or(|present| !is_status(present.status, health.status));
    let has_reason = present.is_some_and(|present| present.reason.as_deref() == Some(&*health.reason));
    let has_message =
        present.is_some_and(|present| present.message.as_deref().unwrap_or_default() == message);
    if !is_transition && has_reason && (has_message || health.is_measured) {
        return None;
    }
    Some(PlannedCondition {
        kind: node_type.to_owned(),
        status: health.status,
        reason: health.reason.clone(),
        message,
        is_transition,
    })
}

fn is_status(present: ReportedStatus, planned: HealthConditionStatus) -> bool {
    matches!(
        (present, planned),
        (ReportedStatus::True, HealthConditionStatus::True)
            | (ReportedStatus::False, HealthConditionStatus::False)
            | (ReportedStatus::Unknown, HealthConditionStatus::Unknown)
    )
}

/// The message for the tenant: what the guest itself says. Texts about the infra cluster may name
/// its objects, so they are replaced.
fn message(health: &HealthConditionView) -> String {
    match health.cause {
        None | Some(HealthCause::Guest | HealthCause::Agent) => {
            escaped(&health.message, MAX_NODE_MESSAGE_BYTES)
        }
        Some(cause) => format!(
            "the cause is outside the guest ({}); the admin of the infra cluster sees it in GuestHealth",
            cause.as_str()
        ),
    }
}
