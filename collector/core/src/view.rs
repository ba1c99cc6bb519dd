//! What the API answers and the CLI prints: the joined truth about VMs, hosts and clusters, as of one revision.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::{ClusterName, Namespace, NodeName, Uid, VmKey, VmName},
    report::GuestReport,
};

use crate::{
    facts::{Labels, Migration},
    heard::{Failure, MetricsSummary, UnixMs},
};

/// A list as every list of the API is.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct List<T> {
    /// The items, sorted by their key.
    pub items: Vec<T>,
    /// Grows with every change of the fleet; the same number means the same answer.
    pub revision: u64,
    /// Pass it as `continue` to get the next page; absent on the last.
    #[serde(default, rename = "continue", skip_serializing_if = "Option::is_none")]
    pub continue_token: Option<String>,
    /// What the list is made of has not been read completely (yet, or something cannot be read): absence here proves nothing.
    /// What cannot be read of one user cluster counts when the request names that cluster, and in its own `partial`.
    pub partial: bool,
}

/// What state a VM is in, as the infra cluster sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum VmState {
    /// Defined, without a VMI.
    Stopped,
    /// A VMI that is not yet placed: `Pending`, `Scheduling`, `Scheduled`.
    Starting,
    /// `Running`.
    Running,
    /// `Running`, and a migration is in progress.
    Migrating,
    /// `Running`, and paused by an admin or an I/O error.
    Paused,
    /// Being deleted.
    Stopping,
    /// `Succeeded`: it has shut itself down.
    Succeeded,
    /// `Failed`.
    Failed,
    /// No status, or a phase that we do not know.
    Unknown,
}

impl VmState {
    /// As in JSON and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Migrating => "migrating",
            Self::Paused => "paused",
            Self::Stopping => "stopping",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
    /// Every state.
    pub const ALL: [Self; 9] = [
        Self::Stopped,
        Self::Starting,
        Self::Running,
        Self::Migrating,
        Self::Paused,
        Self::Stopping,
        Self::Succeeded,
        Self::Failed,
        Self::Unknown,
    ];
    /// Whether an agent could answer: the guest's CPUs run.
    pub fn can_answer(self) -> bool {
        matches!(self, Self::Running | Self::Migrating | Self::Stopping)
    }
}

/// How an agent is, as the collector hears it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AgentStatus {
    /// The last pull was answered.
    Up,
    /// The VM runs, and the last pull was not answered.
    Silent,
    /// The VM runs, and no pull has ended yet.
    Waiting,
    /// The VM does not run, so nobody can answer.
    Off,
    /// The VM runs, and the collector pulls no agent: `scrape.tls` is not set.
    Disabled,
}

impl AgentStatus {
    /// As in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Silent => "silent",
            Self::Waiting => "waiting",
            Self::Off => "off",
            Self::Disabled => "disabled",
        }
    }
}

/// One VM in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VmView {
    /// Its namespace in the infra cluster.
    pub namespace: Namespace,
    /// Its name.
    pub name: VmName,
    /// The VMI's UID.
    pub uid: Option<Uid>,
    /// The user cluster that it serves; none when no `UserCluster` selects it, or more than one does.
    pub cluster: Option<ClusterName>,
    /// Its Node in the user cluster.
    pub user_node: Option<NodeName>,
    /// The infra node on which it stands: `status.nodeName`.
    pub infra_node: Option<NodeName>,
    /// That node's region.
    pub region: Option<String>,
    /// That node's zone.
    pub zone: Option<String>,
    /// What state it is in.
    pub state: VmState,
    /// Its agent.
    pub agent: AgentView,
    /// What its guest says of itself; none before the first answer.
    pub guest: Option<GuestView>,
    /// How many findings there are about it, its agent's included.
    pub findings: usize,
    /// The same by severity; not for anybody outside.
    #[serde(skip)]
    pub severities: SeverityCounts,
    /// Another number means other findings, by id and severity; not for anybody outside.
    #[serde(skip)]
    pub findings_key: u64,
}

