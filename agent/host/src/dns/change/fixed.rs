//! Whether a file can be replaced, without trying: on a filesystem that is read-only, a mount point, or immutable.

use std::{os::unix::ffi::OsStrExt as _, path::Path};

use nix::{
    errno::Errno,
    sys::statvfs::{FsFlags, statvfs},
};
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
use virtfleet_agent_core::{dns::seen::Obstacle, procfs::mountinfo};

use crate::{Roots, read_bounded};

/// Maximum size of `mountinfo`: a node with thousands of pods has a few MiB.
const MAX_MOUNTINFO: usize = 64 << 20;

/// Why the file at that path cannot be replaced, made or removed, with the command that changes it; none when it can.
pub(crate) fn fixed(roots: &Roots, path: &Path) -> Option<Obstacle> {
    let folder = path.ancestors().skip(1).find(|ancestor| ancestor.is_dir())?;
    if statvfs(folder).is_ok_and(|about| about.flags().contains(FsFlags::ST_RDONLY)) {
        return Some(read_only(roots, folder));
    }
    let attributes = |place: &Path| {
        [
            (StatxAttributes::IMMUTABLE, "is immutable", "i"),
            (StatxAttributes::APPEND, "may only be appended to", "a"),
        ]
        .into_iter()
        .find(|(attribute, ..)| has(place, *attribute))
        .map(|(_, what, letter)| Obstacle {
            because: format!("{} {what}", place.display()),
            remedy: format!("sudo chattr -{letter} {}", place.display()),
        })
    };
    // What is mounted on a file hides that file: its attributes are those of what is mounted, and changing them changes nothing here.
    let mounted = || has(path, StatxAttributes::MOUNT_ROOT).then(|| mount_point(roots, path));
    attributes(folder).or_else(mounted).or_else(|| attributes(path))
}

/// The mount of a path's filesystem.
#[derive(Default)]
struct Mounted {
    /// Where.
    at: String,
    /// The path within the filesystem; `/` but for bind mounts and subvolumes.
    root: String,
    fs_type: String,
    /// What is mounted.
    source: String,
}

/// The mount that covers a path: of those at the longest mount point the last, which hides the others.
fn covering(roots: &Roots, path: &Path) -> Option<Mounted> {
    let text = read_bounded(&roots.proc("thread-self/mountinfo"), MAX_MOUNTINFO).ok()?;
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
            "{shown} is a mount point: {root} of {source} ({fs_type}) is bind-mounted there, as container runtimes and /etc/fstab do it, and a mount point cannot be replaced"
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

/// A filesystem or kernel that does not know the attribute does not have it.
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
