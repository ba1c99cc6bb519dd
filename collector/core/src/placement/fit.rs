//! Whether an infra node may run a VM, by its own properties.

use crate::{
    facts::InfraNode,
    scheduling::{Scheduling, Taint},
};

/// Set by KubeVirt: whether virt-handler of the node is alive.
const SCHEDULABLE_LABEL: &str = "kubevirt.io/schedulable";
/// Taint of a cordoned node.
const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";

/// The first required rule about nodes that `node` does not meet, for people; none if it meets all.
pub fn unmet_node_rules(rules: &Scheduling, node: &InfraNode) -> Option<String> {
    let unmet = rules
        .node_selector
        .iter()
        .find(|(key, value)| node.labels.get(key) != Some(value));
    if let Some((key, value)) = unmet {
        return Some(format!("its node selector {key}={value}"));
    }
    let terms = rules.required_nodes.as_ref()?;
    if terms.iter().any(|term| term.matches(node.traits())) {
        return None;
    }
    let first = terms.iter().find_map(|term| term.unmet(node.traits()));
    let rule = first.unwrap_or_else(|| "no term".to_owned());
    Some(match terms.len() {
        0 | 1 => format!("its required node affinity ({rule})"),
        terms => format!("any of {terms} terms of its required node affinity ({rule}, …)"),
    })
}

/// Why a node takes no other VM; none if it does.
pub(super) fn closed(node: &InfraNode) -> Option<&'static str> {
    if node.ready != Some(true) {
        return Some("not ready");
    }
    if node.unschedulable {
        return Some("cordoned");
    }
    (node.labels.get(SCHEDULABLE_LABEL) == Some("false")).then_some("without virt-handler")
}

/// A taint that keeps the VM away; none if it tolerates all.
pub(super) fn repelling<'a>(rules: &Scheduling, node: &'a InfraNode) -> Option<&'a Taint> {
    let hard = node.taints.iter().filter(|taint| taint.effect.is_hard());
    let mut hard = hard.filter(|taint| &*taint.key != UNSCHEDULABLE_TAINT);
    hard.find(|taint| !rules.tolerations.iter().any(|one| one.tolerates(taint)))
}
