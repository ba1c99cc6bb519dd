//! What a mount would hide: the entries of a mount point and the processes that use them.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
};

use crate::{Roots, files::bounded::read_text};

/// Maximum number of processes that are listed.
const MAX_PROCESSES: usize = 20;

/// Number of entries in `folder`, counted up to `most`. `lost+found`, which mkfs.ext4 creates, is
/// not counted.
///
/// # Errors
/// The directory cannot be read.
pub fn entries_in(folder: &Path, most: usize) -> io::Result<u64> {
    let mut count = 0;
    for entry in fs::read_dir(folder)?.take(most.saturating_add(1)) {
        if entry?.file_name() != "lost+found" {
            count += 1;
        }
    }
    Ok(count.min(most as u64))
}

/// Processes with an open file, the working directory or the root at or below `folder`, as `name
/// (pid)`, sorted. This process is excluded.
///
/// A process that exits meanwhile is skipped. The paths are those of the process's own view, so a
/// process in a container may be missed or listed wrongly. This protects against mistakes, not
/// against attacks.
pub fn busy_below(roots: &Roots, folder: &Path) -> Vec<String> {
    let own = std::process::id().to_string();
    let Ok(processes) = fs::read_dir(&roots.procfs) else {
        return Vec::new();
    };
    let mut busy = BTreeSet::new();
    for process in processes.flatten() {
        let name = process.file_name();
        let Some(pid) = name
            .to_str()
            .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        else {
            continue;
        };
        if pid != own && uses(&process.path(), folder) {
            let comm = read_text(&process.path().join("comm"), 256).unwrap_or_default();
            busy.insert(format!("{} ({pid})", comm.trim_end()));
            if busy.len() == MAX_PROCESSES {
                break;
            }
        }
    }
    busy.into_iter().collect()
}

fn uses(process: &Path, folder: &Path) -> bool {
    let below = |link: &Path| fs::read_link(link).is_ok_and(|target| target.starts_with(folder));
    ["cwd", "root", "exe"]
        .iter()
        .any(|link| below(&process.join(link)))
        || ["fd", "map_files"].iter().any(|links| {
            let links: PathBuf = process.join(OsStr::new(links));
            fs::read_dir(links)
                .into_iter()
                .flatten()
                .flatten()
                .any(|link| below(&link.path()))
        })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn processes_with_open_files_below_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            procfs: dir.path().to_owned(),
            ..Roots::default()
        };
        for (pid, link, target) in [
            ("10", "fd/3", "/data/a"),
            ("11", "cwd", "/data"),
            ("12", "fd/3", "/database"),
            ("13", "map_files/0-1", "/data/lib"),
        ] {
            let path = dir.path().join(pid).join(link);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(dir.path().join(pid).join("comm"), format!("c{pid}\n")).unwrap();
            symlink(target, path).unwrap();
        }
        assert_eq!(
            busy_below(&roots, Path::new("/data")),
            ["c10 (10)", "c11 (11)", "c13 (13)"]
        );
    }

    #[test]
    fn entries_are_counted_up_to_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("lost+found")).unwrap();
        assert_eq!(entries_in(dir.path(), 2).unwrap(), 0);
        for name in ["a", "b", "c"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(entries_in(dir.path(), 2).unwrap(), 2);
        assert_eq!(entries_in(dir.path(), 9).unwrap(), 3);
    }
}
