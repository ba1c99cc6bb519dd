//! Joins a VM with its Node. Only Nodes of the VM's own user cluster are considered, in this order:
//!
//! 1. `providerID: kubevirt://<name>`; of several, the one whose `status.nodeInfo.systemUUID` is
//!    the VM's firmware UUID;
//! 2. a Node of the VM's name that has no `providerID`, or whose `systemUUID` is the VM's firmware
//!    UUID: k3s, RKE2 and Harvester write `providerID`s of their own (`k3s://<name>`,
//!    `rke2://<name>`);
//! 3. the only Node with the firmware UUID of a running VM as `systemUUID`, if no VM of another
//!    name has this UUID, and no other VM of the cluster has the Node's name: a Node with a name of
//!    its own, for example with a domain;
//! 4. a Node with the host name that the guest reports, if that Node has no `providerID`, no VM of
//!    the cluster has its name, and no other guest without a Node reports it. This join relies on
//!    the guest, so it is a finding.
//!
//! A contradiction prevents the join and is a finding: above all another `systemUUID`, which shows
//! that the kubeconfig is another cluster's, or that the Node is a leftover. Something is written
//! to a Node only if the UUID confirms the join ([`confirmed_node`]). A UUID that is the hash of
//! the VM's name is no second fact beside the name while another VM may have it. Clusters that have
//! Nodes in common are not joined at all.

use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::{ClusterName, NodeName, VmKey},
};

use crate::{
    facts::UserNode,
    findings,
    keys::{MAX_NAMED_VMS, NodeMatch, SharedValue},
    machine::{SameMachine, Uuids, VmMachine},
    store::{Store, VmEntry},
    unconfirmed,
};

/// Applies rules 1 to 3 to `vm`, whose machine is `machine`, in `cluster`.
pub(crate) fn node_match(store: &Store, cluster: &ClusterName, vm: &VmKey, machine: &VmMachine) -> NodeMatch {
    if store.shared_nodes.with(cluster).next().is_some() {
        return NodeMatch::Refused;
    }
    let named = store.nodes_of_provider(cluster, &vm.name);
    let named: Vec<&UserNode> = named.filter_map(|name| store.user_node(cluster, name)).collect();
    if !named.is_empty() {
        return of_provider(&named, machine);
    }
    let name = vm.name.as_str().parse().ok();
    if let Some(node) = name.and_then(|name: NodeName| store.user_node(cluster, &name)) {
        let node_name = node.name.clone();
        return match SameMachine::of(node, machine) {
            SameMachine::Yes => NodeMatch::Confirmed(node_name),
            SameMachine::Unknown if without_provider(node) => NodeMatch::Unconfirmed(node_name),
            SameMachine::Unknown | SameMachine::No => NodeMatch::Contradicts(node_name),
        };
    }
    of_machine(store, cluster, machine)
}

/// Rule 1, for the Nodes whose `providerID` names the VM.
fn of_provider(named: &[&UserNode], machine: &VmMachine) -> NodeMatch {
    let is_same = |node: &&&UserNode| SameMachine::of(node, machine) == SameMachine::Yes;
    let same: Vec<&&UserNode> = named.iter().filter(is_same).collect();
    match (same.as_slice(), named) {
        ([node], _) => NodeMatch::Confirmed(node.name.clone()),
        ([], [node]) if SameMachine::of(node, machine) == SameMachine::No => {
            NodeMatch::Contradicts(node.name.clone())
        }
        ([], [node]) => NodeMatch::Unconfirmed(node.name.clone()),
        _ => ambiguous(named),
    }
}

/// Rule 3. A Node whose `providerID` names another VM is not considered.
fn of_machine(store: &Store, cluster: &ClusterName, machine: &VmMachine) -> NodeMatch {
    let Some(firmware) = machine.firmware.filter(|_| machine.is_running) else {
        return NodeMatch::None;
    };
    let nodes = store.nodes_of_machine(cluster, firmware);
    let nodes = nodes.filter_map(|name| store.user_node(cluster, name));
    let nodes: Vec<&UserNode> = nodes.filter(|node| node.provider_vm().is_none()).collect();
    match nodes.as_slice() {
        [] => NodeMatch::None,
        [node] => NodeMatch::Machine(node.name.clone()),
        _ => ambiguous(&nodes),
    }
}

fn ambiguous(nodes: &[&UserNode]) -> NodeMatch {
    let named = nodes.iter().take(MAX_NAMED_VMS);
    NodeMatch::Ambiguous(named.map(|node| node.name.clone()).collect())
}

fn without_provider(node: &UserNode) -> bool {
    node.provider_id.as_deref().is_none_or(str::is_empty)
}

