//! `GET /metrics/fleet`: what the collector knows of every VM, host and cluster, as series. Prometheus scrapes it with
//! `honor_labels`, because `namespace` and `name` here are those of the VM. Families are listed in `docs/metrics.md`.

use std::sync::Arc;

use virtfleet_collector_core::view::{AgentStatus, FleetSnapshot, VmState, VmView};
use virtfleet_wire::{
    exposition::{MetricType::Gauge, Page},
    finding::Severity,
};

use super::{error::ApiError, findings::severity_word, reply::Reply, router::Ask};
use crate::labels::{Drift, drift_series};

#[expect(clippy::unnecessary_wraps, reason = "every handler has one shape")]
pub(super) fn page(ask: &Ask) -> Result<Reply, ApiError> {
    let mut page = Page::new();
    write(&mut page, &ask.snapshot);
    // Only the leader knows; a standby's zeros would be another truth.
    if ask.snapshot.synced && ask.api.writing.standby().is_none() {
        labels(&mut page, ask.api.labels.drift());
    }
    Ok(Reply::page(&page))
}

/// Until the inventory has been read, half a fleet would look like a small one: then only `virtfleet_inventory_*` is said.
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
        "Whether VMs or infra nodes may be missing, because part of the inventory cannot be read now.",
        flag(fleet.partial || !fleet.gaps.namespaces.is_empty()),
    );
    let mut family = page.family(
        "virtfleet_inventory_problems",
        "Findings about the inventory itself, by severity.",
        Gauge,
    );
    for severity in SEVERITIES {
        let found = fleet.findings.iter().filter(|one| one.severity == severity);
        family.sample(&[("severity", severity_word(severity))], found.count() as f64);
    }
}

fn labels(page: &mut Page, drift: Drift) {
    let mut family = page.family(
        "virtfleet_label_drift",
        "Nodes whose label is not as a LabelPropagation asks for, by user cluster, key and reason.",
        Gauge,
    );
    for (cluster, key, reason, count) in drift_series(drift) {
        let labels = [("cluster", cluster.as_str()), ("key", &key), ("reason", reason)];
        family.sample(&labels, count as f64);
    }
}

/// Every severity, so that each has a series that is 0 while there is no finding.
const SEVERITIES: [Severity; 3] = [Severity::Info, Severity::Warning, Severity::Critical];

/// The labels that name a VM.
fn named(vm: &VmView) -> [(&'static str, &str); 3] {
    [
        ("cluster", vm.cluster.as_ref().map_or("", |id| id.as_str())),
        ("namespace", vm.namespace.as_str()),
        ("name", vm.name.as_str()),
    ]
}

/// A family with at most one sample for every VM, without further labels.
fn each_vm(
    page: &mut Page,
    fleet: &FleetSnapshot,
    name: &str,
    help: &str,
    value: impl Fn(&VmView) -> Option<f64>,
) {
    let mut family = page.family(name, help, Gauge);
    for vm in fleet.vms.values() {
        if let Some(value) = value(vm) {
            family.sample(&named(vm), value);
        }
    }
}

fn vms(page: &mut Page, fleet: &FleetSnapshot) {
    placement(page, fleet);
    let mut family = page.family(
        "virtfleet_vm_state",
        "The state that a VM is in now, as the infra cluster sees it; 1.",
        Gauge,
    );
    for vm in fleet.vms.values() {
        let [cluster, namespace, name] = named(vm);
        family.sample(&[cluster, namespace, name, ("state", vm.state.as_str())], 1.0);
    }
    each_vm(
        page,
        fleet,
        "virtfleet_vm_up",
        "Whether the VM's agent answered the last pull; 0 for a VM that does not run, and virtfleet_vm_state tells so.",
        |vm| (vm.agent.status != AgentStatus::Disabled).then(|| flag(vm.agent.status == AgentStatus::Up)),
    );
    each_vm(
        page,
        fleet,
        "virtfleet_vm_agent_last_seen_timestamp_seconds",
        "When the VM's agent last answered, in seconds since 1970; absent until it has.",
        |vm| Some(vm.agent.last_seen_ms? as f64 / 1000.0),
    );
    each_vm(
        page,
        fleet,
        "virtfleet_vm_agent_pull_duration_seconds",
        "How long the last answer of the VM's agent took, in seconds.",
        |vm| Some(vm.agent.took_ms? as f64 / 1000.0),
    );
    let mut family = page.family(
        "virtfleet_vm_findings",
        "Findings about the VM by severity, its agent's own included.",
        Gauge,
    );
    for vm in fleet.vms.values() {
        let [cluster, namespace, name] = named(vm);
        for severity in SEVERITIES {
            let labels = [cluster, namespace, name, ("severity", severity_word(severity))];
            family.sample(&labels, vm.severities.get(severity) as f64);
        }
    }
}

/// Exactly one series for every VM that has a VMI, so that it can stand on the right of a `group_left`.
fn placement(page: &mut Page, fleet: &FleetSnapshot) {
    let mut family = page.family(
        "virtfleet_vm_placement_info",
        "Where a VM stands: one series for every VM that has a VMI; 1.",
        Gauge,
    );
    let placed = |vm: &&Arc<VmView>| vm.state != VmState::Stopped;
    for vm in fleet.vms.values().filter(placed) {
        let [cluster, namespace, name] = named(vm);
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
        "An infra node; known is false for one that only a VMI names; 1.",
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
        "Whether the infra node is ready; absent when the inventory does not say.",
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

/// Of clusters that only labels name nothing is said: their VMs have `cluster=""` everywhere, and sums must agree.
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
        "Nodes of the user cluster that no known VM stands behind.",
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
        "Whether Nodes of the user cluster may be missing, because something of it cannot be read now.",
        Gauge,
    );
    for cluster in known() {
        family.sample(&[("cluster", cluster.name.as_str())], flag(cluster.partial));
    }
}

fn flag(yes: bool) -> f64 {
    f64::from(u8::from(yes))
}

#[cfg(test)]
#[path = "fleet_page_tests.rs"]
mod tests;
