//! Live migrations as the API shows them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::ids::{NodeName, Uid};

use super::entry::TimelineEntry;
use crate::pull_result::UnixMs;

/// Progress of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MigrationPhase {
    /// It waits: for a slot, or for its target pod.
    Pending,
    /// Memory is copied.
    Running,
    /// The VM runs on the target.
    Succeeded,
    /// The VM stays on the source.
    Failed,
}

impl MigrationPhase {
    pub const ALL: [Self; 4] = [Self::Pending, Self::Running, Self::Succeeded, Self::Failed];

    /// The name in JSON and in filters.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
        }
    }
}

/// What became of the VM's addresses in a migration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AddressFate {
    /// All addresses are still there.
    Kept,
    /// The VM has other addresses.
    Changed,
    /// The VM had addresses, and has none.
    Lost,
    /// Not known: the addresses before or after are not known.
    #[default]
    Unknown,
}

impl AddressFate {
    /// The name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Changed => "changed",
            Self::Lost => "lost",
            Self::Unknown => "unknown",
        }
    }
}

/// What the guest felt of a migration, as far as its agent and KubeVirt say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigrationFelt {
    /// Whether the agent has reported since the migration ended; if not, nothing is known of the
    /// guest.
    pub is_reported: bool,
    /// Whether the agent can detect pauses; shorter ones than `resolutionMs` it cannot.
    pub detects_pauses: bool,
    /// Length of the pause by the guest's clocks; none if none was detected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_ms: Option<u64>,
    /// Accuracy of `pauseMs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution_ms: Option<u64>,
    /// By how much the guest's wall clock was set; negative: back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_step_ms: Option<i64>,
    /// The guest has booted during the migration or soon after.
    pub is_restarted: bool,
    /// What became of the addresses.
    pub address: AddressFate,
    /// Addresses before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses_before: Vec<String>,
    /// Addresses after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses_after: Vec<String>,
}

/// One live migration of a VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigrationView {
    /// Name of the VirtualMachineInstanceMigration, if it still exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Source node.
    pub source: Option<NodeName>,
    /// Target node.
    pub target: Option<NodeName>,
    /// UID of the object; internal.
    #[serde(skip)]
    pub uid: Option<Uid>,
    /// Progress.
    pub phase: MigrationPhase,
    /// How memory is copied: `PreCopy`, `PostCopy`, `Paused`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Why it has failed, as KubeVirt says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Creation of the VirtualMachineInstanceMigration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_ms: Option<UnixMs>,
    /// Start of the copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ms: Option<UnixMs>,
    /// End.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_ms: Option<UnixMs>,
    /// From start to end, by KubeVirt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// What the guest felt; none if the collector did not observe it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub felt: Option<MigrationFelt>,
}

impl MigrationView {
    /// When it failed, as far as known; none if it did not fail, or nothing says when.
    pub(super) fn failed_ms(&self) -> Option<UnixMs> {
        let at = self.end_ms.or(self.start_ms).or(self.created_ms);
        at.filter(|_| self.phase == MigrationPhase::Failed)
    }

    /// The time by which migrations are sorted: start, else creation, else end.
    pub fn at_ms(&self) -> UnixMs {
        self.start_ms
            .or(self.created_ms)
            .or(self.end_ms)
            .unwrap_or_default()
    }
}

/// Timeline and migrations of a VM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoryView {
    /// What happened, oldest first.
    pub timeline: Vec<TimelineEntry>,
    /// Its migrations, oldest first.
    pub migrations: Vec<MigrationView>,
}
