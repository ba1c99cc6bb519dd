//! One step of a plan.

use serde::{Deserialize, Serialize};

use crate::{
    nic::mask,
    virtio::{Direction, Nic},
};

/// An interface, so that another one that has got its name is told from it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// Its name.
    pub nic: String,
    /// Its number.
    pub index: u32,
    /// Its MAC address.
    pub mac: String,
}

impl Target {
    /// This one.
    pub fn of(nic: &Nic) -> Self {
        Self {
            nic: nic.name.clone(),
            index: nic.index,
            mac: nic.mac.clone(),
        }
    }
}

/// Sizes of the rings of an interface, in descriptors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RingSizes {
    /// Receive.
    pub rx: u32,
    /// Transmit.
    pub tx: u32,
}

/// One step. Those of one interface run in order; when one fails, the others of that interface are left out, and those of other interfaces are not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "step")]
pub enum Step {
    /// Set the number of queues (`ETHTOOL_SCHANNELS`).
    SetChannels {
        /// The interface.
        #[serde(flatten)]
        target: Target,
        /// Queues now.
        from: u32,
        /// Queues then.
        to: u32,
    },
    /// Set which CPUs send by a queue (XPS), or to which what it receives is steered (RPS).
    SetSteering {
        /// The interface.
        #[serde(flatten)]
        target: Target,
        /// Transmit: XPS; receive: RPS.
        direction: Direction,
        /// The queue.
        queue: u32,
        /// CPUs now.
        from: Vec<u32>,
        /// CPUs then.
        to: Vec<u32>,
    },
    /// Set the sizes of the rings (`ETHTOOL_SRINGPARAM`).
    SetRings {
        /// The interface.
        #[serde(flatten)]
        target: Target,
        /// Sizes now.
        from: RingSizes,
        /// Sizes then.
        to: RingSizes,
    },
    /// Set the I/O scheduler of a disk.
    SetScheduler {
        /// The disk.
        disk: String,
        /// The one in use.
        from: Option<String>,
        /// The one that is asked for.
        to: String,
    },
}

impl Step {
    /// The interface or the disk.
    pub fn subject(&self) -> &str {
        match self {
            Self::SetChannels { target, .. }
            | Self::SetSteering { target, .. }
            | Self::SetRings { target, .. } => &target.nic,
            Self::SetScheduler { disk, .. } => disk,
        }
    }

    /// The interface, where it is one.
    pub fn target(&self) -> Option<&Target> {
        match self {
            Self::SetChannels { target, .. }
            | Self::SetSteering { target, .. }
            | Self::SetRings { target, .. } => Some(target),
            Self::SetScheduler { .. } => None,
        }
    }

    /// Whether `nic.multiqueue` says if it may be done. Others are done because the settings ask for them by themselves.
    pub fn is_multiqueue(&self) -> bool {
        match self {
            Self::SetChannels { .. } => true,
            Self::SetSteering { direction, .. } => *direction == Direction::Transmit,
            Self::SetRings { .. } | Self::SetScheduler { .. } => false,
        }
    }
}

impl std::fmt::Display for Step {
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
                let from = from.as_deref().unwrap_or("an unknown one");
                write!(f, "{disk}: scheduler {to} instead of {from}")
            }
        }
    }
}
