//! Removes temporary files that a killed run left.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::Path,
    time::{Duration, SystemTime},
};

use crate::{Roots, list};

/// Directories to which root writes with [`super::write_atomic`], by path in the guest.
const FOLDERS: [&str; 8] = [
    "/run/virtfleet",
    "/run/virtfleet/scratch",
    "/run/virtfleet/state",
    "/var/lib/virtfleet",
    "/var/lib/virtfleet/dns",
    "/var/lib/virtfleet/journal",
    "/etc",
    "/etc/systemd/system",
];
/// Directories whose `.d` subdirectories contain drop-ins.
const OF_DROP_INS: [&str; 4] = [
    "/etc/systemd",
    "/etc/systemd/network",
    "/etc/systemd/system",
    "/run/systemd/network",
];
/// Minimum age. The installer, which takes no lock, may be writing a younger file.
const MIN_AGE: Duration = Duration::from_mins(1);

/// Removes leftover temporary files: regular files owned by root, with exactly the name pattern of
/// [`super::write_atomic`], in directories that it writes to, older than a minute. The caller must
/// hold the lock of the reconcile run. Returns the removed paths.
pub fn sweep_temporary_files(roots: &Roots) -> Vec<String> {
    let drop_ins = OF_DROP_INS.into_iter().flat_map(|parent| {
        let names = list(&roots.root(parent)).unwrap_or_default();
        let names = names.into_iter().filter(|name| name.strip_suffix(".d").is_some());
        names.map(move |name| format!("{parent}/{name}"))
    });
    let folders = FOLDERS.into_iter().map(str::to_owned).chain(drop_ins);
    let mut gone = Vec::new();
    for folder in folders {
        for name in list(&roots.root(&folder)).unwrap_or_default() {
            let path = roots.root(&folder).join(&name);
            if is_temporary(&name) && is_leftover(&path) && fs::remove_file(&path).is_ok() {
                gone.push(format!("{folder}/{name}"));
            }
        }
    }
    gone
}

/// Removes the installer's temporary files from a directory, of any age: those of
/// [`super::write_atomic`] and [`super::link_atomic`]. Files named `.virtfleet-new.*` belong to the
/// boot command, which may be running, and stay. A file that cannot be removed stays; it is
/// harmless.
pub fn sweep_directory(directory: &Path) {
    for name in list(directory).unwrap_or_default() {
        if name.starts_with(".virtfleet-") && !name.starts_with(".virtfleet-new.") {
            fs::remove_file(directory.join(name)).ok();
        }
    }
}

/// `.virtfleet-` followed by the six alphanumeric characters of tempfile.
fn is_temporary(name: &str) -> bool {
    let random = name.strip_prefix(".virtfleet-");
    random.is_some_and(|random| random.len() == 6 && random.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

fn is_leftover(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| {
        let age = metadata
            .modified()
            .ok()
            .and_then(|modified| SystemTime::now().duration_since(modified).ok());
        metadata.is_file()
            && metadata.uid() == nix::unistd::geteuid().as_raw()
            && metadata.nlink() == 1
            && age.is_some_and(|age| age >= MIN_AGE)
    })
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn only_old_files_with_the_exact_pattern_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            rootfs: dir.path().to_owned(),
            ..Roots::default()
        };
        let make = |path: &str, old: bool| {
            let path = roots.root(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let file = File::create(&path).unwrap();
            let ago = if old { 120 } else { 0 };
            file.set_modified(SystemTime::now() - Duration::from_secs(ago))
                .unwrap();
        };
        let go = [
            "/run/virtfleet/state/.virtfleet-Ab12Cd",
            "/etc/systemd/system/.virtfleet-zzzzzz",
            "/etc/systemd/system/multi-user.target.d/.virtfleet-000000",
        ];
        let stay = [
            "/etc/systemd/system/.virtfleet-new.x",
            "/etc/systemd/system/.virtfleet-Ab12Cde",
            "/etc/systemd/system/virtfleet-Ab12Cd",
            "/etc/elsewhere/.virtfleet-Ab12Cd",
            "/etc/.virtfleet-Ab-2Cd",
        ];
        go.iter().chain(&stay).for_each(|path| make(path, true));
        make("/etc/.virtfleet-young1", false);
        symlink("x", roots.root("/etc/.virtfleet-linked")).unwrap();
        fs::create_dir(roots.root("/etc/.virtfleet-folder")).unwrap();
        let mut gone = sweep_temporary_files(&roots);
        gone.sort();
        let mut expected = go.map(str::to_owned);
        expected.sort();
        assert_eq!(gone, expected);
        assert!(stay.iter().all(|path| roots.root(path).exists()));
        assert!(sweep_temporary_files(&roots).is_empty());
    }
}
