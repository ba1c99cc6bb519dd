//! Differences between kernels in procfs, sysfs and debugfs.

/// A kernel's format of procfs, sysfs and debugfs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a difference of its own between kernels"
)]
pub struct Kernel {
    /// Its release.
    pub release: &'static str,
    /// Characters of a line of features: 128 since 6.17.
    pub features: u32,
    /// Whether an interrupt chip is named after its device, `PCI-MSIX-0000:00:03.0` instead of
    /// `PCI-MSI`: since 6.2.
    pub named_chips: bool,
    /// Whether debugfs lists the features that devices offer: since 6.8 (`CONFIG_VIRTIO_DEBUG`).
    pub debugfs: bool,
    /// Whether `/proc/irq` has `effective_affinity_list`, which not every architecture has.
    pub effective: bool,
    /// Whether queue counters come from the netlink family `netdev` instead of the driver's
    /// statistics.
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
    /// The newest kernel.
    pub const V6_18: Self = Self {
        release: "6.18.2",
        features: 128,
        ..Self::V6_12
    };
    /// All kernels, oldest first.
    pub const ALL: [Self; 6] = [
        Self::V5_10,
        Self::V5_15,
        Self::V6_1,
        Self::V6_8,
        Self::V6_12,
        Self::V6_18,
    ];
}
