//! The machine of a VM by its UUID, and whether a Node is on it.

use virtfleet_wire::{
    finding::Finding,
    ids::{ClusterName, NodeName, Uuid},
};

use crate::{
    facts::UserNode,
    identity,
    store::{Store, VmEntry},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct VmMachine {
    /// The firmware UUID of its VMI; without a VMI, that of its template. None for a placeholder.
    pub(crate) firmware: Option<Uuid>,
    /// The machine-id of a guest that shows no SMBIOS UUID: there, the kubelet reports it as
    /// `systemUUID` (cAdvisor's `GetSystemUUID`).
    machine_id: Option<Uuid>,
    /// There is a VMI.
    pub(crate) is_running: bool,
}

impl VmMachine {
    pub(crate) fn of(entry: &VmEntry) -> Self {
        let vmi = entry.vmi.as_deref();
        let of_template = || entry.vm.as_ref().and_then(|vm| vm.firmware_uuid);
        let report = entry.pulls.answer.as_ref().map(|(_, answer)| &answer.report);
        let without_smbios = report.filter(|report| identity::claimed_uuid(report).is_none());
        let machine_id = without_smbios.and_then(|report| report.identity.machine_id.as_ref());
        Self {
            firmware: known(vmi.map_or_else(of_template, |vmi| vmi.firmware_uuid)),
            machine_id: machine_id.and_then(|claimed| claimed.value.parse().ok()),
            is_running: vmi.is_some(),
        }
    }

    /// The same by what the platform says alone.
    pub(crate) fn without_guest(self) -> Self {
        Self {
            machine_id: None,
            ..self
        }
    }

    /// Whether its firmware UUID is, or may be, the hash of its name.
    pub(crate) fn may_be_of_name(&self) -> bool {
        self.firmware.is_none_or(Uuid::is_of_name)
    }
}

/// Whether a Node's kubelet runs on the machine of a VM: `status.nodeInfo.systemUUID` is what the
/// kubelet read from SMBIOS, where KubeVirt puts the firmware UUID of the VMI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SameMachine {
    Yes,
    No,
    /// A UUID is missing, or one that many machines have; or the Node's is the guest's machine-id.
    Unknown,
}

impl SameMachine {
    pub(crate) fn of(node: &UserNode, vm: &VmMachine) -> Self {
        match known(node.system_uuid).zip(vm.firmware) {
            Some((node, firmware)) if node == firmware => Self::Yes,
            Some((node, _)) if vm.machine_id != Some(node) => Self::No,
            Some(_) | None => Self::Unknown,
        }
    }
}

/// The two UUIDs that identify a Node and a VM, as text for a finding.
pub(crate) struct Uuids {
    pub(crate) node: String,
    pub(crate) vm: String,
    pub(crate) machine: SameMachine,
}

impl Uuids {
    pub(crate) fn of(store: &Store, cluster: &ClusterName, node: &NodeName, entry: &VmEntry) -> Self {
        let text = |uuid: Option<Uuid>| uuid.map_or_else(|| "none".to_owned(), |uuid| uuid.to_string());
        let (node, machine) = (store.user_node(cluster, node), VmMachine::of(entry));
        Self {
            node: text(node.and_then(|node| node.system_uuid)),
            vm: text(entry.vmi.as_ref().and_then(|vmi| vmi.firmware_uuid)),
            machine: node.map_or(SameMachine::Unknown, |node| SameMachine::of(node, &machine)),
        }
    }

    pub(crate) fn with(self, finding: Finding) -> Finding {
        finding
            .with("systemUUID", self.node)
            .with("firmwareUUID", self.vm)
    }
}

/// A UUID that identifies a machine.
pub(crate) fn known(uuid: Option<Uuid>) -> Option<Uuid> {
    uuid.filter(|uuid| !uuid.is_placeholder())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::store::tests::machine;

    /// The UUID that KubeVirt before 1.5 makes from the name of a VM.
    pub(crate) fn machine_of_name(name: &str) -> Uuid {
        machine(name)
            .to_string()
            .replacen("-4000-", "-5000-", 1)
            .parse()
            .unwrap()
    }
}
