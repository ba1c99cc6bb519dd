//! `GET /metrics/fleet`: series about all VMs, infra nodes and user clusters. Prometheus scrapes it
//! with `honor_labels`, because the labels `namespace` and `name` are those of the VM.
//! `docs/metrics.md` lists the families.

use std::sync::Arc;

use virtfleet_collector_core::{
    health::HealthCause,
    view::{AgentStatus, FleetSnapshot, VmState, VmView},
};
use virtfleet_wire::{
    exposition::{MetricType::Gauge, Page},
    finding::Severity,
};

use super::{error::ApiError, findings::severity_name, reply::Reply, router::ApiRequest};
use crate::labels::{Drift, drift_series};

/// Handles `GET /metrics/fleet`.
#[expect(clippy::unnecessary_wraps, reason = "all handlers have the same signature")]
pub(super) fn page(request: &ApiRequest) -> Result<Reply, ApiError> {
    let mut page = Page::new();
    write(&mut page, &request.snapshot);
    // Only the leader compares labels; series of a standby would contradict those of the leader.
    if request.snapshot.synced && request.api.write_access.standby().is_none() {
        label_drift(&mut page, request.visible_drift(request.api.labels.drift()));
    }
    Ok(Reply::page(&page))
}

/// Writes all families that do not depend on leadership. Until the inventory has been read
/// completely once, only `virtfleet_inventory_*`: an incomplete fleet would look like a small one.
fn write(page: &mut Page, fleet: &FleetSnapshot) {
    inventory(page, fleet);
    if fleet.synced {
        vms(page, fleet);
        hosts(page, fleet);
        clusters(page, fleet);
    }
}

fn inventory(page: &mut Page, fleet: &FleetSnapshot) {
    page.gauge(
        "virtfleet_inventory_synced",
        "Whether the inventory has been read completely at least once.",
        flag(fleet.synced),
    );
    page.gauge(
        "virtfleet_inventory_partial",
        "Whether VMs or infra nodes may be missing, because part of the inventory cannot be read at present.",
        flag(fleet.partial || !fleet.gaps.namespaces.is_empty()),
    );
    let mut family = page.family(
        "virtfleet_inventory_problems",
        "Findings about the inventory itself, by severity.",
        Gauge,
    );
    for severity in SEVERITIES {
        let found = fleet.findings.iter().filter(|one| one.severity == severity);
        family.sample(&[("severity", severity_name(severity))], found.count() as f64);
    }
}

fn label_drift(page: &mut Page, drift: Drift) {
    let mut family = page.family(
        "virtfleet_label_drift",
        "Nodes whose label differs from what a LabelPropagation requests, by user cluster, key and reason.",
        Gauge,
    );
    for (cluster, key, reason, count) in drift_series(drift) {
        let labels = [("cluster", cluster.as_str()), ("key", &key), ("reason", reason)];
        family.sample(&labels, count as f64);
    }
}

/// All severities. Each has a series, with the value 0 if there are no such findings.
const SEVERITIES: [Severity; 3] = [Severity::Info, Severity::Warning, Severity::Critical];

