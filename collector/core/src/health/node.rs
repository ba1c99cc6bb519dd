//! `NodeReady`: the Node of the VM in its user cluster is ready.

use super::{evaluation::Evaluation, facts::HealthFacts, kubelet::KubeletSilence, verdict::HealthCause};
use crate::{
    facts::UserNode,
    findings::escaped,
    keys::NodeMatch,
    reported::ReportedStatus,
    scheduling::Taint,
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

/// Taints that Kubernetes itself sets on a Node that pods should not use, beside that of a cordon
/// (`well_known_taints.go` of `k8s.io/api/core/v1` and `k8s.io/cloud-provider/api`).
const TAINTS_OF_KUBERNETES: [&str; 9] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/out-of-service",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/network-unavailable",
    "node.cloudprovider.kubernetes.io/uninitialized",
    "node.cloudprovider.kubernetes.io/shutdown",
];
/// Ends of the names of taints by which other controllers say the same, e.g.
/// `node.cilium.io/agent-not-ready`, `ebs.csi.aws.com/agent-not-ready`,
/// `node.cluster.x-k8s.io/uninitialized`, `karpenter.sh/unregistered`.
const TAINT_ENDS: [&str; 3] = ["not-ready", "uninitialized", "unregistered"];
/// Prefix of the taints of the Node Readiness Controller.
const READINESS_PREFIX: &str = "readiness.k8s.io/";
/// Prefix of those of virtfleet's own rules.
const OWN_PREFIX: &str = "readiness.k8s.io/virtfleet-";
/// Maximum taints that a message names, and maximum bytes of each.
const MAX_NAMED_TAINTS: usize = 4;
const MAX_TAINT_BYTES: usize = 96;

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
            return Evaluation::unknown(HealthCause::Network, "UserClusterConnecting", message)
                .undecided_if(facts.are_nodes_awaited());
        }
        Some(ClusterState::Unreachable | ClusterState::Failed | ClusterState::Hibernated) => {
            let message =
                format!("the API server of {cluster} cannot be read, so the state of the Node is old");
            // It has lasted for half a minute before the cluster is called unreachable.
            return Evaluation::unknown(HealthCause::Network, "UserClusterUnreachable", message)
                .next(next)
                .immediate();
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
    // A collector that has just started keeps what GuestHealth says.
    Evaluation::unknown(
        HealthCause::Guest,
        "NotJoinedYet",
        "the VM runs, and the user cluster has no Node for it yet",
    )
    .next(next)
    .undecided_if(facts.has_run_long())
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
    let silence = KubeletSilence {
        cluster: "user cluster",
        node: &format!("Node {name}"),
        cause: HealthCause::Guest,
        awaited: "HeartbeatAwaited",
        old: "HeartbeatOld",
    };
    if let Some(silent) = silence.evaluate(facts.node_hearing()) {
        return silent;
    }
    for (kind, reason) in PRESSURES {
        if let Some(pressure) = node.conditions.with_status(kind, ReportedStatus::True) {
            let message = format!("the Node {name} has {kind}: {}", pressure.text());
            return Evaluation::degraded(HealthCause::Guest, reason, message);
        }
    }
    if let Some(found) = named(node, says_not_ready) {
        let message = format!(
            "the kubelet of the Node {name} is ready, and the Node is not: pods that do not tolerate {found} are kept off it"
        );
        let mut telling = node.taints.iter().filter(|one| says_not_ready(one));
        // virtfleet's own rule repeats what another condition of the VM says, which explains it.
        let cause = if telling.all(|one| one.key.starts_with(OWN_PREFIX)) {
            HealthCause::Agent
        } else {
            HealthCause::Guest
        };
        return Evaluation::degraded(cause, "NodeTainted", message);
    }
    if node.unschedulable {
        let message = format!("the Node {name} is ready and cordoned: it takes no new pods");
        return Evaluation::degraded(HealthCause::Guest, "NodeCordoned", message);
    }
    let others = named(node, |_| true).map(|found| format!("; it has {found}"));
    let message = format!("the Node {name} is ready{}", others.unwrap_or_default());
    Evaluation::holds("NodeReady", message)
}

/// Whether a taint says that a controller does not consider the Node ready. Other taints keep pods
/// off on purpose, and one that the scheduler only avoids keeps none off: a cloud controller of
/// KubeVirt leaves `uninitialized` with this effect after each migration.
fn says_not_ready(taint: &Taint) -> bool {
    let key = &*taint.key;
    taint.effect.is_hard()
        && (TAINTS_OF_KUBERNETES.contains(&key)
            || key.starts_with(READINESS_PREFIX)
            || TAINT_ENDS.iter().any(|end| key.ends_with(end)))
}

/// These taints of a Node, for a message; none if it has none.
fn named(node: &UserNode, is_named: impl Fn(&Taint) -> bool) -> Option<String> {
    let found: Vec<&Taint> = node.taints.iter().filter(|one| is_named(one)).collect();
    let keys = found.iter().take(MAX_NAMED_TAINTS);
    let keys: Vec<String> = keys.map(|one| escaped(&one.key, MAX_TAINT_BYTES)).collect();
    let word = match found.len() {
        0 => return None,
        1 => "the taint",
        _ => "the taints",
    };
    let more = found.len().saturating_sub(MAX_NAMED_TAINTS);
    let more = match more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!("{word} {}{more}", keys.join(", ")))
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
