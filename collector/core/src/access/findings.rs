//! Findings and failures without what they say about VMs and user clusters that the caller may not
//! see.

use virtfleet_wire::{
    finding::Finding,
    ids::{ClusterName, Namespace, VmKey},
};

use super::VisibleFleet;
use crate::{
    findings::{AGENT_WRONG_VM, GUEST_PREFIX, TENANT_LABEL_UNMATCHED},
    join::MORE_VMS,
    pending,
    pull_result::{Failure, FailureClass},
    view::VmView,
};

/// Evidence that names other VMs, as `namespace/name, …`.
const OTHERS: &str = "others";
/// Message about a certificate of another VM, which is not named.
const OTHER_CERTIFICATE: &str = "the certificate names another VM or an earlier incarnation of this one";

/// The findings about a visible VM, sorted as in the whole fleet.
pub fn tenant_findings(fleet: &VisibleFleet<'_>, vm: &VmView, found: Vec<Finding>) -> Vec<Finding> {
    let mut found: Vec<Finding> = found
        .into_iter()
        .filter_map(|finding| tenant_finding(fleet, vm, finding))
        .collect();
    // A replaced finding may have another severity. The guest's findings stay last.
    let is_guest = |finding: &Finding| finding.id.starts_with(GUEST_PREFIX);
    let own = found.iter().position(is_guest).unwrap_or(found.len());
    found[..own].sort_by(|a, b| b.severity.cmp(&a.severity).then_with(|| a.id.cmp(&b.id)));
    found
}

/// A finding about a visible VM. None if it is only about hidden VMs: then the answer is the same
/// as without them, and nothing can be learnt about them by imitating one of their values.
pub fn tenant_finding(fleet: &VisibleFleet<'_>, vm: &VmView, finding: Finding) -> Option<Finding> {
    if fleet.scope.is_all() || finding.id.starts_with(GUEST_PREFIX) {
        return Some(finding);
    }
    if let Some(others) = finding.evidence.get(OTHERS).cloned() {
        return with_visible_others(fleet, finding, &others);
    }
    match finding.id.as_str() {
        AGENT_WRONG_VM => Some(without_other_identity(finding)),
        TENANT_LABEL_UNMATCHED => Some(with_visible_cluster(fleet, vm, finding)),
        _ => Some(finding),
    }
}

/// A failed pull, without the identity of another VM.
pub fn tenant_failure(failure: Failure) -> Failure {
    match failure.class {
        FailureClass::WrongVm => Failure::new(FailureClass::WrongVm, OTHER_CERTIFICATE),
        _ => failure,
    }
}

/// The findings about the inventory itself that concern a visible namespace or user cluster.
pub(super) fn about_inventory(fleet: &VisibleFleet<'_>) -> Vec<Finding> {
    let concerns = |finding: &&Finding| {
        let named = |name: &str| finding.evidence.get(name).map(String::as_str);
        let cluster = named("cluster").and_then(|name| name.parse::<ClusterName>().ok());
        let namespace = named("namespace").and_then(|name| name.parse::<Namespace>().ok());
        match (cluster, namespace) {
            (Some(cluster), _) => fleet.has_cluster(&cluster),
            (None, Some(namespace)) => fleet.has_namespace(&namespace),
            (None, None) => false,
        }
    };
    fleet.whole.findings.iter().filter(concerns).cloned().collect()
}

fn with_visible_others(fleet: &VisibleFleet<'_>, mut finding: Finding, others: &str) -> Option<Finding> {
    let (names, more) = match others.strip_suffix(MORE_VMS) {
        Some(names) => (names, true),
        None => (others, false),
    };
    let all: Vec<&str> = names.split(", ").collect();
    let is_visible = |name: &&str| parse_key(name).is_some_and(|key| fleet.has_vm(&key));
    let visible: Vec<&str> = all.iter().copied().filter(is_visible).collect();
    if visible.is_empty() {
        return None;
    }
    if more || visible.len() < all.len() {
        let visible = visible.join(", ");
        finding.message = finding.message.replacen(others, &visible, 1);
        finding.evidence.insert(OTHERS.to_owned(), visible);
    }
    Some(finding)
}

fn parse_key(text: &str) -> Option<VmKey> {
    let (namespace, name) = text.split_once('/')?;
    Some(VmKey {
        namespace: namespace.parse().ok()?,
        name: name.parse().ok()?,
    })
}

fn without_other_identity(mut finding: Finding) -> Finding {
    finding.message = format!(
        "another agent answers for {}: {OTHER_CERTIFICATE}",
        finding.subject.name
    );
    finding
        .evidence
        .insert("error".to_owned(), OTHER_CERTIFICATE.to_owned());
    finding
}

/// The same finding as if a hidden `UserCluster` did not exist.
fn with_visible_cluster(fleet: &VisibleFleet<'_>, vm: &VmView, finding: Finding) -> Finding {
    let Some(label) = vm.cluster_label.as_ref() else {
        return finding;
    };
    if fleet.has_cluster(&label.cluster) {
        return finding;
    }
    let key = VmKey {
        namespace: vm.namespace.clone(),
        name: vm.name.clone(),
    };
    Finding {
        since: finding.since,
        ..pending::unknown_cluster(&key, label)
    }
}