/// Number of findings of each severity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SeverityCounts {
    /// Findings of [`Severity::Critical`].
    pub critical: usize,
    /// Findings of [`Severity::Warning`].
    pub warning: usize,
    /// Findings of [`Severity::Info`].
    pub info: usize,
}

impl SeverityCounts {
    /// Counts `findings`.
    pub fn of<'a>(findings: impl Iterator<Item = &'a Finding>) -> Self {
        let mut counts = Self::default();
        for finding in findings {
            match finding.severity {
                Severity::Critical => counts.critical += 1,
                Severity::Warning => counts.warning += 1,
                Severity::Info => counts.info += 1,
            }
        }
        counts
    }

    /// Number of findings of `severity`.
    pub fn get(self, severity: Severity) -> usize {
        match severity {
            Severity::Critical => self.critical,
            Severity::Warning => self.warning,
            Severity::Info => self.info,
        }
    }
}

/// A VM's agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentView {
    /// How it is.
    pub status: AgentStatus,
    /// Where it is dialled.
    pub address: Option<SocketAddr>,
    /// When its certificate was last verified at that address; none when the last attempts there did not.
    pub verified_ms: Option<UnixMs>,
    /// Its version, as last heard.
    pub version: Option<String>,
    /// When it last answered.
    pub last_seen_ms: Option<UnixMs>,
    /// When it was last tried.
    pub last_try_ms: Option<UnixMs>,
    /// How long the last answer took, in milliseconds.
    pub took_ms: Option<u64>,
    /// Why the last try failed.
    pub failure: Option<Failure>,
}

/// What a guest says of itself, in short. Claims, all of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuestView {
    /// e.g. `Debian GNU/Linux 12 (bookworm)`.
    pub os: Option<String>,
    /// e.g. `6.1.0-18-cloud-amd64`.
    pub kernel: Option<String>,
    /// Host name as the kernel has it.
    pub hostname: Option<String>,
    /// Its boot id.
    pub boot_id: Option<String>,
    /// Disks that it sees, its root disk too; none when its report has no such section.
    pub disks: Option<usize>,
    /// Network interfaces that stand for a device of the VM; none when its report has no such section.
    pub nics: Option<usize>,
    /// What was kept of its metrics.
    pub metrics: MetricsSummary,
}

/// One VM in full.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VmDetail {
    /// As in the list.
    #[serde(flatten)]
    pub vm: VmView,
    /// The labels by which it is selected: the VMI's, and those that only its VirtualMachine has.
    pub labels: Labels,
    /// The infra node's labels.
    pub infra_node_labels: Labels,
    /// The user-cluster Node's labels.
    pub user_node_labels: Labels,
    /// Its last migration.
    pub migration: Option<Migration>,
    /// Networks with their addresses.
    pub interfaces: Vec<InterfaceView>,
    /// How each of the guest's identities compares with the inventory, by name.
    pub identity: BTreeMap<String, IdentityCheck>,
    /// What somebody should know.
    pub findings_list: Vec<Finding>,
    /// The guest's last report, whole.
    pub report: Option<GuestReport>,
}

/// One network of a VM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InterfaceView {
    /// The network's name in the VMI.
    pub name: String,
    /// Hardware address.
    pub mac: Option<String>,
    /// Addresses.
    pub addresses: Vec<String>,
    /// Whether the agent may be dialled there, and why not.
    pub dial: String,
}

/// One identity, twice: what the inventory says and what the guest says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IdentityCheck {
    /// In the VMI.
    pub expected: Option<String>,
    /// In the report.
    pub claimed: Option<String>,
    /// Where the guest read it.
    pub source: Option<String>,
    /// What follows.
    pub verdict: IdentityVerdict,
}

/// What follows from an [`IdentityCheck`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum IdentityVerdict {
    /// Both say the same.
    Confirmed,
    /// They disagree; there is a finding.
    Disagrees,
    /// One of them does not say.
    Unknown,
}

