//! Facts of the inventory. The readers of the manifest folder and of the Kubernetes API both
//! produce them; the rest of the collector uses no Kubernetes types.

mod migration;
mod node_leases;
mod user_cluster;

pub use self::{
    migration::{Migration, VmiMove},
    node_leases::{NodeLease, NodeLeases},
    user_cluster::{UserCluster, UserNode},
};
pub use super::selector::{Operator, Requirement, Selector};
use std::{net::IpAddr, sync::Arc};

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::ids::{ClusterName, MacAddr, Namespace, NodeName, Uid, Uuid, VmKey, VmName};

pub use crate::label_map::Labels;
use crate::{
    labels::policy::LabelPolicy,
    namespace::InfraNamespace,
    reported::ReportedConditions,
    scheduling::{NodeTraits, ResourceAmounts, Scheduling, Taint},
    vmi_spec::VmiSpec,
    volumes::{ClaimVolume, PluggingVolume},
};

/// Event of an inventory reader. After `Init` the reader applies all objects; `Synced` ends this
/// full read, and objects that were known before `Init` and not applied since are removed. A broken
/// source never emits `Delete`.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all events are objects; a box would cost each an allocation"
)]
pub enum InventoryEvent {
    /// A full read begins.
    Init,
    /// The object exists or has changed.
    Apply(Fact),
    /// The source reports that the object is gone.
    Delete(FactKey),
    /// The full read is complete.
    Synced,
    /// The service networks of the infra cluster, all of them.
    ServiceNetworks(Vec<IpNet>),
    /// The Leases of the kubelets of one cluster, from time to time.
    Leases(NodeLeases),
}

/// One object of the inventory.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    Vmi(Box<Vmi>),
    Vm(Vm),
    InfraNode(InfraNode),
    UserCluster(UserCluster),
    UserNode(UserNode),
    VmiMove(VmiMove),
    LauncherPod(LauncherPod),
    Policy(Box<LabelPolicy>),
    Namespace(InfraNamespace),
}

/// Names an object of the inventory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FactKey {
    Vmi(VmKey),
    Vm(VmKey),
    InfraNode(NodeName),
    UserCluster(ClusterName),
    UserNode(ClusterName, NodeName),
    /// Namespace and name of a `VirtualMachineInstanceMigration`.
    VmiMove(Namespace, String),
    /// Namespace and name of a virt-launcher pod.
    LauncherPod(Namespace, String),
    /// The name of a `LabelPropagation`.
    Policy(String),
    Namespace(Namespace),
}

impl Fact {
    /// Labels of the kinds with one object per machine.
    pub(crate) fn labels_mut(&mut self) -> Option<&mut Labels> {
        match self {
            Self::Vmi(vmi) => Some(&mut vmi.labels),
            Self::Vm(vm) => Some(&mut vm.labels),
            Self::InfraNode(node) => Some(&mut node.labels),
            Self::UserNode(node) => Some(&mut node.labels),
            Self::UserCluster(_) | Self::VmiMove(_) | Self::LauncherPod(_) => None,
            Self::Policy(_) | Self::Namespace(_) => None,
        }
    }

    /// Conditions of the kinds that have them.
    pub(crate) fn conditions_mut(&mut self) -> Option<&mut ReportedConditions> {
        match self {
            Self::Vmi(vmi) => Some(&mut vmi.conditions),
            Self::Vm(vm) => Some(&mut vm.conditions),
            Self::InfraNode(node) => Some(&mut node.conditions),
            Self::UserNode(node) => Some(&mut node.conditions),
            Self::UserCluster(_) | Self::VmiMove(_) | Self::LauncherPod(_) => None,
            Self::Policy(_) | Self::Namespace(_) => None,
        }
    }

