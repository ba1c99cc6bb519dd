//! Paths of a guest's files.

use std::path::PathBuf;

/// Paths of a guest's files.
#[derive(Debug, Clone)]
pub(super) struct Places {
    /// Kernel and initrd.
    pub(super) image: PathBuf,
    /// Sockets, logs and texts.
    pub(super) folder: PathBuf,
    /// The root disk (qcow2).
    pub(super) root: PathBuf,
    /// The seed (raw).
    pub(super) seed: PathBuf,
    /// A tap device for each NIC, if the VM uses them.
    pub(super) taps: Vec<String>,
}

impl Places {
    /// A socket or log of the guest.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}
