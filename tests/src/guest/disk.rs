//! Disks of a VM: content, bus, and the identifiers that the guest sees.

use std::path::{Path, PathBuf};

/// Bus of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bus {
    /// virtio-blk: `/dev/vd*`.
    Virtio,
    /// A disk of the virtio-scsi controller: `/dev/sd*`.
    Scsi,
}

/// Content of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Blank, of so many bytes.
    Blank(u64),
    /// A folder of the host as an ext4 filesystem with this label and free space.
    Folder {
        /// The source folder.
        from: PathBuf,
        /// At most 16 bytes.
        label: String,
    },
    /// A copy of a raw image.
    Raw(PathBuf),
    /// A raw image itself, which several guests may attach at the same time (KubeVirt's `shareable:
    /// true`).
    Shared(PathBuf),
    /// KubeVirt's downward metrics as a vhostmd disk of 256 KiB: a header and this XML.
    DownwardMetrics(String),
}

/// Identifier by which the guest can find a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known {
    /// The serial of the VMI's disk.
    Serial(String),
    /// Only the volume's name: libvirt's alias, which the guest sees as `drive-ua-<name>` on SCSI
    /// and not at all on virtio-blk.
    Alias,
    /// None.
    Nothing,
}

/// A disk; created with [`Disk::blank`] and similar functions. Default: on virtio-blk, identified
/// by its alias.
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
    /// A blank disk of so many bytes.
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
    /// A raw image that several guests may attach at once, without the host's page cache
    /// (`shareable: true`).
    pub fn shared(name: impl Into<String>, image: impl AsRef<Path>) -> Self {
        Self::new(name, Content::Shared(image.as_ref().to_owned()))
    }
    /// The disk that KubeVirt creates for `disk: {}` of a `downwardMetrics` volume.
    pub fn downward_metrics(xml: impl Into<String>) -> Self {
        Self::new("downwardmetrics", Content::DownwardMetrics(xml.into())).read_only()
    }
    /// Attaches the disk to the virtio-scsi controller.
    #[must_use]
    pub fn scsi(mut self) -> Self {
        self.bus = Bus::Scsi;
        self
    }
    /// Sets the serial of the VMI's disk.
    #[must_use]
    pub fn serial(mut self, serial: impl Into<String>) -> Self {
        self.known = Known::Serial(serial.into());
        self
    }
    /// Removes all identifiers.
    #[must_use]
    pub fn unknown(mut self) -> Self {
        self.known = Known::Nothing;
        self
    }
    /// Makes the disk read-only.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }
}
