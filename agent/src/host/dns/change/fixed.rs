//! Whether a file can be replaced, without trying: immutable, on a filesystem that is read-only, or a mount point.

use std::path::Path;

use nix::{
    errno::Errno,
    sys::statvfs::{FsFlags, statvfs},
};
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};

/// Why the file at that path cannot be replaced, made or removed, and what would change that; none when it can.
pub(crate) fn fixed(path: &Path) -> Option<String> {
    let folder = path.ancestors().skip(1).find(|ancestor| ancestor.is_dir())?;
    if statvfs(folder).is_ok_and(|about| about.flags().contains(FsFlags::ST_RDONLY)) {
        return Some(format!(
            "{} is on a filesystem that is mounted read-only",
            folder.display()
        ));
    }
    let bars = [
        (
            StatxAttributes::IMMUTABLE,
            "is immutable (`chattr -i` takes that away)",
        ),
        (
            StatxAttributes::APPEND,
            "may only be appended to (`chattr -a` takes that away)",
        ),
    ];
    for place in [folder, path] {
        for (attribute, message) in bars {
            if has(place, attribute) {
                return Some(format!("{} {message}", place.display()));
            }
        }
    }
    has(path, StatxAttributes::MOUNT_ROOT).then(|| {
        format!(
            "{} is a mount point, as container runtimes make it; what is mounted there cannot be replaced",
            path.display()
        )
    })
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
