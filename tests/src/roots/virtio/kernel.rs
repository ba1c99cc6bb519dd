//! How kernels differ in what they show.

/// How a kernel shows things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a difference of its own between kernels"
)]
pub struct Kernel {
    /// Its release.
    pub release: &'static str,
    /// Characters of a line of features: 128 from 6.17 on.
    pub features: u32,
    /// Whether a chip of interrupts is called by its device, `PCI-MSIX-0000:00:03.0`, and not `PCI-MSI`: from 6.2 on.
    pub named_chips: bool,
    /// Whether debugfs tells what devices offer: from 6.8 on (`CONFIG_VIRTIO_DEBUG`).
    pub debugfs: bool,
    /// Whether `/proc/irq` has `effective_affinity_list`: not on every architecture.
    pub effective: bool,
    /// Whether queues are counted by the netlink family `netdev`, and no more by the driver's own counters.
    pub family: bool,
}

impl Kernel {
    /// Debian 11.
    pub const V5_10: Self = Self {
        release: "5.10.0-35-cloud-amd64",
        features: 64,
        named_chips: false,
        debugfs: false,
        effective: false,
        family: false,
    };
    /// Ubuntu 22.04.
    pub const V5_15: Self = Self {
        release: "5.15.0-143-generic",
        effective: true,
        ..Self::V5_10
    };
    /// Debian 12.
    pub const V6_1: Self = Self {
        release: "6.1.0-37-cloud-amd64",
        ..Self::V5_15
    };
    /// Ubuntu 24.04.
    pub const V6_8: Self = Self {
        release: "6.8.0-63-generic",
        named_chips: true,
        debugfs: true,
        ..Self::V6_1
    };
    /// Debian 13.
    pub const V6_12: Self = Self {
        release: "6.12.38+deb13-cloud-amd64",
        family: true,
        ..Self::V6_8
    };
    /// The newest.
    pub const V6_18: Self = Self {
        release: "6.18.2",
        features: 128,
        ..Self::V6_12
    };
    /// All of them, oldest first.
    pub const ALL: [Self; 6] = [
        Self::V5_10,
        Self::V5_15,
        Self::V6_1,
        Self::V6_8,
        Self::V6_12,
        Self::V6_18,
    ];
}
