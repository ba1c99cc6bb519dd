//! `nic` and `virtio`: queues of network interfaces, and other settings of virtio devices.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::Span;

/// Queues of virtio network interfaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct NicSettings {
    /// Whether the agent raises the number of queues, only reports it, or does neither.
    pub multiqueue: Multiqueue,
    /// Do not change an interface whose number of queues was set by hand or by another program: a
    /// number that is neither the kernel's default nor set by the agent.
    pub keep_manual: bool,
    /// Regular expression for the names of interfaces that the agent does not change, e.g.
    /// `^ens4$`. Empty: no interface.
    pub exclude: String,
    /// Maximum time until the link is up again after a change. If it takes longer, the agent
    /// restores the previous values.
    pub settle: Span,
    /// Ring sizes. Absent: not changed.
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

/// What the agent may do to the number of queues of a network interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Multiqueue {
    /// Do not change it. The agent restores what it changed in this boot.
    Off,
    /// Read and report it. Only `virtfleet-agent apply nic` changes it.
    #[default]
    ReportOnly,
    /// Raise it to one queue per online vCPU, at most to the maximum of the VM's interface, at boot
    /// and whenever vCPUs are added.
    Auto,
}

/// Ring sizes of an interface, in descriptors. A size above the interface's maximum means the
/// maximum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RingSettings {
    /// Size of the receive ring.
    #[schemars(range(min = 64))]
    pub rx: Option<u32>,
    /// Size of the transmit ring.
    #[schemars(range(min = 64))]
    pub tx: Option<u32>,
}

/// CPUs for receive packet steering.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Steering {
    /// Do not change the setting.
    #[default]
    Keep,
    /// No CPU: steering is off.
    Off,
    /// All online CPUs.
    All,
}

/// Other settings of virtio devices.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct VirtioSettings {
    /// I/O scheduler of virtio disks, e.g. `none` or `mq-deadline`. Absent: not changed.
    pub disk_scheduler: Option<String>,
}
