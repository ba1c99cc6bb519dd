//! Views that the API returns and the CLI prints: VMs, hosts and clusters as of one revision.

mod clusters;

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

pub use crate::cluster_label::ClusterLabel;
pub use clusters::{ClusterState, ClusterStatus, ClusterView};

use crate::{
    enrolment::{EnrolmentState, KeyFingerprint},
    facts::{Labels, Migration},
    health::{HealthConditionView, HealthView},
    longer_history::HistoryRange,
    pull_result::{Failure, MetricsSummary, UnixMs},
    queue_traffic::QueueTraffic,
    spec_view::SpecCheckView,
    story::{MigrationView, TimelineEntry},
    usage::GuestUsage,
    usage_history::UsageHistoryView,
    way::AgentWay,
};

/// A list in the API.
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
    /// The source of the list has not been read completely, so missing items may exist. Unreadable
    /// objects of one user cluster set this only if the request names that cluster; they also set
    /// its own `partial`.
    pub partial: bool,
}

/// State of a VM in the infra cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[derive(strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
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
    /// `Succeeded`: the guest has shut down.
    Succeeded,
    /// `Failed`.
    Failed,
    /// No status, or an unknown phase.
    Unknown,
}

impl VmState {
    /// The name in JSON and metrics.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;
    /// Whether the VM should leave this state soon.
    pub fn is_transitional(self) -> bool {
        matches!(self, Self::Starting | Self::Stopping | Self::Migrating)
    }
    /// Whether an agent can answer: the guest's CPUs run.
    pub fn can_answer(self) -> bool {
        matches!(self, Self::Running | Self::Migrating | Self::Stopping)
    }
}

/// Status of an agent, by the collector's pulls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[derive(strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum AgentStatus {
    /// The last pull succeeded.
    Up,
    /// The VM runs, and the last pull failed.
    Silent,
    /// The VM runs, and no pull has ended yet.
    Waiting,
    /// The VM does not run, so its agent cannot answer.
    Off,
    /// The VM runs, and the collector pulls no agent: neither `enrolment` nor `scrape.tls` is set.
    Disabled,
    /// The collector does not pull this agent: the VM or its namespace has the annotation
    /// `virtfleet.io/ignore`, `vms.selector` does not select it, or its guest is Windows.
    Unmanaged,
}

impl AgentStatus {
    /// The name in JSON.
    pub fn as_str(self) -> &'static str {
        self.into()
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
    /// Its user cluster; none when no `UserCluster` selects it, or more than one does.
    pub cluster: Option<ClusterName>,
    /// Its Node in the user cluster.
    pub user_node: Option<NodeName>,
    /// The infra node on which it runs: `status.nodeName`.
    pub infra_node: Option<NodeName>,
    /// That node's region.
    pub region: Option<String>,
    /// That node's zone.
    pub zone: Option<String>,
    /// State of the VM.
    pub state: VmState,
    /// Its agent.
    pub agent: AgentView,
    /// Data that its guest reports; none before the first answer.
    pub guest: Option<GuestView>,
    /// Its health: verdict, cause, and what to do.
    #[serde(default)]
    pub health: HealthView,
    /// Number of findings about it, including its agent's.
    pub findings: usize,
    /// Number of findings by severity; internal.
    #[serde(skip)]
    pub severities: SeverityCounts,
    /// Hash of the findings' ids and severities; internal.
    #[serde(skip)]
    pub findings_key: u64,
    /// The user cluster in its labels, when no `UserCluster` selects it; internal.
    #[serde(skip)]
    pub cluster_label: Option<ClusterLabel>,
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
    /// Status.
    pub status: AgentStatus,
    /// The address that is dialled, or from which the agent has connected (`way`).
    pub address: Option<SocketAddr>,
    /// How the agent is reached; none if there is no address.
    #[serde(default)]
    pub way: Option<AgentWay>,
    /// Time of the last verification of its certificate at that address; none if the last pulls did
    /// not verify it.
    pub verified_ms: Option<UnixMs>,
    /// Version in its last answer.
    pub version: Option<String>,
    /// Time of its last answer.
    pub last_seen_ms: Option<UnixMs>,
    /// Time of the last pull.
    pub last_try_ms: Option<UnixMs>,
    /// Duration of the last successful pull, in milliseconds.
    pub took_ms: Option<u64>,
    /// Failure of the last pull.
    pub failure: Option<Failure>,
}

/// Summary of a guest's report. The values are not verified.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuestView {
    /// e.g. `Debian GNU/Linux 12 (bookworm)`.
    pub os: Option<String>,
    /// e.g. `6.1.0-18-cloud-amd64`.
    pub kernel: Option<String>,
    /// Host name of the kernel.
    pub hostname: Option<String>,
    /// Its boot id.
    pub boot_id: Option<String>,
    /// Number of disks, including the root disk; none when its report has no such section.
    pub disks: Option<usize>,
    /// Number of network interfaces of the VM; none when its report has no such section.
    pub nics: Option<usize>,
    /// Summary of its metrics.
    pub metrics: MetricsSummary,
    /// Use of CPU and memory between the last two pulls; none if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<GuestUsage>,
}