/// A Node that rules 1 to 3 join with a VM, in view of the other VMs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JoinedNode<'a> {
    None,
    /// Two facts agree.
    Confirmed(&'a NodeName),
    /// It is read, and nothing is written to it.
    Unconfirmed(&'a NodeName),
    /// It runs on the VM's machine, and has the name of another VM of the cluster.
    OfOtherName(&'a NodeName),
}

impl<'a> JoinedNode<'a> {
    fn of(store: &Store, vm: &VmKey, entry: &'a VmEntry) -> Self {
        let (cluster, machine) = (entry.keys.tenant.cluster(), VmMachine::of(entry));
        let is_of_other = |node| cluster.is_some_and(|cluster| store.is_vm_of(cluster, node));
        match &entry.keys.node_match {
            // The finding about the UUID that other VMs have, too, is there already.
            NodeMatch::Machine(_) if !is_only_machine(store, vm, &machine) => Self::None,
            NodeMatch::Machine(node) if is_of_other(node) => Self::OfOtherName(node),
            NodeMatch::Confirmed(node) | NodeMatch::Machine(node) if is_second_fact(store, vm, &machine) => {
                Self::Confirmed(node)
            }
            NodeMatch::Confirmed(node) | NodeMatch::Machine(node) | NodeMatch::Unconfirmed(node) => {
                Self::Unconfirmed(node)
            }
            NodeMatch::None | NodeMatch::Ambiguous(_) | NodeMatch::Contradicts(_) | NodeMatch::Refused => {
                Self::None
            }
        }
    }
}

/// The Node of a VM of which two facts agree: a name, a `providerID` or that no other VM has its
/// firmware UUID; and the `systemUUID`. Only such a Node is written to, and only its kubelet may
/// vouch for the VM's agent.
pub(crate) fn confirmed_node<'a>(store: &'a Store, vm: &VmKey, entry: &VmEntry) -> Option<&'a UserNode> {
    match JoinedNode::of(store, vm, entry) {
        JoinedNode::Confirmed(node) => store.user_node(entry.keys.tenant.cluster()?, node),
        _ => None,
    }
}

/// The Node from which conditions of an earlier time are removed: one that names the VM, and that
/// neither confirms nor contradicts it. What a guest says of its own machine does not count here.
pub(crate) fn unconfirmed_node<'a>(store: &'a Store, vm: &VmKey, entry: &VmEntry) -> Option<&'a UserNode> {
    let JoinedNode::Unconfirmed(node) = JoinedNode::of(store, vm, entry) else {
        return None;
    };
    let node = store.user_node(entry.keys.tenant.cluster()?, node)?;
    let platform = VmMachine::of(entry).without_guest();
    (SameMachine::of(node, &platform) != SameMachine::No).then_some(node)
}

/// Whether no VM of another name has the firmware UUID of `vm`.
fn is_only_machine(store: &Store, vm: &VmKey, machine: &VmMachine) -> bool {
    machine.firmware.is_some_and(|uuid| {
        let (others, _) = store.shared_values.others(&SharedValue::Firmware(uuid), vm);
        others.is_empty()
    })
}

/// Whether the firmware UUID of `vm`, which a Node has, says more than its name. One that is the
/// hash of the name does so only while no other VM has the same, or may get it: the Nodes of two
/// user clusters with VMs of equal names would fit the other one's VMs.
fn is_second_fact(store: &Store, vm: &VmKey, machine: &VmMachine) -> bool {
    let Some(uuid) = machine.firmware else {
        return false;
    };
    let shared = [
        SharedValue::HashedUuid(uuid),
        SharedValue::HashedName(vm.name.clone()),
    ];
    let is_own = |shared| store.shared_values.members(shared).all(|other| other == vm);
    !uuid.is_of_name() || shared.iter().all(is_own)
}

/// The Node of a VM, and findings about the join.
pub(crate) fn join(store: &Store, vm: &VmKey, entry: &VmEntry) -> (Option<NodeName>, Vec<Finding>) {
    let Some(cluster) = entry.keys.tenant.cluster() else {
        return (None, Vec::new());
    };
    let found = |id, reason, severity, message| {
        findings::vm(id, severity, vm, reason, message).with("cluster", cluster)
    };
    match JoinedNode::of(store, vm, entry) {
        JoinedNode::Confirmed(node) => return (Some(node.clone()), Vec::new()),
        // Without its VMI, little is known of its machine.
        JoinedNode::Unconfirmed(node) if entry.vmi.is_none() => return (Some(node.clone()), Vec::new()),
        JoinedNode::Unconfirmed(node) => {
            let finding = unconfirmed::finding(store, cluster, vm, entry, node);
            return (Some(node.clone()), vec![finding]);
        }
        JoinedNode::OfOtherName(node) => return (None, vec![of_other_name(vm, cluster, node)]),
        JoinedNode::None => {}
    }
    match &entry.keys.node_match {
        NodeMatch::Ambiguous(nodes) => {
            let names = nodes.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", ");
            let message = format!(
                "more than one Node of cluster {cluster} may be {vm} ({names}): they have the providerID kubevirt://{}, or its \
                 firmware UUID as systemUUID",
                vm.name
            );
            let finding = found(
                findings::NODE_AMBIGUOUS,
                "NodeAmbiguous",
                Severity::Warning,
                message,
            )
            .with("nodes", names)
            .remedy(
                "delete the Node that is a leftover: kubectl get nodes -o \
                     custom-columns=NAME:.metadata.name,ID:.spec.providerID,UUID:.status.nodeInfo.systemUUID",
            );
            (None, vec![finding])
        }
        // The template of a VM that does not run may have another UUID than its last VMI.
        NodeMatch::Contradicts(_) if entry.vmi.is_none() => (None, Vec::new()),
        NodeMatch::Contradicts(node) => (None, vec![contradiction(store, vm, entry, cluster, node, found)]),
        NodeMatch::None => by_hostname(store, vm, entry, cluster, found),
        // Joined, or refused: then the finding is about the user cluster.
        NodeMatch::Refused | NodeMatch::Confirmed(_) | NodeMatch::Unconfirmed(_) | NodeMatch::Machine(_) => {
            (None, Vec::new())
        }
    }
}

