//! `NodeReady`: the Node of the VM in its user cluster is ready.

use super::{evaluation::Evaluation, facts::HealthFacts, verdict::HealthCause};
use crate::{
    facts::UserNode,
    keys::NodeMatch,
    reported::ReportedStatus,
    tenant::Tenant,
    view::{ClusterState, VmState},
};

/// Conditions that are `True` if something is wrong, with their reasons here.
const PRESSURES: [(&str, &str); 4] = [
    ("MemoryPressure", "NodeMemoryPressure"),
    ("DiskPressure", "NodeDiskPressure"),
    ("PIDPressure", "NodePIDPressure"),
    ("NetworkUnavailable", "NodeNetworkUnavailable"),
];

pub(super) fn evaluate(facts: &HealthFacts<'_>) -> Evaluation {
    let cluster = match facts.tenant {
        Tenant::One(cluster) => cluster,
        Tenant::Ambiguous(_) => {
            return Evaluation::unknown(
                HealthCause::Agent,
                "UserClusterAmbiguous",
                "several UserClusters select the VM, so its Node is unknown",
            )
            .next(facts.list_findings());
        }
        Tenant::None if facts.is_tenant_pending => {
            return Evaluation::unknown(
                HealthCause::Agent,
                "UserClusterPending",
                "the labels of the VM name a user cluster that does not select it, so its Node is unknown",
            )
            .next(facts.list_findings());
        }
        Tenant::None => {
            return Evaluation::not_required("NoUserCluster", "the VM is no Node of a user cluster");
        }
    };
    let next = "virtfleetctl clusters -o wide";
    match facts.cluster_state {
        Some(ClusterState::Ready | ClusterState::Suspended) => {}
        Some(ClusterState::Connecting) => {
            let message = format!("the Nodes of {cluster} are being read for the first time");
            return Evaluation::unknown(HealthCause::Network, "UserClusterConnecting", message).undecided();
        }
        Some(ClusterState::Unreachable | ClusterState::Failed) => {
            let message =
                format!("the API server of {cluster} cannot be read, so the state of the Node is old");
            return Evaluation::unknown(HealthCause::Network, "UserClusterUnreachable", message).next(next);
        }
        Some(ClusterState::Refused) => {
            let message = format!(
                "{cluster} and another UserCluster lead to one API server, so its Nodes are not known"
            );
            return Evaluation::unknown(HealthCause::Agent, "UserClusterRefused", message).next(next);
        }
        Some(ClusterState::Pending) | None => {
            let message = format!("there is no kubeconfig for {cluster}, so the Node is unknown");
            return Evaluation::unknown(HealthCause::Agent, "UserClusterPending", message).next(next);
        }
    }
    match facts.user_node {
        Some(node) => evaluate_node(facts, node).next(format!(
            "in the user cluster {cluster}: kubectl describe node {}",
            node.name
        )),
        None if matches!(
            facts.state,
            VmState::Running | VmState::Migrating | VmState::Paused
        ) =>
        {
            not_joined(facts)
        }
        None => Evaluation::not_required("NotRunning", "the VM does not run and has no Node"),
    }
}

/// A VM that runs and has no Node. After a start that is normal for a time.
fn not_joined(facts: &HealthFacts<'_>) -> Evaluation {
    if let NodeMatch::Contradicts(node) = facts.node_match {
        let message = format!(
            "the Node {node} of the user cluster has the name or providerID of the VM, and is another machine"
        );
        let found = if facts.is_long_contradicted() {
            Evaluation::critical(HealthCause::Agent, "NodeOfAnotherMachine", message)
        } else {
            Evaluation::unknown(HealthCause::Agent, "NodeOfAnotherMachine", message)
        };
        return found.next(facts.list_findings());
    }
    let next = "in the guest: systemctl status kubelet";
    if facts.has_run_long() && !facts.are_nodes_new() {
        return Evaluation::critical(
            HealthCause::Guest,
            "NotJoined",
            "the VM runs for more than 10 minutes, and the user cluster has no Node for it",
        )
        .next(next);
    }
    let yet = Evaluation::unknown(
        HealthCause::Guest,
        "NotJoinedYet",
        "the VM runs, and the user cluster has no Node for it yet",
    )
    .next(next);
    // A collector that has just started keeps what GuestHealth says.
    if facts.has_run_long() {
        yet.undecided()
    } else {
        yet
    }
}

fn evaluate_node(facts: &HealthFacts<'_>, node: &UserNode) -> Evaluation {
    let name = &node.name;
    let ready = node.conditions.get("Ready");
    let why = ready.map_or("no reason is given", |one| one.text());
    match ready.map(|one| one.status) {
        Some(ReportedStatus::True) => {}
        Some(ReportedStatus::False) => {
            let message = format!("the Node {name} is not ready: {why}");
            return Evaluation::critical(blame(facts), "NodeNotReady", message).measured();
        }
        Some(ReportedStatus::Unknown) => {
            let message = format!("the kubelet of the Node {name} has stopped reporting");
            return Evaluation::critical(blame(facts), "KubeletSilent", message);
        }
        None => {
            let message = format!("the Node {name} reports no condition Ready");
            return Evaluation::unknown(HealthCause::Guest, "NodeReadyUnknown", message);
        }
    }
    for (kind, reason) in PRESSURES {
        if let Some(pressure) = node.conditions.with_status(kind, ReportedStatus::True) {
            let message = format!("the Node {name} has {kind}: {}", pressure.text());
            return Evaluation::degraded(HealthCause::Guest, reason, message);
        }
    }
    if node.unschedulable {
        let message = format!("the Node {name} is ready and cordoned: it takes no new pods");
        return Evaluation::degraded(HealthCause::Guest, "NodeCordoned", message);
    }
    Evaluation::holds("NodeReady", format!("the Node {name} is ready"))
}

/// What a Node that is not ready comes from.
fn blame(facts: &HealthFacts<'_>) -> HealthCause {
    match facts.state {
        _ if facts.is_host_down() => HealthCause::Host,
        VmState::Migrating => HealthCause::Migration,
        VmState::Running => HealthCause::Guest,
        _ => HealthCause::Vm,
    }
}
