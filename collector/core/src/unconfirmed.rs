//! Why a Node is joined with a VM by name alone, and what its admin can do about it.
//!
//! No remedy changes the VM where only its guest or its kubelet lacks the UUID. To a guest, another
//! firmware UUID is another machine, so the remedy that advises one says what follows.

use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::{ClusterName, NodeName, VmKey},
};

use crate::{
    findings, identity,
    machine::{Uuids, VmMachine, known},
    store::{Store, VmEntry},
};

/// How a VM gets a firmware UUID that no other VM has, and what that changes in its guest.
const NEW_UUID: &str = "replace the VM by a new one where you can: KubeVirt 1.5 and newer give it a random firmware UUID. \
    Another UUID in spec.template.spec.domain.firmware.uuid makes an existing VM another machine to its guest: with its next start, \
    cloud-init (NoCloud) runs as on a new instance, with host keys, users, disk_setup and runcmd; its CSI driver has another node ID; \
    and its agent needs `virtfleetctl vm reset`. So drain its Node first";

/// Shows which VMs have which firmware UUID.
const LIST_UUIDS: &str = "kubectl get vmi -A -o \
    custom-columns=NAMESPACE:.metadata.namespace,NAME:.metadata.name,UUID:.spec.domain.firmware.uuid";

/// What the kubelet must be able to read.
const KUBELET: &str = "leave the VM as it is: its guest has the UUID, and only the kubelet does not report it. Let the kubelet read \
    /sys/class/dmi/id/product_uuid as root (one in a container needs the /sys of its guest), then in the guest: systemctl restart \
    kubelet";

/// A guest that shows no UUID.
const NO_DMI: &str = "leave the VM as it is; in its guest: cat /sys/class/dmi/id/product_uuid. If it prints the firmware UUID: \
    systemctl restart kubelet. If there is no such file, the guest has no SMBIOS, as on arm64 with a kernel without CONFIG_DMI: its \
    Node gets no labels and conditions until its image has a kernel that shows it";

/// Why the UUIDs do not confirm a join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doubt {
    /// Other VMs have, or may get, the same UUID, which is the hash of a name.
    SharedUuid,
    /// The VM has no UUID of its own.
    NoVmUuid,
    /// The kubelet reports none, and the guest shows the VM's to the agent.
    NoKubeletUuid,
    /// The kubelet reports none, and the guest shows none, as far as is known.
    NoGuestUuid,
    /// The kubelet reports the machine-id, because the guest shows no UUID.
    MachineId,
}

impl Doubt {
    fn of(store: &Store, cluster: &ClusterName, node: &NodeName, entry: &VmEntry) -> Self {
        let node = store.user_node(cluster, node);
        let uuid = node.and_then(|node| known(node.system_uuid));
        let report = entry.pulls.answer.as_ref().map(|(_, answer)| &answer.report);
        match (VmMachine::of(entry).firmware, uuid) {
            (None, _) => Self::NoVmUuid,
            (Some(firmware), Some(uuid)) if firmware == uuid => Self::SharedUuid,
            (Some(_), Some(_)) => Self::MachineId,
            (Some(_), None) if report.and_then(|one| identity::claimed_uuid(one)).is_some() => {
                Self::NoKubeletUuid
            }
            (Some(_), None) => Self::NoGuestUuid,
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::SharedUuid => "FirmwareUuidOfName",
            Self::NoVmUuid => "NoFirmwareUuid",
            Self::NoKubeletUuid => "KubeletWithoutUuid",
            Self::NoGuestUuid => "NodeWithoutUuid",
            Self::MachineId => "MachineIdAsUuid",
        }
    }
}

/// The finding about a Node that is joined with a running VM, and not confirmed.
pub(crate) fn finding(
    store: &Store,
    cluster: &ClusterName,
    vm: &VmKey,
    entry: &VmEntry,
    node: &NodeName,
) -> Finding {
    let (uuids, doubt) = (
        Uuids::of(store, cluster, node, entry),
        Doubt::of(store, cluster, node, entry),
    );
    let why = match doubt {
        Doubt::SharedUuid => format!(
            "the firmware UUID {} is the hash of a name, as KubeVirt before 1.5 made it, and another VM has it too, or has this \
             name and no random UUID",
            uuids.vm
        ),
        Doubt::NoVmUuid => format!("the VM has no firmware UUID of its own ({})", uuids.vm),
        Doubt::NoKubeletUuid => format!(
            "its guest shows the firmware UUID {}, and its kubelet reports no systemUUID ({})",
            uuids.vm, uuids.node
        ),
        Doubt::NoGuestUuid => format!(
            "its kubelet reports no systemUUID ({}) to compare with the firmware UUID {}",
            uuids.node, uuids.vm
        ),
        Doubt::MachineId => format!(
            "its guest shows no SMBIOS UUID, so its kubelet reports the machine-id {} in place of the firmware UUID {}",
            uuids.node, uuids.vm
        ),
    };
    let message = format!(
        "{vm} is joined with the Node {node} of cluster {cluster} by name alone, so no label or condition is written to the Node: {why}"
    );
    let remedy = match doubt {
        Doubt::SharedUuid => format!("{LIST_UUIDS} lists the UUIDs; {NEW_UUID}"),
        Doubt::NoVmUuid => NEW_UUID.to_owned(),
        Doubt::NoKubeletUuid => KUBELET.to_owned(),
        Doubt::NoGuestUuid | Doubt::MachineId => NO_DMI.to_owned(),
    };
    let finding = findings::vm(
        findings::NODE_UNCONFIRMED,
        Severity::Warning,
        vm,
        doubt.reason(),
        message,
    );
    let finding = finding.with("cluster", cluster).with("node", node);
    uuids.with(finding).remedy(remedy)
}
