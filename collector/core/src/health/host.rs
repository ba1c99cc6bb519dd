//! `HostReady`: the infra node of the VM is ready, and KubeVirt runs on it.

use super::{evaluation::Evaluation, facts::HealthFacts, kubelet::KubeletSilence, verdict::HealthCause};
use crate::{facts::InfraNode, heartbeats::Hearing, reported::ReportedStatus};

/// Set by KubeVirt: whether virt-handler of the node is alive.
const SCHEDULABLE_LABEL: &str = "kubevirt.io/schedulable";
/// The node was declared dead, so that its pods and volumes move.
const OUT_OF_SERVICE_TAINT: &str = "node.kubernetes.io/out-of-service";
/// Conditions that are `True` if something is wrong, with their reasons here.
const PRESSURES: [(&str, &str); 4] = [
    ("MemoryPressure", "HostMemoryPressure"),
    ("DiskPressure", "HostDiskPressure"),
    ("PIDPressure", "HostPIDPressure"),
    ("NetworkUnavailable", "HostNetworkUnavailable"),
];

pub(super) fn evaluate(facts: &HealthFacts<'_>) -> Evaluation {
    let Some(host) = facts.host else {
        return Evaluation::not_required("NotPlaced", "the VM is on no infra node");
    };
    let next = format!("kubectl describe node {host}");
    let Some(node) = facts.infra_node else {
        let message = format!("the infra node {host} is not in the inventory");
        return Evaluation::unknown(HealthCause::Host, "HostUnknown", message).next(next);
    };
    evaluate_node(node, facts.host_hearing()).next(next)
}

fn evaluate_node(node: &InfraNode, hearing: Hearing) -> Evaluation {
    let name = &node.name;
    if node
        .taints
        .iter()
        .any(|taint| &*taint.key == OUT_OF_SERVICE_TAINT)
    {
        let message = format!("the infra node {name} is out of service");
        return Evaluation::critical(HealthCause::Host, "HostOutOfService", message).immediate();
    }
    let ready = node.conditions.get("Ready");
    match ready.map(|one| one.status) {
        Some(ReportedStatus::Unknown) => {
            let message =
                format!("the infra node {name} is down or cut off: its kubelet has stopped reporting");
            return Evaluation::critical(HealthCause::Host, "HostDown", message).immediate();
        }
        Some(ReportedStatus::False) => {
            let why = ready.map_or("no reason is given", |one| one.text());
            let message = format!("the infra node {name} is not ready: {why}");
            return Evaluation::critical(HealthCause::Host, "HostNotReady", message);
        }
        Some(ReportedStatus::True) => {}
        None => {
            let message = format!("the infra node {name} reports no condition Ready");
            return Evaluation::unknown(HealthCause::Host, "HostReadyUnknown", message);
        }
    }
    let silence = KubeletSilence {
        cluster: "infra cluster",
        node: &format!("node {name}"),
        cause: HealthCause::Host,
        awaited: "HostHeartbeatAwaited",
        old: "HostHeartbeatOld",
    };
    if let Some(silent) = silence.evaluate(hearing) {
        return silent;
    }
    if node.labels.get(SCHEDULABLE_LABEL) == Some("false") {
        let message = format!(
            "virt-handler of the infra node {name} does not report: its VMs run, and cannot be migrated, started or stopped"
        );
        return Evaluation::degraded(HealthCause::Host, "VirtHandlerDown", message);
    }
    for (kind, reason) in PRESSURES {
        if let Some(pressure) = node.conditions.with_status(kind, ReportedStatus::True) {
            let message = format!("the infra node {name} has {kind}: {}", pressure.text());
            return Evaluation::degraded(HealthCause::Host, reason, message);
        }
    }
    if node.unschedulable {
        let message = format!("the infra node {name} is ready and cordoned: it takes no other VMs");
        return Evaluation::holds("Cordoned", message);
    }
    Evaluation::holds("HostReady", format!("the infra node {name} is ready"))
}
