//! Finds the disks that carry the guest's system.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use virtfleet_agent_core::disks::DevNumber;

use super::uses::UsedMount;
use crate::{Roots, list};

/// Mount points of the system. A disk that is mounted at or below one of these is never formatted.
const SYSTEM_MOUNT_POINTS: [&str; 4] = ["/", "/boot", "/usr", "/var"];
/// Maximum depth of stacked devices.
const MAX_DEPTH: usize = 16;

/// Names of the whole disks below the system's mounts, through partitions, device mapper and md,
/// and the names of these partitions.
pub(super) fn names(roots: &Roots, mounts: &[UsedMount]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for mount in mounts.iter().filter(|mount| mount.first) {
        if SYSTEM_MOUNT_POINTS.contains(&mount.at.as_str()) || mount.at.starts_with("/boot/") {
            below(roots, mount.number, &mut names);
        }
    }
    names
}

fn below(roots: &Roots, number: DevNumber, names: &mut BTreeSet<String>) {
    let Ok(folder) = fs::canonicalize(roots.sys(format!("dev/block/{number}"))) else {
        return;
    };
    follow(&folder, MAX_DEPTH, names);
}

fn follow(folder: &Path, depth: usize, names: &mut BTreeSet<String>) {
    let disk: PathBuf = if folder.join("partition").exists() {
        folder.parent().map(Path::to_owned).unwrap_or_default()
    } else {
        folder.to_owned()
    };
    let name = |folder: &Path| Some(folder.file_name()?.to_str()?.replace('!', "/"));
    names.extend([name(&disk), name(folder)].into_iter().flatten());
    for slave in list(&folder.join("slaves")).unwrap_or_default() {
        if let (Some(depth), Ok(slave)) = (
            depth.checked_sub(1),
            fs::canonicalize(folder.join("slaves").join(slave)),
        ) {
            follow(&slave, depth, names);
        }
    }
}
