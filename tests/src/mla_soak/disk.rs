//! A small filesystem for queues, which can be full for a while. Needs root.

use std::{fs, io::Write as _, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::process::{AtEnd, Launch};

const MOUNT_TIMEOUT: Duration = Duration::from_secs(20);
/// Bytes written at once to fill it.
static BLOCK: [u8; 64 * 1024] = [0; 64 * 1024];

/// A mounted tmpfs. Dropping it, or the end of this process, unmounts it.
#[derive(Debug)]
pub(super) struct SmallDisk {
    // Held for its drop, before the folder's.
    _unmount: AtEnd,
    folder: TempDir,
}

impl SmallDisk {
    /// Mounts a filesystem of so many MiB.
    pub(super) fn mount(mebibytes: usize) -> Result<Self> {
        let folder = tempfile::tempdir().context("a folder to mount on")?;
        let unmount = AtEnd::new("umount -l \"$1\"", [folder.path()])?;
        Launch::new("mount")
            .args(["-t", "tmpfs", "-o"])
            .arg(format!("size={mebibytes}m"))
            .arg("virtfleet-soak")
            .arg(folder.path())
            .text(MOUNT_TIMEOUT)?;
        Ok(Self {
            _unmount: unmount,
            folder,
        })
    }

    /// The folder of the queues.
    pub(super) fn queues(&self) -> PathBuf {
        self.folder.path().join("queues")
    }

    fn filler(&self) -> PathBuf {
        self.folder.path().join("filler")
    }

    /// Fills it.
    pub(super) fn fill(&self) -> Result<()> {
        let mut file = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.filler())?;
        // Ends with the error that there is no space left; then the rest of a block.
        while file.write_all(&BLOCK).is_ok() {}
        while file.write_all(&BLOCK[..1]).is_ok() {}
        Ok(())
    }

    /// Makes room again.
    pub(super) fn make_room(&self) -> Result<()> {
        fs::remove_file(self.filler()).context("remove the file that fills the disk")
    }
}
