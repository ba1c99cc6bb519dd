//! Mount points, directory owners and key files.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use virtfleet_agent_core::disks::{seen::MountPoint, wanted::Owner};

use crate::{Roots, disks::busy::busy_below, entries_in};

/// Maximum number of entries that are counted.
const MAX_ENTRIES: usize = 1000;

/// Inspects a declared mount point on which nothing is mounted. `mounts` lists all mount points of
/// the guest.
pub fn mount_point(roots: &Roots, path: &str, mounts: &[&str]) -> MountPoint {
    let place = roots.root(path);
    let mut seen = MountPoint {
        unusable: unusable(roots, path),
        ..MountPoint::default()
    };
    let Ok(metadata) = fs::symlink_metadata(&place) else {
        return seen;
    };
    seen.exists = true;
    if !metadata.is_dir() || seen.unusable.is_some() {
        return seen;
    }
    match entries_in(&place, MAX_ENTRIES) {
        Ok(entries) => seen.entries = entries,
        Err(error) => seen.unusable = Some(format!("it cannot be read: {error}")),
    }
    if seen.entries > 0 {
        seen.busy = busy_below(roots, &place);
        let below = format!("{path}/");
        let inside = mounts.iter().filter(|mount| mount.starts_with(&below));
        seen.busy
            .extend(inside.map(|mount| format!("a mount at {mount}")));
    }
    seen
}

/// Why nothing can be mounted there. Symbolic links are rejected: a disk must be mounted at its
/// declared path.
fn unusable(roots: &Roots, path: &str) -> Option<String> {
    let mut place = roots.rootfs.clone();
    for part in Path::new(path)
        .components()
        .filter(|part| part.as_os_str() != "/")
    {
        place.push(part);
        let shown = || Path::new("/").join(place.strip_prefix(&roots.rootfs).unwrap_or(&place));
        match fs::symlink_metadata(&place) {
            Ok(metadata) if metadata.is_symlink() => {
                return Some(format!("{} is a symbolic link", shown().display()));
            }
            Ok(metadata) if !metadata.is_dir() => {
                return Some(format!("{} is not a directory", shown().display()));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => return Some(format!("{}: {error}", shown().display())),
        }
    }
    None
}

/// Owner and mode of a directory as numbers.
pub fn owner_of(path: &Path) -> Option<Owner> {
    let metadata = fs::metadata(path).ok()?;
    Some(Owner {
        user: Some(metadata.uid().to_string()),
        group: Some(metadata.gid().to_string()),
        mode: Some(metadata.mode() & 0o7777),
    })
}

/// Why a key file is unusable; `None` if it is usable.
pub fn bad_key(roots: &Roots, path: &str) -> Option<String> {
    let place: PathBuf = roots.root(path);
    let metadata = match fs::metadata(&place) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Some("there is no such file".to_owned());
        }
        Err(error) => return Some(error.to_string()),
    };
    if !metadata.is_file() {
        Some("it is not a file".to_owned())
    } else if metadata.len() == 0 {
        Some("it is empty".to_owned())
    } else if metadata.uid() != nix::unistd::geteuid().as_raw() || metadata.mode() & 0o077 != 0 {
        Some(format!(
            "users other than root can access it (owner {}, mode {:04o}); chown root and chmod 0400 it",
            metadata.uid(),
            metadata.mode() & 0o7777
        ))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn mount_points_are_inspected_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            rootfs: dir.path().to_owned(),
            procfs: dir.path().join("proc"),
            ..Roots::default()
        };
        fs::create_dir_all(dir.path().join("srv/full")).unwrap();
        fs::write(dir.path().join("srv/full/file"), "").unwrap();
        symlink("srv", dir.path().join("link")).unwrap();
        let inspect = |path: &str| mount_point(&roots, path, &["/srv/full/pod"]);
        assert_eq!(inspect("/srv/new"), MountPoint::default());
        let full = inspect("/srv/full");
        assert_eq!((full.exists, full.entries, full.unusable), (true, 1, None));
        assert_eq!(full.busy, ["a mount at /srv/full/pod"]);
        assert_eq!(
            inspect("/link/full").unusable.as_deref(),
            Some("/link is a symbolic link")
        );
        assert_eq!(
            inspect("/srv/full/file").unusable.as_deref(),
            Some("/srv/full/file is not a directory")
        );
    }

    #[test]
    fn only_root_may_access_a_key() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            rootfs: dir.path().to_owned(),
            ..Roots::default()
        };
        let write = |text: &str, mode| {
            fs::write(dir.path().join("key"), text).unwrap();
            fs::set_permissions(dir.path().join("key"), fs::Permissions::from_mode(mode)).unwrap();
        };
        assert!(bad_key(&roots, "/key").unwrap().contains("no such file"));
        write("", 0o600);
        assert!(bad_key(&roots, "/key").unwrap().contains("empty"));
        write("secret", 0o640);
        assert!(bad_key(&roots, "/key").unwrap().contains("mode 0640"));
        write("secret", 0o400);
        assert_eq!(bad_key(&roots, "/key"), None);
    }
}
