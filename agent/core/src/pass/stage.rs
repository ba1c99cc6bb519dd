//! The stages of provisioning.

use serde::{Deserialize, Serialize};

/// Stage of a run. Each stage has its own systemd unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Once per boot, before the network and the container runtime start.
    Provision,
    /// Once per boot, when the network is up.
    Dns,
    /// After each change, and periodically.
    Reconcile,
}

impl Stage {
    /// All stages, in boot order.
    pub const ALL: [Self; 3] = [Self::Provision, Self::Dns, Self::Reconcile];

    /// Name of the stage on the command line and in the record.
    pub fn word(self) -> &'static str {
        match self {
            Self::Provision => "provision",
            Self::Dns => "dns",
            Self::Reconcile => "reconcile",
        }
    }

    /// Systemd unit that runs this stage.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Provision => "virtfleet-provision.service",
            Self::Dns => "virtfleet-dns.service",
            Self::Reconcile => "virtfleet-reconcile.service",
        }
    }
}
