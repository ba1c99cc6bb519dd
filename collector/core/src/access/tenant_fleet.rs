//! A fleet as a tenant sees it.

use std::{collections::BTreeMap, sync::Arc};

use virtfleet_wire::{finding::Finding, ids::VmKey};

use super::{VisibleFleet, clusters, findings, hosts, story};
use crate::{
    derive::findings_key,
    facts::Selector,
    health::HealthConditionView,
    labels::plan::LabelInput,
    view::{FleetSnapshot, Gaps, SeverityCounts, VmDetail, VmView},
};

/// The visible part of a fleet, with counts and totals of that part alone. `findings_of` returns
/// all findings about a VM.
pub fn tenant_snapshot(
    fleet: &VisibleFleet<'_>,
    findings_of: &dyn Fn(&VmKey) -> Vec<Finding>,
) -> FleetSnapshot {
    let whole = fleet.whole;
    let visible = whole.vms.iter().filter(|(_, vm)| fleet.scope.has_vm(vm));
    let vms: BTreeMap<_, _> = visible
        .map(|(key, vm)| (key.clone(), tenant_vm(fleet, vm, || findings_of(key))))
        .collect();
    let gaps = Gaps {
        clusters: whole
            .gaps
            .clusters
            .iter()
            .filter(|name| fleet.has_cluster(name))
            .cloned()
            .collect(),
        namespaces: whole
            .gaps
            .namespaces
            .iter()
            .filter(|name| fleet.has_namespace(name))
            .cloned()
            .collect(),
    };
    FleetSnapshot {
        revision: whole.revision,
        partial: whole.partial,
        gaps,
        synced: whole.synced,
        hosts: hosts::of_vms(whole, vms.values().map(AsRef::as_ref)),
        clusters: clusters::of_vms(fleet, vms.values().map(AsRef::as_ref)),
        findings: findings::about_inventory(fleet),
        vms,
    }
}

/// A visible VM, with the number of findings that are left.
fn tenant_vm(
    fleet: &VisibleFleet<'_>,
    vm: &Arc<VmView>,
    findings_of: impl FnOnce() -> Vec<Finding>,
) -> Arc<VmView> {
    if vm.findings == 0 && vm.agent.failure.is_none() && vm.health.tenant_message.is_none() {
        return Arc::clone(vm);
    }
    let mut view = VmView::clone(vm);
    view.agent.failure = view.agent.failure.map(findings::tenant_failure);
    hide_neighbours(fleet, &mut view.health.message, &mut view.health.tenant_message);
    if vm.findings > 0 {
        let left = findings::tenant_findings(fleet, vm, findings_of());
        view.findings = left.len();
        view.severities = SeverityCounts::of(left.iter());
        view.findings_key = findings_key(left.iter());
    }
    Arc::new(view)
}

/// All details of a VM; none for a hidden one.
pub fn tenant_detail(fleet: &VisibleFleet<'_>, mut detail: VmDetail) -> Option<VmDetail> {
    if !fleet.scope.has_vm(&detail.vm) {
        return None;
    }
    detail.findings_list = findings::tenant_findings(fleet, &detail.vm, detail.findings_list);
    detail.vm.findings = detail.findings_list.len();
    detail.vm.severities = SeverityCounts::of(detail.findings_list.iter());
    detail.vm.agent.failure = detail.vm.agent.failure.map(findings::tenant_failure);
    if !fleet.scope.is_all() {
        detail.timeline = story::tenant_timeline(detail.timeline);
        detail.conditions.retain(HealthConditionView::is_for_tenants);
    }
    let health = &mut detail.vm.health;
    hide_neighbours(fleet, &mut health.message, &mut health.tenant_message);
    for one in &mut detail.conditions {
        hide_neighbours(fleet, &mut one.message, &mut one.tenant_message);
    }
    Some(detail)
}

/// Uses the message for tenants, if there is another: neighbours may be VMs of others.
fn hide_neighbours(fleet: &VisibleFleet<'_>, message: &mut String, tenant: &mut Option<Box<str>>) {
    if let Some(tenant) = tenant.take()
        && !fleet.scope.is_all()
    {
        *message = tenant.into();
    }
}

/// The input of a label plan; none for a hidden VM. The selectors of policies are emptied: they may
/// name the labels of others' user clusters, and the policies of an input are those that select it.
pub fn tenant_label_input(fleet: &VisibleFleet<'_>, mut input: LabelInput) -> Option<LabelInput> {
    if !fleet.has_vm(&input.vm) {
        return None;
    }
    if !fleet.scope.is_all() {
        for policy in &mut input.policies {
            policy.clusters = Selector::default();
        }
    }
    Some(input)
}
