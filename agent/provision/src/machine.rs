//! Which VM and which boot a run works in.

use std::path::{Path, PathBuf};

use virtfleet_agent_core::identity::{cloud::plain, dmi};
use virtfleet_agent_host::{Roots, is_directory, read_text};

/// The VM, its boot, and whether systemd runs it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BootIdentity {
    /// UUID in the SMBIOS system information; empty if the VM has none.
    pub vm_uuid: String,
    /// Boot id (`/proc/sys/kernel/random/boot_id`); empty if it cannot be read.
    pub boot_id: String,
    /// True if systemd runs the guest, and the root filesystem is that of the running guest.
    pub systemd: bool,
}

impl BootIdentity {
    /// Reads the identity from the guest's trees.
    pub fn of(roots: &Roots) -> Self {
        let line = |path: PathBuf| read_text(&path, 4096).unwrap_or_default();
        Self {
            vm_uuid: dmi::uuid(&line(roots.sys("class/dmi/id/product_uuid"))).unwrap_or_default(),
            boot_id: plain(&line(roots.proc("sys/kernel/random/boot_id"))).unwrap_or_default(),
            systemd: roots.rootfs == Path::new("/") && is_directory(Path::new("/run/systemd/system")),
        }
    }
}