    pub fn key(&self) -> FactKey {
        match self {
            Self::Vmi(vmi) => FactKey::Vmi(vmi.key.clone()),
            Self::Vm(vm) => FactKey::Vm(vm.key.clone()),
            Self::InfraNode(node) => FactKey::InfraNode(node.name.clone()),
            Self::UserCluster(cluster) => FactKey::UserCluster(cluster.name.clone()),
            Self::UserNode(node) => FactKey::UserNode(node.cluster.clone(), node.name.clone()),
            Self::VmiMove(one) => FactKey::VmiMove(one.vm.namespace.clone(), one.name.clone()),
            Self::LauncherPod(pod) => FactKey::LauncherPod(pod.namespace.clone(), pod.name.clone()),
            Self::Policy(policy) => FactKey::Policy(policy.name.clone()),
            Self::Namespace(namespace) => FactKey::Namespace(namespace.name.clone()),
        }
    }
}

/// A `VirtualMachineInstance`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vmi {
    /// Namespace and name.
    pub key: VmKey,
    /// UID of this incarnation; none when the manifest has none.
    pub uid: Option<Uid>,
    /// UID of the VirtualMachine that controls it (`metadata.ownerReferences`); none without a
    /// VirtualMachine.
    pub owner: Option<Uid>,
    /// `metadata.creationTimestamp` in milliseconds since 1970.
    pub created_ms: Option<u64>,
    pub labels: Labels,
    /// `spec.domain.firmware.uuid`.
    pub firmware_uuid: Option<Uuid>,
    /// `spec.hostname`; KubeVirt uses the name when it is absent.
    pub hostname: Option<String>,
    /// Whether `status` is there at all.
    pub has_status: bool,
    /// `status.phase`.
    pub phase: Phase,
    /// The text of a phase that this version does not know.
    pub other_phase: Option<Box<str>>,
    /// `status.nodeName`: the only source for placement.
    pub node: Option<NodeName>,
    /// `status.interfaces`, in their order.
    pub interfaces: Vec<VmiInterface>,
    /// `status.guestOSInfo.prettyName`, as the guest agent reports it.
    pub guest_os: Option<String>,
    /// What its metadata and its guest agent say against dialling its agent.
    pub exclusion: Exclusion,
    /// Whether `status.conditions` has `Paused=True`.
    pub paused: bool,
    /// `status.migrationState`; none before the first migration.
    pub migration: Option<Migration>,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// The same in milliseconds since 1970.
    pub deleted_ms: Option<u64>,
    /// `status.conditions`.
    pub conditions: ReportedConditions,
    /// `status.evacuationNodeName`: the VM must leave this node.
    pub evacuation_node: Option<NodeName>,
    /// When the VMI became `Running` last, in milliseconds since 1970
    /// (`status.phaseTransitionTimestamps`).
    pub running_since_ms: Option<u64>,
    /// What its `spec` asks for; none without `spec.domain`.
    pub spec: Option<Arc<VmiSpec>>,
    /// Where it may run, and what it requests.
    pub scheduling: Arc<Scheduling>,
    /// Its volumes that a claim backs, also those that were hot-plugged.
    pub volumes: Box<[ClaimVolume]>,
    /// Its volumes that are being plugged in, at most [`crate::volumes::MAX_CLAIM_VOLUMES`].
    pub plugging: Box<[PluggingVolume]>,
}

impl Vmi {
    /// A VMI without status, of which only the name is known.
    pub fn new(key: VmKey) -> Self {
        Self {
            key,
            uid: None,
            owner: None,
            created_ms: None,
            labels: Labels::new(),
            firmware_uuid: None,
            hostname: None,
            has_status: false,
            phase: Phase::default(),
            other_phase: None,
            node: None,
            interfaces: Vec::new(),
            guest_os: None,
            exclusion: Exclusion::None,
            paused: false,
            migration: None,
            deleting: false,
            deleted_ms: None,
            conditions: ReportedConditions::default(),
            evacuation_node: None,
            running_since_ms: None,
            spec: None,
            scheduling: Arc::default(),
            volumes: Box::default(),
            plugging: Box::default(),
        }
    }

    /// The infra node on which it runs and which it must leave.
    pub fn leaves(&self) -> Option<&NodeName> {
        let node = self.evacuation_node.as_ref();
        node.filter(|node| Some(*node) == self.node.as_ref())
    }
}

/// Why the agent of a VM is not to be dialled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exclusion {
    /// It is to be dialled.
    #[default]
    None,
    /// The VM has the annotation.
    Ignored,
    Windows,
}

