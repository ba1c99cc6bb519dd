//! A disk of a VM: what it holds, what it is attached to, and what the guest may learn of it.

use std::path::{Path, PathBuf};

/// What a disk is attached to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bus {
    /// virtio-blk: `/dev/vd*`.
    Virtio,
    /// A disk of the virtio-scsi controller: `/dev/sd*`.
    Scsi,
}

/// What a disk holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Nothing: so many bytes.
    Blank(u64),
    /// A folder of the host as an ext4 filesystem with this label, with room to spare.
    Folder {
        /// What is copied.
        from: PathBuf,
        /// At most 16 bytes.
        label: String,
    },
    /// What a raw image holds; the file itself is not written to.
    Raw(PathBuf),
    /// A raw image itself, which other guests may have attached at the same time (KubeVirt's `shareable: true`).
    Shared(PathBuf),
    /// KubeVirt's downward metrics as a vhostmd disk of 256 KiB: this XML behind a header.
    DownwardMetrics(String),
}

/// How the guest may know a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known {
    /// By the serial of the VMI's disk.
    Serial(String),
    /// By the volume's name only: libvirt's alias, which on SCSI shows as `drive-ua-<name>` and on virtio-blk not at all.
    Alias,
    /// Not at all.
    Nothing,
}

/// A disk, from [`Disk::blank`] and its siblings and the methods that change it. On virtio-blk and known by its alias, unless
/// said otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    pub(super) name: String,
    pub(super) bus: Bus,
    pub(super) known: Known,
    pub(super) content: Content,
    pub(super) read_only: bool,
}

impl Disk {
    fn new(name: impl Into<String>, content: Content) -> Self {
        Self {
            name: name.into(),
            bus: Bus::Virtio,
            known: Known::Alias,
            content,
            read_only: false,
        }
    }
    /// An empty disk of so many bytes.
    pub fn blank(name: impl Into<String>, bytes: u64) -> Self {
        Self::new(name, Content::Blank(bytes))
    }
    /// A folder of the host, copied into an ext4 filesystem without a partition table.
    pub fn folder(name: impl Into<String>, from: impl AsRef<Path>, label: impl Into<String>) -> Self {
        let from = from.as_ref().to_owned();
        Self::new(
            name,
            Content::Folder {
                from,
                label: label.into(),
            },
        )
    }
    /// A copy of a raw image.
    pub fn raw(name: impl Into<String>, image: impl AsRef<Path>) -> Self {
        Self::new(name, Content::Raw(image.as_ref().to_owned()))
    }
    /// A raw image that several guests may have attached at once, without the host's page cache (`shareable: true`).
    pub fn shared(name: impl Into<String>, image: impl AsRef<Path>) -> Self {
        Self::new(name, Content::Shared(image.as_ref().to_owned()))
    }
    /// The disk that KubeVirt makes for `disk: {}` of a `downwardMetrics` volume.
    pub fn downward_metrics(xml: impl Into<String>) -> Self {
        Self::new("downwardmetrics", Content::DownwardMetrics(xml.into())).read_only()
    }
    /// On the virtio-scsi controller.
    #[must_use]
    pub fn scsi(mut self) -> Self {
        self.bus = Bus::Scsi;
        self
    }
    /// With the serial that the VMI gives it.
    #[must_use]
    pub fn serial(mut self, serial: impl Into<String>) -> Self {
        self.known = Known::Serial(serial.into());
        self
    }
    /// Without anything by which the guest may know it.
    #[must_use]
    pub fn unknown(mut self) -> Self {
        self.known = Known::Nothing;
        self
    }
    /// Not to be written to.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }
}
