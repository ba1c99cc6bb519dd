//! Series about VMs, infra nodes and user clusters, for `/metrics/fleet` and for streams.
//! `docs/metrics.md` lists the families.

use virtfleet_collector_core::{
    health::HealthCause,
    view::{AgentStatus, FleetSnapshot, VmState, VmView},
};
use virtfleet_wire::{
    exposition::{MetricType::Gauge, Page},
    finding::Severity,
};

/// The name of a severity in JSON and metrics.
pub(crate) fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Critical => "critical",
    }
}

/// Writes all families that do not depend on leadership. Until the inventory has been read
/// completely once, only `virtfleet_inventory_*`: an incomplete fleet would look like a small one.
pub(crate) fn fleet(page: &mut Page, fleet: &FleetSnapshot) {
    inventory(page, fleet);
    if fleet.synced {
        all_vms(page, fleet);
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

/// All severities. Each has a series, with the value 0 if there are no such findings.
const SEVERITIES: [Severity; 3] = [Severity::Info, Severity::Warning, Severity::Critical];

fn vm_labels(vm: &VmView) -> [(&'static str, &str); 3] {
    [
        ("cluster", vm.cluster.as_ref().map_or("", |id| id.as_str())),
        ("namespace", vm.namespace.as_str()),
        ("name", vm.name.as_str()),
    ]
}

/// Writes a gauge with the labels of [`vm_labels`]. A VM for which `value` returns `None` has no
/// sample.
fn vm_gauge<'a>(
    page: &mut Page,
    vms: impl Iterator<Item = &'a VmView>,
    name: &str,
    help: &str,
    value: impl Fn(&VmView) -> Option<f64>,
) {
    let mut family = page.family(name, help, Gauge);
    for vm in vms {
        if let Some(value) = value(vm) {
            family.sample(&vm_labels(vm), value);
        }
    }
}

/// Writes placement, state, health and reachability of each of these VMs: what queries join with
/// the series of guests.
pub(crate) fn vms<'a>(page: &mut Page, vms: impl Iterator<Item = &'a VmView> + Clone) {
    placement(page, vms.clone());
    state(page, vms.clone());
    health(page, vms.clone());
    vm_gauge(
        page,
        vms,
        "virtfleet_vm_up",
        "Whether the VM's agent answered the last pull; 0 also for a VM that does not run (see virtfleet_vm_state).",
        |vm| {
            (!matches!(vm.agent.status, AgentStatus::Disabled | AgentStatus::Unmanaged))
                .then(|| flag(vm.agent.status == AgentStatus::Up))
        },
    );
}

fn state<'a>(page: &mut Page, vms: impl Iterator<Item = &'a VmView>) {
    let mut family = page.family(
        "virtfleet_vm_state",
        "State of the VM in the infra cluster, as the label state. Always 1.",
        Gauge,
    );
    for vm in vms {
        let [cluster, namespace, name] = vm_labels(vm);
        family.sample(&[cluster, namespace, name, ("state", vm.state.as_str())], 1.0);
    }
}

fn health<'a>(page: &mut Page, vms: impl Iterator<Item = &'a VmView>) {
    let mut family = page.family(
        "virtfleet_vm_health",
        "Verdict on the VM and its cause, as the labels verdict and cause; cause is empty for a healthy VM. Always 1.",
        Gauge,
    );
    for vm in vms {
        let [cluster, namespace, name] = vm_labels(vm);
        let verdict = ("verdict", vm.health.verdict.label());
        let cause = ("cause", vm.health.cause.map_or("", HealthCause::as_str));
        family.sample(&[cluster, namespace, name, verdict, cause], 1.0);
    }
}

fn all_vms(page: &mut Page, fleet: &FleetSnapshot) {
    let all = fleet.vms.values().map(AsRef::as_ref);
    vms(page, all.clone());
    vm_gauge(
        page,
        all.clone(),
        "virtfleet_vm_agent_last_seen_timestamp_seconds",
        "Time of the last answer of the VM's agent, in seconds since 1970; absent before the first one.",
        |vm| Some(vm.agent.last_seen_ms? as f64 / 1000.0),
    );
    vm_gauge(
        page,
        all.clone(),
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

/// Exactly one series for every VM that is not stopped, so that queries can use it on the right
/// side of `group_left`.
fn placement<'a>(page: &mut Page, vms: impl Iterator<Item = &'a VmView>) {
    let mut family = page.family(
        "virtfleet_vm_placement_info",
        "Placement of the VM: one series for every VM that is not stopped. Always 1.",
        Gauge,
    );
    for vm in vms.filter(|vm| vm.state != VmState::Stopped) {
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
