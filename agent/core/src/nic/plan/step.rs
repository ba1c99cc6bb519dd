//! Steps of a plan.

use serde::{Deserialize, Serialize};

use crate::{
    nic::mask,
    virtio::{Direction, Nic},
};

/// Identity of an interface, so that another one with the same name is detected.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    pub nic: String,
    pub index: u32,
    pub mac: String,
}

impl Target {
    /// Identity of `nic`.
    pub fn of(nic: &Nic) -> Self {
        Self {
            nic: nic.name.clone(),
            index: nic.index,
            mac: nic.mac.clone(),
        }
    }
}

/// Ring sizes of an interface, in descriptors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RingSizes {
    pub rx: u32,
    pub tx: u32,
}

/// Step of a plan. The steps of one interface run in order; if one fails, the rest of that
/// interface's steps is skipped, and other interfaces continue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "step")]
pub enum NicStep {
    /// Set the number of queues (`ETHTOOL_SCHANNELS`).
    SetChannels {
        #[serde(flatten)]
        target: Target,
        /// Current number of queues.
        from: u32,
        /// New number of queues.
        to: u32,
    },
    /// Set the CPUs that send by a queue (XPS), or to which its received packets are steered (RPS).
    SetSteering {
        #[serde(flatten)]
        target: Target,
        /// Transmit for XPS, receive for RPS.
        direction: Direction,
        queue: u32,
        /// Current CPUs.
        from: Vec<u32>,
        /// New CPUs.
        to: Vec<u32>,
    },
    /// Set the ring sizes (`ETHTOOL_SRINGPARAM`).
    SetRings {
        #[serde(flatten)]
        target: Target,
        from: RingSizes,
        to: RingSizes,
    },
    /// Set the I/O scheduler of a disk.
    SetScheduler {
        disk: String,
        from: Option<String>,
        to: String,
    },
}

impl NicStep {
    /// Name of the interface or the disk.
    pub fn subject(&self) -> &str {
        match self {
            Self::SetChannels { target, .. }
            | Self::SetSteering { target, .. }
            | Self::SetRings { target, .. } => &target.nic,
            Self::SetScheduler { disk, .. } => disk,
        }
    }

    /// The interface, if the step changes one.
    pub fn target(&self) -> Option<&Target> {
        match self {
            Self::SetChannels { target, .. }
            | Self::SetSteering { target, .. }
            | Self::SetRings { target, .. } => Some(target),
            Self::SetScheduler { .. } => None,
        }
    }

    /// Whether `nic.multiqueue` controls this step. All other steps run because another setting
    /// requests them.
    pub fn is_multiqueue(&self) -> bool {
        match self {
            Self::SetChannels { .. } => true,
            Self::SetSteering { direction, .. } => *direction == Direction::Transmit,
            Self::SetRings { .. } | Self::SetScheduler { .. } => false,
        }
    }
}

impl std::fmt::Display for NicStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::SetChannels { target, from, to } => {
                let s = if *to == 1 { "" } else { "s" };
                write!(f, "{}: {to} queue{s} instead of {from}", target.nic)
            }
            Self::SetSteering {
                target,
                direction,
                queue,
                from,
                to,
            } => {
                let (what, short) = match direction {
                    Direction::Transmit => ("XPS", "tx"),
                    Direction::Receive => ("RPS", "rx"),
                };
                let (from, to) = (mask::words(from), mask::words(to));
                write!(
                    f,
                    "{}: {what} of {short}-{queue}: CPUs {to} instead of {from}",
                    target.nic
                )
            }
            Self::SetRings { target, from, to } => write!(
                f,
                "{}: rings of {} (rx) and {} (tx) instead of {} and {}",
                target.nic, to.rx, to.tx, from.rx, from.tx
            ),
            Self::SetScheduler { disk, from, to } => {
                let from = from.as_deref().unwrap_or("an unknown scheduler");
                write!(f, "{disk}: scheduler {to} instead of {from}")
            }
        }
    }
}
