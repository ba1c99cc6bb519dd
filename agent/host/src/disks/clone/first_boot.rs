//! Time of the root disk's first boot, from files that the first boot creates and that no image
//! contains.

use std::{
    fs,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use virtfleet_agent_core::disks::clone::FirstBoot;

use crate::{Roots, list, read_text};

/// The earliest creation time (statx(2), `stx_btime`) of the journal's directory of this machine
/// id, cloud-init's instance directories and the SSH host keys. Each is created at or after the
/// first boot, so the earliest is the closest. `None` if none of them exists or the filesystem
/// records no creation times.
pub(super) fn first_boot(roots: &Roots) -> Option<FirstBoot> {
    let mut paths = Vec::new();
    let id = read_text(&roots.root("/etc/machine-id"), 64).unwrap_or_default();
    let id = id.trim();
    if id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        paths.push(PathBuf::from(format!("/var/log/journal/{id}")));
    }
    for (folder, begin, end) in [
        ("/var/lib/cloud/instances", "", ""),
        ("/etc/ssh", "ssh_host_", "_key"),
    ] {
        let names = list(&roots.root(folder)).unwrap_or_default();
        let fits = |name: &&String| name.starts_with(begin) && name.ends_with(end);
        paths.extend(names.iter().filter(fits).map(|name| Path::new(folder).join(name)));
    }
    let times = paths.into_iter().filter_map(|path| {
        let created = fs::symlink_metadata(roots.root(&path)).ok()?.created().ok()?;
        let at = created.duration_since(UNIX_EPOCH).ok()?.as_secs();
        Some(FirstBoot {
            at,
            source: path.display().to_string(),
        })
    });
    times.min_by_key(|first| first.at)
}
