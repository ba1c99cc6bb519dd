//! Finds out without writing whether a file can be replaced: it cannot on a read-only filesystem,
//! as a mount point, or with the immutable attribute.

use std::{os::unix::ffi::OsStrExt as _, path::Path};

use nix::{
    errno::Errno,
    sys::statvfs::{FsFlags, statvfs},
};
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
use virtfleet_agent_core::{dns::seen::Obstacle, procfs::mountinfo};

use crate::{Roots, read_bounded};

/// Maximum size of `mountinfo` in bytes. A node with thousands of pods has a few MiB.
const MAX_MOUNTINFO_BYTES: usize = 64 << 20;

/// Why the file at `path` cannot be replaced, created or removed, with the remedy. `None` if it
/// can.
pub(crate) fn fixed(roots: &Roots, path: &Path) -> Option<Obstacle> {
    let folder = path.ancestors().skip(1).find(|ancestor| ancestor.is_dir())?;
    if statvfs(folder).is_ok_and(|about| about.flags().contains(FsFlags::ST_RDONLY)) {
        return Some(read_only(roots, folder));
    }
    let attributes = |place: &Path| {
        [
            (StatxAttributes::IMMUTABLE, "is immutable", "i"),
            (StatxAttributes::APPEND, "is append-only", "a"),
        ]
        .into_iter()
        .find(|(attribute, ..)| has(place, *attribute))
        .map(|(_, what, letter)| Obstacle {
            because: format!("{} {what}", place.display()),
            remedy: format!("sudo chattr -{letter} {}", place.display()),
        })
    };
    // A mount on a file hides it: the visible attributes are those of the mounted file, and
    // changing them has no effect on the file below.
    let mounted = || has(path, StatxAttributes::MOUNT_ROOT).then(|| mount_point(roots, path));
    attributes(folder).or_else(mounted).or_else(|| attributes(path))
}

/// The mount of a path's filesystem.
#[derive(Default)]
struct Mounted {
    at: String,
    /// Path within the filesystem; `/` except for bind mounts and subvolumes.
    root: String,
    fs_type: String,
    /// The mounted device or filesystem.
    source: String,
}

/// The mount that covers a path: among those with the longest mount point, the last one, which
/// hides the others.
fn covering(roots: &Roots, path: &Path) -> Option<Mounted> {
    let text = read_bounded(&roots.proc("thread-self/mountinfo"), MAX_MOUNTINFO_BYTES).ok()?;
    let path = match (path.parent().map(Path::canonicalize), path.file_name()) {
        (Some(Ok(folder)), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    };
    let word = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut best: Option<(usize, Mounted)> = None;
    for mount in mountinfo::mounts(&text).filter_map(Result::ok) {
        let at = Path::new(std::ffi::OsStr::from_bytes(&mount.mount_point));
        let length = mount.mount_point.len();
        if path.starts_with(at) && best.as_ref().is_none_or(|(longest, _)| length >= *longest) {
            let mounted = Mounted {
                at: word(&mount.mount_point),
                root: word(&mount.root),
                fs_type: word(mount.fs_type),
                source: word(mount.source),
            };
            best = Some((length, mounted));
        }
    }
    best.map(|(_, mounted)| mounted)
}

fn mount_point(roots: &Roots, path: &Path) -> Obstacle {
    let shown = path.display();
    let mounted =
        covering(roots, path).filter(|mounted| Path::new(&mounted.at).file_name() == path.file_name());
    let because = match mounted {
        Some(Mounted {
            root,
            fs_type,
            source,
            ..
        }) => format!(
            "{shown} is a mount point: {root} of {source} ({fs_type}) is bind-mounted there (e.g. by a container runtime or /etc/fstab), and a mount point cannot be replaced"
        ),
        None => format!("{shown} is a mount point, and a mount point cannot be replaced"),
    };
    Obstacle {
        because,
        remedy: format!(
            "sudo umount {shown}, and remove what mounts it (a line with `bind` in /etc/fstab, a mount unit, or the container's configuration)"
        ),
    }
}

fn read_only(roots: &Roots, folder: &Path) -> Obstacle {
    let because = format!(
        "{} is on a filesystem that is mounted read-only",
        folder.display()
    );
    let mounted = covering(roots, folder).unwrap_or_else(|| Mounted {
        at: "/".to_owned(),
        root: "/".to_owned(),
        ..Mounted::default()
    });
    let bind = if mounted.root == "/" { "" } else { ",bind" };
    Obstacle {
        because,
        remedy: format!("sudo mount -o remount,rw{bind} {}", mounted.at),
    }
}

/// False if the filesystem or the kernel does not support the attribute.
fn has(path: &Path, attribute: StatxAttributes) -> bool {
    match statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty()) {
        Ok(about) => {
            about.stx_attributes_mask.contains(attribute) && about.stx_attributes.contains(attribute)
        }
        Err(error) => {
            if error.raw_os_error() != Errno::ENOENT as i32 {
                tracing::debug!(path = %path.display(), %error, "statx failed");
            }
            false
        }
    }
}