/// `status.phase` of a VMI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// It has none yet.
    #[default]
    Unset,
    Pending,
    Scheduling,
    Scheduled,
    /// The receiver of a migration from another cluster.
    WaitingForSync,
    Running,
    Succeeded,
    Failed,
    /// KubeVirt does not know it, because the infra node does not say.
    Unknown,
    /// One that this version does not know: [`Vmi::other_phase`].
    Other,
}

impl Phase {
    pub fn of(text: Option<&str>) -> Self {
        match text {
            None => Self::Unset,
            Some("Pending") => Self::Pending,
            Some("Scheduling") => Self::Scheduling,
            Some("Scheduled") => Self::Scheduled,
            Some("WaitingForSync") => Self::WaitingForSync,
            Some("Running") => Self::Running,
            Some("Succeeded") => Self::Succeeded,
            Some("Failed") => Self::Failed,
            Some("Unknown") => Self::Unknown,
            Some(_) => Self::Other,
        }
    }
}

/// One of `status.interfaces`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmiInterface {
    /// The network's name in the VMI; empty for one that only the guest agent knows.
    pub name: String,
    /// Hardware address.
    pub mac: Option<MacAddr>,
    /// `ipAddress` and `ipAddresses`, first one first, without repetition.
    pub addresses: Vec<IpAddr>,
    /// The guest agent may have reported the addresses, so they are never dialled (decision 9):
    /// `infoSource` names the guest agent, alone or among others. KubeVirt overwrites an
    /// interface's addresses with the guest agent's and writes `domain, guest-agent` (kubevirt
    /// #18753, #18760).
    pub addresses_claimed: bool,
    /// The guest agent may have reported the hardware address: `infoSource` names the guest agent
    /// and not `domain`.
    pub mac_claimed: bool,
}

/// A `VirtualMachine`: the definition, which also exists while the VM is stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vm {
    /// Namespace and name.
    pub key: VmKey,
    pub uid: Option<Uid>,
    /// `metadata.creationTimestamp` in milliseconds since 1970.
    pub created_ms: Option<u64>,
    /// Labels of the VM's template, which its VMI will carry, over those of the VM itself.
    pub labels: Labels,
    /// What its metadata says against dialling its agent.
    pub exclusion: Exclusion,
    /// `spec.template.spec.domain.firmware.uuid`. KubeVirt 1.5 and newer write it; before, the VMI
    /// alone has one.
    pub firmware_uuid: Option<Uuid>,
    /// `status.printableStatus`, e.g. `Stopped`.
    pub printable_status: Option<String>,
    /// Since when its condition `Ready` is `False`, in milliseconds since 1970: without VMI, it has
    /// had none since then.
    pub not_ready_since_ms: Option<u64>,
    /// `status.conditions`.
    pub conditions: ReportedConditions,
    /// `spec.runStrategy`, or what `spec.running` says in its place; none if it has neither.
    pub run_strategy: Option<RunStrategy>,
    /// The volumes of its template that a claim backs.
    pub volumes: Box<[ClaimVolume]>,
}

/// When KubeVirt starts a VM: `spec.runStrategy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunStrategy {
    Always,
    RerunOnFailure,
    Manual,
    Halted,
    Once,
    /// `WaitAsReceiver`, or one that this version does not know.
    Other,
}

impl RunStrategy {
    pub fn of(text: &str) -> Self {
        match text {
            "Always" => Self::Always,
            "RerunOnFailure" => Self::RerunOnFailure,
            "Manual" => Self::Manual,
            "Halted" => Self::Halted,
            "Once" => Self::Once,
            _ => Self::Other,
        }
    }

    /// Whether KubeVirt accepts `virtctl start` for a VM without VMI, or whose VMI has ended
    /// (`StartVMRequestHandler` of `pkg/virt-api/rest/lifecycle.go`).
    pub fn can_be_started(self) -> bool {
        matches!(self, Self::Manual | Self::Halted | Self::RerunOnFailure)
    }
}

impl Vm {
    /// Whether its owner wants it stopped.
    pub fn is_halted(&self) -> bool {
        self.run_strategy == Some(RunStrategy::Halted)
    }