/// The finding about a Node that has the VM's UUID and the name of another VM.
fn of_other_name(vm: &VmKey, cluster: &ClusterName, node: &NodeName) -> Finding {
    let message = format!(
        "the Node {node} of cluster {cluster} has the firmware UUID of {vm} and the name of the VM {node}: which of them it is, is \
         not known, so it is not joined with {vm}"
    );
    let finding = findings::vm(
        findings::NODE_AMBIGUOUS,
        Severity::Warning,
        vm,
        "NodeNamesOtherVm",
        message,
    );
    finding.with("cluster", cluster).with("nodes", node).remedy(
        "let the kubelet in each guest register with the name of its own VM (kubelet --hostname-override, or the host name of the \
         guest), and delete the Node that is a leftover",
    )
}

/// The finding about a Node that names the VM and is not this VM.
fn contradiction(
    store: &Store,
    vm: &VmKey,
    entry: &VmEntry,
    cluster: &ClusterName,
    node: &NodeName,
    found: impl Fn(&'static str, &'static str, Severity, String) -> Finding,
) -> Finding {
    let uuids = Uuids::of(store, cluster, node, entry);
    let known = store.user_node(cluster, node);
    let provider = known
        .and_then(|node| node.provider_id.as_deref())
        .unwrap_or_default();
    let is_of_other = known
        .and_then(UserNode::provider_vm)
        .is_some_and(|named| named != vm.name);
    let (id, reason, severity, message, remedy) = if uuids.machine == SameMachine::No && !is_of_other {
        (
            findings::NODE_UUID_DIFFERS,
            "NodeUuidDiffers",
            Severity::Critical,
            format!(
                "the Node {node} of cluster {cluster} has the name or providerID of {vm}, but it is another machine: its systemUUID \
                 is {}, and the VM's firmware UUID is {}; nothing is written to it",
                uuids.node, uuids.vm
            ),
            format!(
                "check that the kubeconfig of the UserCluster {cluster} leads to that cluster and to no other. If it does, compare \
                 /sys/class/dmi/id/product_uuid in the guest: without such a file, its kubelet reports the machine-id, and the Node \
                 is to be left alone. Else it is a leftover of an earlier VM of this name: its kubelet registers it again, or you \
                 delete it"
            ),
        )
    } else {
        (
            findings::NODE_PROVIDER_DIFFERS,
            "NodeProviderDiffers",
            Severity::Warning,
            format!(
                "the Node {node} of cluster {cluster} has the name of {vm}, but the providerID {provider:?}; its systemUUID is \
                 {}, and the VM's firmware UUID is {}",
                uuids.node, uuids.vm
            ),
            if provider.starts_with("kubevirt://") {
                "the Node's providerID names another VM; if it is this one, delete the Node and let its kubelet register again, \
                 because a providerID cannot be changed"
                    .to_owned()
            } else {
                "if the Node is this VM, its kubelet reports the VM's firmware UUID as status.nodeInfo.systemUUID: check \
                 spec.domain.firmware.uuid of the VMI; else two machines of one cluster have one name"
                    .to_owned()
            },
        )
    };
    let finding = found(id, reason, severity, message).with("node", node);
    uuids.with(finding.with("providerID", provider)).remedy(remedy)
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
    // What the guest says of its machine must not undo what its Node says.
    let machine = VmMachine::of(entry).without_guest();
    let Some(node) = store
        .user_node(cluster, hostname)
        .filter(|node| without_provider(node) && SameMachine::of(node, &machine) == SameMachine::Unknown)
    else {
        return (None, Vec::new());
    };
    if store.is_vm_of(cluster, hostname) {
        return (None, Vec::new());
    }
    let (others, more) = store.shared_values.others(shared, vm);
    if others.is_empty() {
        let message = format!(
            "{vm} is joined with the Node {} of cluster {cluster} only because its guest has that host name, so nothing is written \
             to the Node",
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
