//! Feature bits (Virtual I/O Device specification, 2.2 and 6; Linux `include/uapi/linux/virtio_*.h`).

use serde::{Deserialize, Serialize};

/// A set of feature bits, as sysfs prints it: character *i* is bit *i*; 64 of them, on newer kernels 128.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Features(pub u128);

impl Features {
    /// Whether bit `bit` is set.
    pub fn has(self, bit: u32) -> bool {
        bit < u128::BITS && self.0 >> bit & 1 == 1
    }
}
