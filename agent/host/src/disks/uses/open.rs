//! Processes that have a block device open.
//!
//! The kernel grants an exclusive open (`O_EXCL`) of a block device although another process has it
//! open without `O_EXCL`. This module therefore reads the file descriptors of all processes. It
//! does not find a process that has mapped a device into memory and closed the descriptor.

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

/// A process that has a block device open.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct Opener {
    /// Number of the open device: the disk or one of its partitions.
    pub(in super::super) number: DevNumber,
    /// True if the descriptor is writable.
    pub(in super::super) writes: bool,
    /// Name and PID: `name (pid)`.
    pub(in super::super) process: String,
}

/// Processes, except this one and its descendants, that have one of these devices open.
///
/// Read-only descriptors are ignored if they belong to an ancestor, such as the shell or test that
/// started this process, or to another process of this program: `plan` may read the disks while
/// `apply` formats one.
///
/// The files that descriptors refer to are not opened, and only their cached attributes are read,
/// so an unresponsive network filesystem does not block this function.
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
    let mut tree = None;
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
            let Some(writes) = is_writable(&folder, &path) else {
                continue;
            };
            let tree = tree.get_or_insert_with(|| ProcessTree::read(roots));
            let may_read = || tree.is_ancestor(process) || tree.runs_this_program(roots, process);
            if tree.is_self_or_descendant(process) || !writes && may_read() {
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

/// Number of the block device that a link in `/proc/<pid>/fd` refers to.
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

/// Whether a descriptor is writable. `None` if it is neither readable nor writable (`O_PATH`) or
/// already closed.
fn is_writable(folder: &Path, descriptor: &Path) -> Option<bool> {
    let text = read_text(&folder.join("fdinfo").join(descriptor.file_name()?), 4096).ok()?;
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
    let flags = libc::c_int::from_str_radix(flags.trim(), 8).ok()?;
    (flags & libc::O_PATH == 0).then_some(flags & libc::O_ACCMODE != libc::O_RDONLY)
}

/// Maximum number of processes from one to its oldest ancestor. The tree is not read atomically, so
/// reused PIDs may form a cycle.
const MAX_DEPTH: usize = 64;

/// Parents of all processes.
struct ProcessTree {
    /// PID of this process.
    own: u32,
    /// Parent's PID by PID.
    parents: BTreeMap<u32, u32>,
}

impl ProcessTree {
    fn read(roots: &Roots) -> Self {
        let names = list(&roots.procfs).unwrap_or_default();
        let processes = names.iter().filter_map(|name| name.parse::<u32>().ok());
        let parents = processes.filter_map(|process| Some((process, parent(roots, process).ok()??)));
        // PID of this process in the PID namespace of the procfs, which may not be its own one.
        let own = fs::read_link(roots.proc("self")).ok();
        let own = own.and_then(|link| link.to_str()?.parse().ok());
        Self {
            own: own.unwrap_or_else(std::process::id),
            parents: parents.collect(),
        }
    }

    fn is_self_or_descendant(&self, process: u32) -> bool {
        self.with_ancestors(process).any(|process| process == self.own)
    }

    /// Whether the process is an ancestor of this one, or this one.
    fn is_ancestor(&self, process: u32) -> bool {
        self.with_ancestors(self.own).any(|ancestor| ancestor == process)
    }

    /// Whether the process runs the same executable file as this one.
    fn runs_this_program(&self, roots: &Roots, process: u32) -> bool {
        let own = executable(roots, self.own);
        own.is_some() && executable(roots, process) == own
    }

    fn with_ancestors(&self, process: u32) -> impl Iterator<Item = u32> {
        let parent_of = |process: &u32| self.parents.get(process).copied();
        std::iter::successors(Some(process), parent_of).take(MAX_DEPTH)
    }
}

/// Device and inode of a process's executable (`/proc/<pid>/exe`, proc_pid_exe(5)).
fn executable(roots: &Roots, process: u32) -> Option<(u64, u64)> {
    let file = fs::metadata(roots.proc(format!("{process}/exe"))).ok()?;
    Some((file.dev(), file.ino()))
}

/// The parent's PID, from `/proc/<pid>/stat` (proc_pid_stat(5)). The second field is a name in
/// parentheses that may contain any character, so the fields are counted from the last `)`.
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
    fn descendants_and_ancestors_of_this_process_are_recognised() {
        let tree = ProcessTree {
            own: 10,
            parents: [(10, 5), (5, 1), (11, 10), (12, 11), (20, 1), (1, 0)].into(),
        };
        for (process, descendant, ancestor) in [
            (10, true, true),
            (12, true, false),
            (5, false, true),
            (20, false, false),
        ] {
            assert_eq!(
                (tree.is_self_or_descendant(process), tree.is_ancestor(process)),
                (descendant, ancestor),
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