    /// A VirtualMachine of which only the name is known.
    pub fn new(key: VmKey) -> Self {
        Self {
            key,
            uid: None,
            created_ms: None,
            labels: Labels::new(),
            firmware_uuid: None,
            exclusion: Exclusion::None,
            printable_status: None,
            not_ready_since_ms: None,
            conditions: ReportedConditions::default(),
            run_strategy: None,
            volumes: Box::default(),
        }
    }
}

/// A Node of the infra cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InfraNode {
    /// Its name.
    pub name: NodeName,
    /// Its UID.
    pub uid: Option<Uid>,
    /// Its labels.
    pub labels: Labels,
    /// The `Ready` condition; none when it is absent or `Unknown`.
    pub ready: Option<bool>,
    /// `status.conditions`.
    #[serde(skip)]
    pub conditions: ReportedConditions,
    /// As [`UserNode::reported_ms`]; the index takes it out.
    #[serde(skip)]
    pub reported_ms: Option<u64>,
    /// `spec.unschedulable`: the node is cordoned.
    #[serde(skip)]
    pub unschedulable: bool,
    /// `spec.taints`.
    #[serde(skip)]
    pub taints: Vec<Taint>,
    /// `status.allocatable`; none if it does not say.
    #[serde(skip)]
    pub allocatable: Option<Allocatable>,
}

/// Resources of an infra node that pods may request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocatable {
    /// CPU and memory.
    pub resources: ResourceAmounts,
    /// Number of pods; none if the node does not say.
    pub pods: Option<u32>,
}

impl InfraNode {
    /// What node requirements of VMs are compared with.
    pub fn traits(&self) -> NodeTraits<'_> {
        NodeTraits {
            name: self.name.as_str(),
            labels: &self.labels,
        }
    }
    /// `topology.kubernetes.io/region`, else its beta name.
    pub fn region(&self) -> Option<&str> {
        self.label(
            "topology.kubernetes.io/region",
            "failure-domain.beta.kubernetes.io/region",
        )
    }
    /// `topology.kubernetes.io/zone`, else its beta name.
    pub fn zone(&self) -> Option<&str> {
        self.label(
            "topology.kubernetes.io/zone",
            "failure-domain.beta.kubernetes.io/zone",
        )
    }
    fn label(&self, ga: &str, beta: &str) -> Option<&str> {
        self.labels.get(ga).or_else(|| self.labels.get(beta))
    }
}

/// A virt-launcher pod: a VMI runs in it. Its addresses come from the infra cluster's CNI plugin,
/// and no guest can change them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LauncherPod {
    pub namespace: Namespace,
    pub name: String,
    /// The name of the VMI that controls it (`metadata.ownerReferences`), in the same namespace;
    /// none when no VMI does.
    pub vm: Option<VmName>,
    pub vmi_uid: Option<Uid>,
    /// `spec.nodeName`.
    pub node: Option<NodeName>,
    /// `status.phase` is `Running`: the addresses of an ended pod may belong to another pod.
    pub running: bool,
    /// `metadata.creationTimestamp`, RFC 3339 in UTC.
    pub created: String,
    /// `status.startTime` in milliseconds since 1970.
    pub started_ms: Option<u64>,
    /// `status.podIPs`, the primary one first.
    pub addresses: Vec<IpAddr>,
    /// The sum of its containers' requests; none if it has none.
    pub requests: Option<ResourceAmounts>,
}

impl LauncherPod {
    /// The VM that it belongs to.
    pub fn key(&self) -> Option<VmKey> {
        Some(VmKey {
            namespace: self.namespace.clone(),
            name: self.vm.clone()?,
        })
    }

    /// Whether `vmi` runs in it. A migrating VM has two pods; the one on `status.nodeName` is used.
    pub fn carries(&self, vmi: &Vmi) -> bool {
        let same_uid = self.vmi_uid.is_none() || vmi.uid.is_none() || self.vmi_uid == vmi.uid;
        let same_node = self.node.is_none() || vmi.node.is_none() || self.node == vmi.node;
        self.running && same_uid && same_node && self.vm.as_ref() == Some(&vmi.key.name)
    }
}
