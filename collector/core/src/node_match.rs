//! How a VM and a Node belong together.

use virtfleet_wire::ids::{NodeName, Uuid};

use crate::facts::UserNode;

/// Result of rules 1 to 3, which use only data of the Nodes and of the VM itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum NodeMatch {
    /// No Node names it.
    #[default]
    None,
    /// This one names it, and its kubelet runs on the VM's machine.
    Confirmed(NodeName),
    /// This one names it; whether it is the VM's machine is not known.
    Unconfirmed(NodeName),
    /// This one does not name it, and its kubelet runs on the VM's machine.
    Machine(NodeName),
    /// Several name it in their `providerID`, or run on its machine; the first few, sorted.
    Ambiguous(Vec<NodeName>),
    /// This one names it, and is another machine or has a `providerID` of something else.
    Contradicts(NodeName),
    /// Its user cluster has Nodes in common with another one.
    Refused,
}

/// Whether a Node's kubelet runs on the machine of a VM: `status.nodeInfo.systemUUID` is what the
/// kubelet read from SMBIOS, where KubeVirt puts the firmware UUID of the VMI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SameMachine {
    Yes,
    No,
    /// A UUID is missing, or one that many machines have.
    Unknown,
}

impl SameMachine {
    pub(crate) fn of(node: &UserNode, firmware: Option<Uuid>) -> Self {
        let known = |uuid: Option<Uuid>| uuid.filter(|uuid| !uuid.is_placeholder());
        match known(node.system_uuid).zip(known(firmware)) {
            None => Self::Unknown,
            Some((node, firmware)) if node == firmware => Self::Yes,
            Some(_) => Self::No,
        }
    }
}