/// The labels that identify a VM.
fn vm_labels(vm: &VmView) -> [(&'static str, &str); 3] {
    [
        ("cluster", vm.cluster.as_ref().map_or("", |id| id.as_str())),
        ("namespace", vm.namespace.as_str()),
        ("name", vm.name.as_str()),
    ]
}

/// Writes a gauge with the labels of [`vm_labels`]. A VM for which `value` returns `None` has no
/// sample.
fn vm_gauge(
    page: &mut Page,
    fleet: &FleetSnapshot,
    name: &str,
    help: &str,
    value: impl Fn(&VmView) -> Option<f64>,
) {
    let mut family = page.family(name, help, Gauge);
    for vm in fleet.vms.values() {
        if let Some(value) = value(vm) {
            family.sample(&vm_labels(vm), value);
        }
    }
}

fn vms(page: &mut Page, fleet: &FleetSnapshot) {
    placement(page, fleet);
    let mut family = page.family(
        "virtfleet_vm_state",
        "State of the VM in the infra cluster, as the label state. Always 1.",
        Gauge,
    );
    for vm in fleet.vms.values() {
        let [cluster, namespace, name] = vm_labels(vm);
        family.sample(&[cluster, namespace, name, ("state", vm.state.as_str())], 1.0);
    }
    let mut family = page.family(
        "virtfleet_vm_health",
        "Verdict on the VM and its cause, as the labels verdict and cause; cause is empty for a healthy VM. Always 1.",
        Gauge,
    );
    for vm in fleet.vms.values() {
        let [cluster, namespace, name] = vm_labels(vm);
        let verdict = ("verdict", vm.health.verdict.label());
        let cause = ("cause", vm.health.cause.map_or("", HealthCause::as_str));
        family.sample(&[cluster, namespace, name, verdict, cause], 1.0);
    }
    vm_gauge(
        page,
        fleet,
        "virtfleet_vm_up",
        "Whether the VM's agent answered the last pull; 0 also for a VM that does not run (see virtfleet_vm_state).",
        |vm| (vm.agent.status != AgentStatus::Disabled).then(|| flag(vm.agent.status == AgentStatus::Up)),
    );
    vm_gauge(
        page,
        fleet,
        "virtfleet_vm_agent_last_seen_timestamp_seconds",
        "Time of the last answer of the VM's agent, in seconds since 1970; absent before the first one.",
        |vm| Some(vm.agent.last_seen_ms? as f64 / 1000.0),
    );
    vm_gauge(
        page,
        fleet,
        "virtfleet_vm_agent_pull_duration_seconds",
        "Duration of the last successful pull of the VM's agent, in seconds.",
        |vm| Some(vm.agent.took_ms? as f64 / 1000.0),
    );
    let mut family = page.family(
        "virtfleet_vm_findings",
        "Findings about the VM by severity, including those of its agent.",
        Gauge,
    );
    for vm in fleet.vms.values() {
        let [cluster, namespace, name] = vm_labels(vm);
        for severity in SEVERITIES {
            let labels = [cluster, namespace, name, ("severity", severity_name(severity))];
            family.sample(&labels, vm.severities.get(severity) as f64);
        }
    }
}

/// Exactly one series for every VM that has a VMI, so that queries can use it on the right side of
/// `group_left`.
fn placement(page: &mut Page, fleet: &FleetSnapshot) {
    let mut family = page.family(
        "virtfleet_vm_placement_info",
        "Placement of the VM: one series for every VM that has a VMI. Always 1.",
        Gauge,
    );
    // A VM that is not stopped has a VMI.
    let placed = |vm: &&Arc<VmView>| vm.state != VmState::Stopped;
    for vm in fleet.vms.values().filter(placed) {
        let [cluster, namespace, name] = vm_labels(vm);
        family.sample(
            &[
                cluster,
                namespace,
                name,
                ("uid", vm.uid.as_ref().map_or("", |id| id.as_str())),
                ("infra_node", vm.infra_node.as_ref().map_or("", |id| id.as_str())),
                ("user_node", vm.user_node.as_ref().map_or("", |id| id.as_str())),
                ("region", vm.region.as_deref().unwrap_or_default()),
                ("zone", vm.zone.as_deref().unwrap_or_default()),
            ],
            1.0,
        );
    }
}

fn hosts(page: &mut Page, fleet: &FleetSnapshot) {
    let mut family = page.family(
        "virtfleet_host_info",
        "Infra node; the label known is false if the inventory lacks the node and only a VMI names it. Always 1.",
        Gauge,
    );
    for host in &fleet.hosts {
        let labels = [
            ("infra_node", host.name.as_str()),
            ("region", host.region.as_deref().unwrap_or_default()),
            ("zone", host.zone.as_deref().unwrap_or_default()),
            ("known", if host.known { "true" } else { "false" }),
        ];
        family.sample(&labels, 1.0);
    }
    let mut family = page.family(
        "virtfleet_host_ready",
        "Whether the infra node is ready; absent if unknown.",
        Gauge,
    );
    for host in &fleet.hosts {
        if let Some(ready) = host.ready {
            family.sample(&[("infra_node", host.name.as_str())], flag(ready));
        }
    }
    let mut family = page.family("virtfleet_host_vms", "VMs on the infra node.", Gauge);
    for host in &fleet.hosts {
        let labels = [
            ("infra_node", host.name.as_str()),
            ("region", host.region.as_deref().unwrap_or_default()),
            ("zone", host.zone.as_deref().unwrap_or_default()),
        ];
        family.sample(&labels, host.vms as f64);
    }
}

/// Writes the families about user clusters. Omits clusters that only labels of VMs name, without a
/// `UserCluster`: the families about VMs have `cluster=""` for their VMs, and sums must be equal.
fn clusters(page: &mut Page, fleet: &FleetSnapshot) {
    let known = || fleet.clusters.iter().filter(|cluster| cluster.known);
    let mut family = page.family("virtfleet_cluster_vms", "VMs of the user cluster.", Gauge);
    for cluster in known() {
        family.sample(&[("cluster", cluster.name.as_str())], cluster.vms as f64);
    }
    let mut family = page.family("virtfleet_cluster_nodes", "Nodes of the user cluster.", Gauge);
    for cluster in known() {
        family.sample(&[("cluster", cluster.name.as_str())], cluster.nodes as f64);
    }
    let mut family = page.family(
        "virtfleet_cluster_nodes_without_vm",
        "Nodes of the user cluster without a known VM.",
        Gauge,
    );
    for cluster in known() {
        family.sample(
            &[("cluster", cluster.name.as_str())],
            cluster.nodes_without_vm as f64,
        );
    }
    let mut family = page.family(
        "virtfleet_cluster_partial",
        "Whether Nodes of the user cluster may be missing, because part of it cannot be read at present.",
        Gauge,
    );
    for cluster in known() {
        family.sample(&[("cluster", cluster.name.as_str())], flag(cluster.partial));
    }
}

/// The value of a boolean gauge: 1 for true, 0 for false.
fn flag(value: bool) -> f64 {
    f64::from(u8::from(value))
}

#[cfg(test)]
#[path = "fleet_page_tests.rs"]
mod tests;
