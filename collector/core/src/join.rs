//! Joins a VM with its Node. Only Nodes of the VM's own user cluster are considered, in this order:
//!
//! 1. `providerID: kubevirt://<name>`;
//! 2. a Node of the VM's name that has no `providerID`, or this VM's, or whose
//!    `status.nodeInfo.systemUUID` is the VM's firmware UUID: k3s, RKE2 and Harvester write
//!    `providerID`s of their own (`k3s://<name>`, `rke2://<name>`);
//! 3. a Node with the host name that the guest reports, if that Node has no `providerID`, no VM of
//!    the cluster has its name, and no other guest without a Node reports it. This join relies on
//!    the guest, so it is a finding.
//!
//! A contradiction prevents the join and is a finding.

pub(crate) use super::node_match::NodeMatch;
use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::{ClusterName, NodeName, Uuid, VmKey},
};

use crate::{
    facts::UserNode,
    findings,
    keys::{MAX_NAMED_VMS, SharedValue},
    store::{Store, VmEntry},
};

/// Applies rules 1 and 2 to `vm` in `cluster`; `firmware` is its `spec.domain.firmware.uuid`.
pub(crate) fn node_match(
    store: &Store,
    cluster: &ClusterName,
    vm: &VmKey,
    firmware: Option<Uuid>,
) -> NodeMatch {
    let mut named = store.nodes_of_provider(cluster, &vm.name);
    match (named.next(), named.next()) {
        (Some(node), None) => return NodeMatch::Node(node.clone()),
        (Some(first), Some(second)) => {
            let all = [first, second].into_iter().chain(named).take(MAX_NAMED_VMS);
            return NodeMatch::Ambiguous(all.cloned().collect());
        }
        (None, _) => {}
    }
    let node = vm
        .name
        .as_str()
        .parse()
        .ok()
        .and_then(|name: NodeName| store.user_node(cluster, &name));
    match node {
        None => NodeMatch::None,
        Some(node) if without_provider(node) || is_machine(node, firmware) => {
            NodeMatch::Node(node.name.clone())
        }
        Some(node) => NodeMatch::Contradicts(node.name.clone()),
    }
}

/// Whether the Node's kubelet runs on the machine with this firmware UUID.
fn is_machine(node: &UserNode, firmware: Option<Uuid>) -> bool {
    let firmware = firmware.filter(|uuid| !uuid.is_placeholder());
    firmware.is_some() && node.system_uuid == firmware
}

fn without_provider(node: &UserNode) -> bool {
    node.provider_id.as_deref().is_none_or(str::is_empty)
}

/// The Node of a VM, and findings about the join.
pub(crate) fn join(store: &Store, vm: &VmKey, entry: &VmEntry) -> (Option<NodeName>, Vec<Finding>) {
    let Some(cluster) = entry.keys.tenant.cluster() else {
        return (None, Vec::new());
    };
    let found = |id, reason, severity, message| {
        findings::vm(id, severity, vm, reason, message).with("cluster", cluster)
    };
    match &entry.keys.node_match {
        NodeMatch::Node(node) => (Some(node.clone()), Vec::new()),
        NodeMatch::Ambiguous(nodes) => {
            let names = nodes.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", ");
            let message = format!(
                "more than one Node of cluster {cluster} has the providerID kubevirt://{} ({names})",
                vm.name
            );
            let finding = found(findings::NODE_AMBIGUOUS, "NodeAmbiguous", Severity::Warning, message)
                .with("nodes", names)
                .remedy("delete the Node that is a leftover: kubectl get nodes -o custom-columns=NAME:.metadata.name,ID:.spec.providerID");
            (None, vec![finding])
        }
        NodeMatch::Contradicts(node) => {
            let known = store.user_node(cluster, node);
            let provider = known
                .and_then(|node| node.provider_id.as_deref())
                .unwrap_or_default();
            let uuid = |uuid: Option<Uuid>| uuid.map_or_else(|| "none".to_owned(), |uuid| uuid.to_string());
            let machine = uuid(known.and_then(|node| node.system_uuid));
            let firmware = uuid(entry.vmi.as_ref().and_then(|vmi| vmi.firmware_uuid));
            let message = format!(
                "the Node {node} of cluster {cluster} has the name of {vm}, but the providerID {provider:?} and the systemUUID \
                 {machine}, and the VM's firmware UUID is {firmware}"
            );
            let remedy = if provider.starts_with("kubevirt://") {
                "the Node's providerID names another VM; if it is this one, delete the Node and let its kubelet register again, \
                 because a providerID cannot be changed"
            } else {
                "if the Node is this VM, its kubelet reports the VM's firmware UUID as status.nodeInfo.systemUUID: check \
                 spec.domain.firmware.uuid of the VMI; else two machines of one cluster have one name"
            };
            let finding = found(
                findings::NODE_PROVIDER_DIFFERS,
                "NodeProviderDiffers",
                Severity::Warning,
                message,
            )
            .with("node", node)
            .with("providerID", provider)
            .with("systemUUID", machine)
            .with("firmwareUUID", firmware)
            .remedy(remedy);
            (None, vec![finding])
        }
        NodeMatch::None => by_hostname(store, vm, entry, cluster, found),
    }
}

fn by_hostname(
    store: &Store,
    vm: &VmKey,
    entry: &VmEntry,
    cluster: &ClusterName,
    found: impl Fn(&'static str, &'static str, Severity, String) -> Finding,
) -> (Option<NodeName>, Vec<Finding>) {
    let shared = entry
        .keys
        .shared_values
        .iter()
        .find(|shared| matches!(shared, SharedValue::Hostname(..)));
    let Some(shared @ SharedValue::Hostname(_, hostname)) = shared else {
        return (None, Vec::new());
    };
    let Some(node) = store
        .user_node(cluster, hostname)
        .filter(|node| without_provider(node))
    else {
        return (None, Vec::new());
    };
    if store.is_vm_of(cluster, hostname) {
        return (None, Vec::new());
    }
    let (others, more) = store.shared_values.others(shared, vm);
    if others.is_empty() {
        let message = format!(
            "{vm} is joined with the Node {} of cluster {cluster} only because its guest has that host name",
            node.name
        );
        let finding = found(
            findings::NODE_BY_HOSTNAME,
            "NodeByHostname",
            Severity::Info,
            message,
        )
        .with("node", &node.name)
        .remedy(format!(
            "let kubelet register with --provider-id=kubevirt://{}",
            vm.name
        ));
        return (Some(node.name.clone()), vec![finding]);
    }
    let names = name_all(&others, more);
    let message = format!(
        "the guests of {vm} and {names} claim the host name of the Node {} of cluster {cluster}",
        node.name
    );
    let finding = found(
        findings::NODE_CLAIMED_TWICE,
        "NodeClaimedTwice",
        Severity::Warning,
        message,
    )
    .with("node", &node.name)
    .with("others", names)
    .remedy(
        "give each guest its own host name, or let kubelet register with --provider-id=kubevirt://<VM name>",
    );
    (None, vec![finding])
}

/// End of a list of VMs that is not complete.
pub(crate) const MORE_VMS: &str = " and others";

/// Formats `a/b, c/d`, with `and others` when there are more.
pub(crate) fn name_all(vms: &[VmKey], more: bool) -> String {
    let mut text = vms.iter().map(VmKey::to_string).collect::<Vec<_>>().join(", ");
    if more {
        text.push_str(MORE_VMS);
    }
    text
}
