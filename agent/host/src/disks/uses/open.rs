//! Processes that have a block device open.
//!
//! An open descriptor is no claim: the kernel gives the device exclusively to somebody else all the same. So each process's descriptors are read. What a process
//! has mapped and then closed is not seen.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use nix::libc;
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};
use virtfleet_agent_core::disks::DevNumber;

use super::{MountsError, at};
use crate::{Roots, list, read_text};

/// A process that has a device open.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct Opener {
    /// The device: the disk or a partition of it.
    pub(in super::super) number: DevNumber,
    /// Whether it may write.
    pub(in super::super) writes: bool,
    /// `name (pid)`.
    pub(in super::super) process: String,
}

/// Processes other than this one and its descendants that have one of these devices open.
///
/// A descriptor that may only read does not count in an ancestor, which is the shell or the test
/// that has started this process, and in another run of this program: `plan` may read the disks
/// while `apply` formats one.
///
/// No file is opened, and no filesystem is asked for more than it has cached, so a network filesystem that hangs does not matter.
///
/// # Errors
/// When the list of processes cannot be read.
pub(in super::super) fn openers(
    roots: &Roots,
    numbers: &BTreeSet<DevNumber>,
) -> Result<Vec<Opener>, MountsError> {
    let names = list(&roots.procfs).map_err(|error| at(&roots.procfs, error.to_string()))?;
    let processes: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    let mut found = BTreeSet::new();
    let mut family = None;
    for process in processes {
        let folder = roots.proc(process.to_string());
        // A process that has ended, and a kernel thread, have none.
        let Ok(descriptors) = fs::read_dir(folder.join("fd")) else {
            continue;
        };
        for descriptor in descriptors.flatten() {
            let path = descriptor.path();
            let Some(number) = block_device(&path).filter(|number| numbers.contains(number)) else {
                continue;
            };
            let Some(writes) = access(&folder, &path) else {
                continue;
            };
            let family = family.get_or_insert_with(|| Family::of(roots));
            let reads = || family.is_above(process) || family.is_of_this_program(roots, process);
            if family.is_ours(process) || !writes && reads() {
                continue;
            }
            let name = read_text(&folder.join("comm"), 100).unwrap_or_default();
            found.insert(Opener {
                number,
                writes,
                process: format!("{} ({process})", name.trim()),
            });
        }
    }
    Ok(found.into_iter().collect())
}

/// The number of the block device that a descriptor's link leads to.
fn block_device(path: &Path) -> Option<DevNumber> {
    let target = fs::read_link(path).ok()?;
    // `socket:[1]`, `pipe:[2]`, `anon_inode:[eventfd]` are no files.
    if !target.has_root() {
        return None;
    }
    let file = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE).ok()?;
    (FileType::from_raw_mode(file.stx_mode.into()) == FileType::BlockDevice).then_some(DevNumber {
        major: file.stx_rdev_major,
        minor: file.stx_rdev_minor,
    })
}

/// Whether a descriptor may write. None when it may neither read nor write (`O_PATH`), or is closed by now.
fn access(folder: &Path, descriptor: &Path) -> Option<bool> {
    let text = read_text(&folder.join("fdinfo").join(descriptor.file_name()?), 4096).ok()?;
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
    let flags = libc::c_int::from_str_radix(flags.trim(), 8).ok()?;
    (flags & libc::O_PATH == 0).then_some(flags & libc::O_ACCMODE != libc::O_RDONLY)
}

/// This process, its ancestors and its descendants.
struct Family {
    own: u32,
    parents: BTreeMap<u32, u32>,
}

impl Family {
    fn of(roots: &Roots) -> Self {
        let names = list(&roots.procfs).unwrap_or_default();
        let processes = names.iter().filter_map(|name| name.parse::<u32>().ok());
        let parents = processes.filter_map(|process| Some((process, parent(roots, process).ok()??)));
        // Its number in the namespace of that procfs.
        let own = fs::read_link(roots.proc("self")).ok();
        let own = own.and_then(|link| link.to_str()?.parse().ok());
        Self {
            own: own.unwrap_or_else(std::process::id),
            parents: parents.collect(),
        }
    }

    fn is_ours(&self, process: u32) -> bool {
        self.line(process).any(|process| process == self.own)
    }

    fn is_above(&self, process: u32) -> bool {
        self.line(self.own).any(|above| above == process)
    }

    /// Whether the process runs the same executable file as this one.
    fn is_of_this_program(&self, roots: &Roots, process: u32) -> bool {
        let own = executable(roots, self.own);
        own.is_some() && executable(roots, process) == own
    }

    /// A process and its ancestors.
    fn line(&self, process: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(Some(process), |process| self.parents.get(process).copied()).take(64)
    }
}

/// The device and inode of the file that a process runs (`/proc/<pid>/exe`, proc_pid_exe(5)).
fn executable(roots: &Roots, process: u32) -> Option<(u64, u64)> {
    let file = fs::metadata(roots.proc(format!("{process}/exe"))).ok()?;
    Some((file.dev(), file.ino()))
}

/// The parent's number, from `/proc/<pid>/stat` (proc_pid_stat(5)). The second field is a name in parentheses and may hold anything.
fn parent(roots: &Roots, process: u32) -> io::Result<Option<u32>> {
    let text = read_text(&roots.proc(format!("{process}/stat")), 4096).map_err(io::Error::other)?;
    let rest = text.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
    Ok(rest
        .split_ascii_whitespace()
        .nth(1)
        .and_then(|text| text.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_and_what_it_has_started_are_no_others() {
        let family = Family {
            own: 10,
            parents: [(10, 5), (5, 1), (11, 10), (12, 11), (20, 1), (1, 0)].into(),
        };
        for (process, ours, above) in [
            (10, true, true),
            (12, true, false),
            (5, false, true),
            (20, false, false),
        ] {
            assert_eq!(
                (family.is_ours(process), family.is_above(process)),
                (ours, above),
                "{process}"
            );
        }
    }

    #[test]
    fn regular_files_sockets_and_what_is_not_there_are_no_devices() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let link = file.path().with_extension("link");
        std::os::unix::fs::symlink(file.path(), &link).unwrap();
        assert_eq!(block_device(&link), None);
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink("socket:[1]", &link).unwrap();
        assert_eq!(block_device(&link), None);
        fs::remove_file(&link).unwrap();
        assert_eq!(block_device(&link), None);
    }
}
