//! `nic` and `virtio`: queues of network interfaces, and what else is asked of virtio devices.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::Span;

/// Queues of virtio network interfaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct NicSettings {
    /// What may be done to the number of queues: look, raise it, or neither.
    pub multiqueue: Multiqueue,
    /// Leave interfaces alone whose number of queues somebody else has chosen: one that is neither
    /// what the kernel sets up by itself nor what the agent has set.
    pub keep_manual: bool,
    /// A regular expression for the names of interfaces that are left alone, e.g. `^ens4$`. Empty:
    /// none.
    pub exclude: String,
    /// How long a link may take to come back after a change; one that takes longer gets back what
    /// it had.
    pub settle: Span,
    /// Sizes of the rings. Absent: left as they are.
    pub rings: RingSettings,
    /// Receive packet steering (RPS): which CPUs handle received packets after the one that took
    /// the interrupt.
    pub rps: Steering,
}

impl Default for NicSettings {
    fn default() -> Self {
        Self {
            multiqueue: Multiqueue::default(),
            keep_manual: false,
            exclude: String::new(),
            settle: Span::seconds(10),
            rings: RingSettings::default(),
            rps: Steering::default(),
        }
    }
}

/// What may be done to the number of queues of a network interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Multiqueue {
    /// Nothing. What the agent changed in this boot is put back.
    Off,
    /// Looked at and reported; changed only by `virtfleet-agent apply nic`.
    #[default]
    ReportOnly,
    /// Raised to one queue for each vCPU that is online, or as many as the VM's interface has, at
    /// boot and whenever vCPUs come.
    Auto,
}

/// Sizes of an interface's rings, in descriptors. A size above what the interface can have means
/// the most that it can.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RingSettings {
    /// Of what is received.
    #[schemars(range(min = 64))]
    pub rx: Option<u32>,
    /// Of what is sent.
    #[schemars(range(min = 64))]
    pub tx: Option<u32>,
}

/// Which CPUs packets are steered to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Steering {
    /// Left as it is.
    #[default]
    Keep,
    /// None.
    Off,
    /// All that are online.
    All,
}

/// What else is asked of virtio devices.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct VirtioSettings {
    /// The I/O scheduler of virtio disks, e.g. `none` or `mq-deadline`. Absent: left as it is.
    pub disk_scheduler: Option<String>,
}
