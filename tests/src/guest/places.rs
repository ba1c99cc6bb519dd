//! Where the files of a guest are.

use std::path::PathBuf;

/// Where the files of a guest are.
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
    /// A tap device for each NIC, when the VM has those.
    pub(super) taps: Vec<String>,
}

impl Places {
    /// A socket or log of the guest.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}
