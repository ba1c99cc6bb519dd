//! Live migrations.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::ids::{NodeName, Uid, VmKey};

/// `status.migrationState` of a VMI.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Migration {
    /// Source node.
    pub source: Option<NodeName>,
    /// Target node.
    pub target: Option<NodeName>,
    /// It has ended.
    pub completed: bool,
    /// It has ended without success.
    pub failed: bool,
    /// Start, RFC 3339.
    pub start: Option<String>,
    /// End, RFC 3339.
    pub end: Option<String>,
    /// How memory is copied: `PreCopy`, `PostCopy`, `Paused`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Why it has failed, as KubeVirt says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// The UID of its VirtualMachineInstanceMigration; internal.
    #[serde(skip)]
    pub uid: Option<Uid>,
    /// The start in milliseconds since 1970; internal.
    #[serde(skip)]
    pub start_ms: Option<u64>,
    /// The end in milliseconds since 1970; internal.
    #[serde(skip)]
    pub end_ms: Option<u64>,
}

impl Migration {
    /// Whether it has started and not ended. Without start or target it has not: a VMI that waits
    /// for another cluster has this state, too.
    pub fn in_progress(&self) -> bool {
        let has_begun = self.start.is_some() || self.target.is_some();
        has_begun && !self.completed && !self.failed && self.end.is_none()
    }
}

/// A `VirtualMachineInstanceMigration`: records a node on which a VM has run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmiMove {
    pub name: String,
    pub uid: Option<Uid>,
    /// The VMI that it moves: `spec.vmiName` in its own namespace.
    pub vm: VmKey,
    /// `status.migrationState.sourceNode`: the VM has run there.
    pub source: Option<NodeName>,
    /// `status.phase`, e.g. `Succeeded`.
    pub phase: Option<Box<str>>,
    /// `metadata.creationTimestamp` in milliseconds since 1970.
    pub created_ms: Option<u64>,
    /// `status.migrationState`; none before the target is ready.
    pub state: Option<Box<Migration>>,
}

impl VmiMove {
    /// A migration object of which only the names are known.
    pub fn new(name: &str, vm: VmKey) -> Self {
        Self {
            name: name.to_owned(),
            uid: None,
            vm,
            source: None,
            phase: None,
            created_ms: None,
            state: None,
        }
    }
}
