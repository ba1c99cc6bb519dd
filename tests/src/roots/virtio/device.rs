//! What every virtio device has.

use virtfleet_agent_core::virtio::{Features, features};

/// How a device's queues get interrupts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Lines {
    /// Each its own.
    #[default]
    Own,
    /// One for all queues: there were not enough vectors.
    Shared,
    /// One line for everything, which another device uses, too.
    Intx,
    /// None: the driver is not there, or has not got so far.
    None,
}

/// What every virtio device has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Virtio {
    /// The status byte; 15 is a device that works.
    pub status: u32,
    /// The features that are agreed on.
    pub features: Features,
    /// The features that are offered beyond those.
    pub offered: Features,
    /// Its interrupts.
    pub lines: Lines,
}

impl Virtio {
    /// A device that works, with these features and those that every modern device has.
    pub fn with(bits: &[u32]) -> Self {
        use features::transport::{EVENT_IDX, INDIRECT_DESC, VERSION_1};
        let common = [INDIRECT_DESC, EVENT_IDX, VERSION_1];
        Self {
            status: 15,
            features: Features::of(common.into_iter().chain(bits.iter().copied())),
            offered: Features(0),
            lines: Lines::Own,
        }
    }
}