/// All details of one VM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VmDetail {
    /// The VM as in lists.
    #[serde(flatten)]
    pub vm: VmView,
    /// When its VirtualMachine was created, or its VMI where there is no VirtualMachine; none if
    /// its manifest does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_ms: Option<UnixMs>,
    /// The labels by which it is selected: the VMI's, and those that only its VirtualMachine has.
    pub labels: Labels,
    /// The infra node's labels.
    pub infra_node_labels: Labels,
    /// The user-cluster Node's labels.
    pub user_node_labels: Labels,
    /// Status of each condition that the collector writes to that Node, by type
    /// (`virtfleet.io/DisksReady`), as the Node has them.
    #[serde(default)]
    pub node_conditions: BTreeMap<String, String>,
    /// Its last migration.
    pub migration: Option<Migration>,
    /// Networks with their addresses.
    pub interfaces: Vec<InterfaceView>,
    /// Comparison of the guest's identities with the inventory, by name.
    pub identity: BTreeMap<String, IdentityCheck>,
    /// Comparison of its specification with what its guest sees, differences first; empty without
    /// `spec.domain`.
    #[serde(default)]
    pub spec: Vec<SpecCheckView>,
    /// The conditions from which its health follows.
    #[serde(default)]
    pub conditions: Vec<HealthConditionView>,
    /// Findings about the VM.
    pub findings_list: Vec<Finding>,
    /// What happened to it since the collector started, oldest first; bounded.
    #[serde(default)]
    pub timeline: Vec<TimelineEntry>,
    /// Since when the collector remembers; times in `timeline` may be earlier where KubeVirt or the
    /// guest knew them.
    #[serde(default)]
    pub timeline_since_ms: Option<UnixMs>,
    /// Its last migrations, oldest first.
    #[serde(default)]
    pub migrations: Vec<MigrationView>,
    /// Use of CPU and pressure over the last hour, as its guest reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage_history: Option<UsageHistoryView>,
    /// Ranges of `/api/v1/vms/{namespace}/{name}/history`; empty if this collector has no
    /// Prometheus to read from.
    #[serde(default)]
    pub history_ranges: Vec<HistoryRange>,
    /// Traffic of each queue of its network interfaces between the last two pulls.
    #[serde(default)]
    pub queues: Vec<QueueTraffic>,
    /// Its recorded key, if this collector issues certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enrolment: Option<EnrolmentView>,
    /// The guest's last complete report.
    pub report: Option<GuestReport>,
}

/// The recorded key of a VM and its latest certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnrolmentView {
    /// Whether its certificates are used.
    pub state: EnrolmentState,
    /// UID in its certificates: of the VirtualMachine, else of the VMI.
    pub uid: Uid,
    /// SHA-256 of its key (SubjectPublicKeyInfo).
    pub key_sha256: Option<KeyFingerprint>,
    /// Serial number of the latest certificate, in hexadecimal digits.
    pub serial: Option<String>,
    /// End of that certificate's validity.
    pub not_after_ms: UnixMs,
    /// Time when the key was recorded.
    pub enrolled_ms: UnixMs,
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
    /// Whether the agent may be dialled at these addresses, and why not.
    pub dial: String,
}

/// Comparison of one identity in the inventory with the same in the guest's report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IdentityCheck {
    /// Value in the VMI.
    pub expected: Option<String>,
    /// Value in the report.
    pub claimed: Option<String>,
    /// Source of the guest's value.
    pub source: Option<String>,
    /// Result.
    pub verdict: IdentityVerdict,
}

/// Result of an [`IdentityCheck`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum IdentityVerdict {
    /// Both values agree.
    Confirmed,
    /// The values disagree; there is a finding.
    Disagrees,
    /// One value is missing.
    Unknown,
}

/// One infra node with the VMs on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostView {
    /// Its name.
    pub name: NodeName,
    /// Whether the inventory has its Node; a VMI may name a missing one.
    pub known: bool,
    /// The `Ready` condition; none when unknown.
    pub ready: Option<bool>,
    /// It takes no other VMs: `spec.unschedulable`.
    #[serde(default)]
    pub cordoned: bool,
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

/// Scopes in which the inventory may lack objects, because some cannot be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gaps {
    /// User clusters that may have more Nodes.
    pub clusters: BTreeSet<ClusterName>,
    /// Namespaces that may have more VMs.
    pub namespaces: BTreeSet<Namespace>,
}

/// The whole fleet as of one revision.
#[derive(Debug, Clone, Default)]
pub struct FleetSnapshot {
    /// See [`List::revision`].
    pub revision: u64,
    /// Objects of any scope may be missing; [`FleetSnapshot::gaps`] has the limited scopes.
    pub partial: bool,
    /// Scopes in which objects may be missing.
    pub gaps: Gaps,
    /// Whether the inventory has been read completely at least once.
    pub synced: bool,
    /// Every VM, by namespace and name.
    pub vms: BTreeMap<VmKey, Arc<VmView>>,
    /// Every infra node of the inventory or that a VMI names, by name.
    pub hosts: Vec<HostView>,
    /// Every user cluster, by name: those with a `UserCluster` and those that only labels of VMs
    /// name.
    pub clusters: Vec<ClusterView>,
    /// Findings about no particular VM: broken files, unused objects, missing nodes and clusters.
    /// Findings about a VM are in its detail.
    pub findings: Vec<Finding>,
}