/// One infra node with the VMs on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostView {
    /// Its name.
    pub name: NodeName,
    /// Whether the inventory has its Node; a VMI may name one that it has not.
    pub known: bool,
    /// Whether it is ready; none when it does not say.
    pub ready: Option<bool>,
    /// Its region.
    pub region: Option<String>,
    /// Its zone.
    pub zone: Option<String>,
    /// VMs on it.
    pub vms: usize,
    /// Of these, agents that answer.
    pub agents_up: usize,
    /// Of these, agents that are silent.
    pub agents_silent: usize,
    /// User clusters with a VM on it.
    pub clusters: Vec<ClusterName>,
}

/// How a user cluster stands.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
pub enum ClusterState {
    /// It has no `UserCluster`, or that one has no kubeconfig yet.
    #[default]
    Pending,
    /// Its Nodes are being read for the first time.
    Connecting,
    /// Its Nodes are watched; or they are read from a folder.
    Ready,
    /// Its kubeconfig cannot be used, or its API server does not answer as it should; its last known Nodes stay.
    Unreachable,
    /// Its API server sends more than is kept of a user cluster; its last known Nodes stay.
    Failed,
    /// As `Ready`, and nothing is written there: `spec.suspend`.
    Suspended,
}

impl ClusterState {
    /// As in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Connecting => "Connecting",
            Self::Ready => "Ready",
            Self::Unreachable => "Unreachable",
            Self::Failed => "Failed",
            Self::Suspended => "Suspended",
        }
    }
}

/// How a user cluster stands, and why.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterStand {
    /// How.
    pub state: ClusterState,
    /// Why it is not `Ready`, and what to do.
    pub message: Option<String>,
}

/// One user cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterView {
    /// Its name.
    pub name: ClusterName,
    /// Whether the inventory has its `UserCluster`; labels of VMs may name one that it has not.
    pub known: bool,
    /// The namespace of its VMIs; the first of them, by name, when it is not known.
    pub namespace: Namespace,
    /// How it stands.
    pub state: ClusterState,
    /// Why it is not `Ready`, and what to do.
    pub message: Option<String>,
    /// Its VMs; when it is not known, those whose labels name it and that no `UserCluster` selects.
    pub vms: usize,
    /// Of these, running ones.
    pub running: usize,
    /// Of these, agents that answer.
    pub agents_up: usize,
    /// Its VMs by zone.
    pub zones: BTreeMap<String, usize>,
    /// Nodes that the user cluster has.
    pub nodes: usize,
    /// Of these, Nodes that no VM stands behind.
    pub nodes_without_vm: usize,
    /// Something of it cannot be read: it may have other Nodes.
    #[serde(default)]
    pub partial: bool,
}

/// Whose objects the inventory may lack, because something of theirs cannot be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gaps {
    /// User clusters that may have other Nodes.
    pub clusters: BTreeSet<ClusterName>,
    /// Namespaces that may have other VMs.
    pub namespaces: BTreeSet<Namespace>,
}

/// The whole fleet as of one revision: what lists are made of.
#[derive(Debug, Clone, Default)]
pub struct FleetSnapshot {
    /// See [`List::revision`].
    pub revision: u64,
    /// Anything may be missing; see [`FleetSnapshot::gaps`] for what is known to be confined.
    pub partial: bool,
    /// Whose objects may be missing.
    pub gaps: Gaps,
    /// Whether the inventory has been read completely at least once.
    pub synced: bool,
    /// Every VM, by namespace and name.
    pub vms: BTreeMap<VmKey, Arc<VmView>>,
    /// Every infra node, by name: those of the inventory and those that a VMI names.
    pub hosts: Vec<HostView>,
    /// Every user cluster, by name: those that have a `UserCluster` and those that only labels of VMs name.
    pub clusters: Vec<ClusterView>,
    /// Findings that belong to no VM: broken files, objects that are not used, Nodes that nobody stands behind. A VM's own
    /// are in its detail.
    pub findings: Vec<Finding>,
}
