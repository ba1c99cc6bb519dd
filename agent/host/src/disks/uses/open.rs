//! Processes that have a block device open.
//!
//! An open descriptor is not a claim: the kernel still grants exclusive access to another process.
//! So the descriptors of all processes are read. A device that a process has mapped and then closed
//! is not found.

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
    /// The device: the disk or one of its partitions.
    pub(in super::super) number: DevNumber,
    /// True if the descriptor is writable.
    pub(in super::super) writes: bool,
    /// `name (pid)`.
    pub(in super::super) process: String,
}

/// Processes, except this one and its descendants, that have one of these devices open.
///
/// A read-only descriptor is ignored in an ancestor, such as the shell or test that started this
/// process, and in another run of this program: `plan` may read the disks while `apply` formats
/// one.
///
/// No file is opened, and only cached attributes are read, so a hanging network filesystem does not
/// block this.
///
/// # Errors
/// The list of processes cannot be read.
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
        // A process that has exited, or a kernel thread, has no descriptors.
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

/// Number of the block device that a descriptor's link refers to.
fn block_device(path: &Path) -> Option<DevNumber> {
    let target = fs::read_link(path).ok()?;
    // `socket:[1]`, `pipe:[2]`, `anon_inode:[eventfd]` are not files.
    if !target.has_root() {
        return None;
    }
    let file = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE).ok()?;
    (FileType::from_raw_mode(file.stx_mode.into()) == FileType::BlockDevice).then_some(DevNumber {
        major: file.stx_rdev_major,
        minor: file.stx_rdev_minor,
    })
}

/// True if a descriptor is writable. `None` if it is neither readable nor writable (`O_PATH`) or
/// already closed.
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
        // The PID in the namespace of that procfs.
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

    /// True if the process runs the same executable file as this one.
    fn is_of_this_program(&self, roots: &Roots, process: u32) -> bool {
        let own = executable(roots, self.own);
        own.is_some() && executable(roots, process) == own
    }

    /// A process and its ancestors.
    fn line(&self, process: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(Some(process), |process| self.parents.get(process).copied()).take(64)
    }
}

/// Device and inode of a process's executable (`/proc/<pid>/exe`, proc_pid_exe(5)).
fn executable(roots: &Roots, process: u32) -> Option<(u64, u64)> {
    let file = fs::metadata(roots.proc(format!("{process}/exe"))).ok()?;
    Some((file.dev(), file.ino()))
}

/// The parent's PID, from `/proc/<pid>/stat` (proc_pid_stat(5)). The second field is a name in
/// parentheses with arbitrary characters.
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
    fn this_process_and_its_descendants_are_excluded() {
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
    fn regular_files_sockets_and_missing_files_are_not_devices() {
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
