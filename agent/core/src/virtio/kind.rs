//! Types of virtio devices.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Type of a device: its number in the specification, 5.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Kind(pub u32);

impl Kind {
    /// A network interface.
    pub const NET: Self = Self(1);
    pub const BLOCK: Self = Self(2);
    /// A console with its ports, including that of the guest agent.
    pub const CONSOLE: Self = Self(3);
    /// A source of randomness.
    pub const RNG: Self = Self(4);
    pub const BALLOON: Self = Self(5);
    pub const SCSI: Self = Self(8);
    pub const GPU: Self = Self(16);
    /// Keyboard, mouse, tablet.
    pub const INPUT: Self = Self(18);
    /// Sockets between guest and host.
    pub const VSOCK: Self = Self(19);
    pub const CRYPTO: Self = Self(20);
    pub const IOMMU: Self = Self(23);
    /// Hot-pluggable memory.
    pub const MEM: Self = Self(24);
    pub const SOUND: Self = Self(25);
    /// A shared folder.
    pub const FS: Self = Self(26);
    /// Persistent memory.
    pub const PMEM: Self = Self(27);

    /// Short name, e.g. `net`; `None` for an unknown type.
    pub fn name(self) -> Option<&'static str> {
        KINDS.iter().find(|one| one.0 == self.0).map(|one| one.1)
    }
}

/// Formats the short name, or `type 77`.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "type {}", self.0),
        }
    }
}

/// Short names of the types: those of the specification, 5, as in Linux
/// (`include/uapi/linux/virtio_ids.h`).
pub(super) const KINDS: [(u32, &str); 40] = [
    (1, "net"),
    (2, "blk"),
    (3, "console"),
    (4, "rng"),
    (5, "balloon"),
    (6, "iomem"),
    (7, "rpmsg"),
    (8, "scsi"),
    (9, "9p"),
    (10, "wlan"),
    (11, "rproc-serial"),
    (12, "caif"),
    (13, "memory-balloon"),
    (16, "gpu"),
    (17, "clock"),
    (18, "input"),
    (19, "vsock"),
    (20, "crypto"),
    (21, "signal-dist"),
    (22, "pstore"),
    (23, "iommu"),
    (24, "mem"),
    (25, "sound"),
    (26, "fs"),
    (27, "pmem"),
    (28, "rpmb"),
    (29, "wlan-hwsim"),
    (30, "video-encoder"),
    (31, "video-decoder"),
    (32, "scmi"),
    (33, "nitro-sec"),
    (34, "i2c"),
    (35, "watchdog"),
    (36, "can"),
    (37, "dmabuf"),
    (38, "parameters"),
    (39, "audio-policy"),
    (40, "bluetooth"),
    (41, "gpio"),
    (42, "rdma"),
];
