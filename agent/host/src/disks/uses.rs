//! Uses of a disk: mounts in every mount namespace, swap, stacked devices, partitions, loop
//! devices, exports, and processes that have it open.

mod kernel;
mod open;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use nix::{errno::Errno, libc};
use virtfleet_agent_core::{
    disks::{DevNumber, Device, Use, device::BTRFS_HOLDER},
    procfs::mountinfo,
};

pub(super) use self::{kernel::users, open::openers};
use super::facts::{block, partition_folder, partitions};
use super::observe::{node_number, swapped};
pub(super) use super::used_mount::UsedMount;
use crate::{ReadError, Roots, list, read_bounded};

/// Maximum size of one process's mountinfo in bytes. A node with thousands of pods has a few MiB.
const MAX_MOUNTINFO_BYTES: usize = 64 << 20;

/// Why the mounts are unknown.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct MountsError {
    pub path: PathBuf,
    pub reason: String,
}

/// The mounts in all namespaces; each namespace is read once.
pub(super) fn mounts(roots: &Roots) -> Result<Vec<UsedMount>, MountsError> {
    let mut processes: Vec<u32> = list(&roots.procfs)
        .map_err(|error| at(&roots.procfs, error.to_string()))?
        .iter()
        .filter_map(|name| name.parse().ok())
        .collect();
    processes.sort_unstable();
    let mut known = BTreeSet::new();
    let mut found = BTreeSet::new();
    // A copy of the first namespace has the same mounts; those are skipped.
    let mut of_first = BTreeSet::new();
    for process in processes {
        let folder = roots.proc(process.to_string());
        // Some sandboxes hide the link but show the mounts; then they are read once more.
        if fs::read_link(folder.join("ns/mnt")).is_ok_and(|namespace| !known.insert(namespace)) {
            continue;
        }
        let path = folder.join("mountinfo");
        let text = match read_bounded(&path, MAX_MOUNTINFO_BYTES) {
            Ok(text) => text,
            Err(error) if ended(&error) => continue,
            Err(error) => return Err(at(&path, error.to_string())),
        };
        for mount in mountinfo::mounts(&text) {
            let mount = mount.map_err(|error| at(&path, error.to_string()))?;
            let place = String::from_utf8_lossy(&mount.mount_point).into_owned();
            let own = DevNumber {
                major: mount.major,
                minor: mount.minor,
            };
            // Filesystems without a device, and btrfs, have a number with major 0.
            let number = if own.major == 0 {
                source_number(roots, mount.source).unwrap_or(own)
            } else {
                own
            };
            let first = process == 1;
            if first {
                of_first.insert((place.clone(), number));
            } else if of_first.contains(&(place.clone(), number)) {
                continue;
            }
            let at = if first {
                place
            } else {
                format!("{place} (process {process})")
            };
            found.insert(UsedMount { at, first, number });
        }
    }
    Ok(found.into_iter().collect())
}

fn at(path: &Path, reason: String) -> MountsError {
    MountsError {
        path: path.to_owned(),
        reason,
    }
}

/// The process exited meanwhile.
fn ended(error: &ReadError) -> bool {
    match error {
        ReadError::Missing => true,
        ReadError::Other(error) => {
            matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ESRCH))
        }
        _ => false,
    }
}

/// Number of the device that a mount has as its source.
fn source_number(roots: &Roots, source: &[u8]) -> Option<DevNumber> {
    let source = str::from_utf8(source).ok()?;
    source
        .starts_with("/dev/")
        .then(|| node_number(&roots.root(source)))?
}

/// Users of all block devices at one moment.
pub(super) struct Users {
    mounts: Vec<UsedMount>,
    swaps: BTreeSet<DevNumber>,
    kernel: Vec<(DevNumber, String)>,
    /// Names of the disks and partitions below the system's mounts.
    pub(super) system: BTreeSet<String>,
}

impl Users {
    /// # Errors
    /// Mounts or swap areas cannot be read.
    pub(super) fn read(roots: &Roots) -> Result<Self, MountsError> {
        let mounts = mounts(roots)?;
        Ok(Self {
            system: super::system::names(roots, &mounts),
            mounts,
            swaps: swapped(roots).map_err(|error| at(&error.path, error.reason))?,
            kernel: users(roots),
        })
    }

    /// Mounts, swap, loop devices and exports of the devices with these numbers.
    fn of(&self, numbers: &[DevNumber]) -> Vec<Use> {
        let mounted = self.mounts.iter().filter(|mount| numbers.contains(&mount.number));
        let mut uses: Vec<Use> = mounted.map(|mount| Use::Mounted(mount.at.clone())).collect();
        if numbers.iter().any(|number| self.swaps.contains(number)) {
            uses.push(Use::Swap);
        }
        let attached = self.kernel.iter().filter(|(number, _)| numbers.contains(number));
        uses.extend(attached.map(|(_, user)| Use::Attached(user.clone())));
        uses
    }
}

/// The uses of a partition: its own, and those of the whole disk as a device. Other partitions do
/// not count.
pub(super) fn of_partition(
    roots: &Roots,
    disk: &Device,
    name: &str,
    number: DevNumber,
    all: &Users,
) -> Vec<Use> {
    let folder = partition_folder(roots, &disk.id.name, name);
    let mut holders: BTreeSet<String> = BTreeSet::new();
    for folder in [folder, block(roots, &disk.id.name)] {
        holders.extend(list(&folder.join("holders")).unwrap_or_default());
    }
    holders.extend(btrfs_of(roots, &[name, &disk.id.name]));
    let mut uses: Vec<Use> = holders.into_iter().map(Use::Holder).collect();
    uses.extend(all.of(&[number, disk.id.number]));
    uses
}

/// The btrfs filesystems that include one of these devices. A mount of a multi-device btrfs names
/// only one of them as its source; sysfs lists all.
fn btrfs_of(roots: &Roots, names: &[&str]) -> Vec<String> {
    let filesystems = list(&roots.sys("fs/btrfs")).unwrap_or_default();
    let has = |filesystem: &String| {
        let members = list(&roots.sys("fs/btrfs").join(filesystem).join("devices")).unwrap_or_default();
        members.iter().any(|member| names.contains(&member.as_str()))
    };
    let filesystems = filesystems.into_iter().filter(has);
    filesystems
        .map(|filesystem| format!("{BTRFS_HOLDER}{filesystem}"))
        .collect()
}

pub(super) fn of(roots: &Roots, name: &str, number: DevNumber, all: &Users) -> Vec<Use> {
    let mut uses = Vec::new();
    let folder = block(roots, name);
    let mut numbers = vec![number];
    let mut holders: BTreeSet<String> = list(&folder.join("holders"))
        .unwrap_or_default()
        .into_iter()
        .collect();
    for (partition, number) in partitions(roots, name) {
        let folder = partition_folder(roots, name, &partition);
        holders.extend(list(&folder.join("holders")).unwrap_or_default());
        numbers.extend(number);
        uses.push(Use::Partition(partition));
    }
    holders.extend(btrfs_of(roots, &[name]));
    uses.extend(holders.into_iter().map(Use::Holder));
    uses.extend(all.of(&numbers));
    uses
}

/// The error of an exclusive open of a device in use.
pub(super) fn is_busy(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(Errno::EBUSY as i32)
}
