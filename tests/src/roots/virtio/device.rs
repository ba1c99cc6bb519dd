//! Properties of all virtio devices.

use virtfleet_agent_core::virtio::{Features, features};

/// Interrupts of a device's queues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Lines {
    /// One vector for each queue.
    #[default]
    Own,
    /// One vector for all queues, because there were not enough vectors.
    Shared,
    /// One legacy interrupt line, shared with another device.
    Intx,
    /// None: the driver is missing, or has not set up interrupts yet.
    None,
}

/// Properties of all virtio devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Virtio {
    /// The status byte; 15 means that the device works.
    pub status: u32,
    /// The negotiated features.
    pub features: Features,
    /// Features that are offered and not negotiated.
    pub offered: Features,
    /// Its interrupts.
    pub lines: Lines,
}

impl Virtio {
    /// A working device, with these features and those of every modern device.
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
