//! Paths of an image, resolved as its own system would: no symbolic link in it leads out of it
//! (openat2(2), `RESOLVE_IN_ROOT`, Linux 5.6). The image may have been built by another user, and
//! this process is root.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    os::fd::{AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2},
    sys::stat::Mode,
};

/// Maximum number of bytes that are read of a text file.
const MAX_BYTES: u64 = 1 << 20;

/// The directory `folder` of the image at `root`, as a path for this process. Missing parts of it
/// can be created.
///
/// # Errors
/// It contains a dangling link or something that is not a directory, or the kernel has no openat2.
pub fn folder(root: &Path, folder: &Path) -> io::Result<PathBuf> {
    match open_in(root, folder, OFlag::O_PATH | OFlag::O_DIRECTORY) {
        Ok(found) => fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd())),
        Err(Errno::ENOENT) => {
            let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else {
                return Err(Errno::ENOENT.into());
            };
            let missing = self::folder(root, parent)?.join(name);
            match fs::read_link(&missing) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(missing),
                Err(error) => Err(error),
                Ok(target) => Err(io::Error::other(format!(
                    "it is a link to {}, which the image does not have; make that folder in the image first",
                    target.display()
                ))),
            }
        }
        Err(Errno::ENOSYS) => Err(io::Error::other(
            "this kernel has no openat2 (Linux 5.6 or newer): chroot into the image and install there, without --root",
        )),
        Err(error) => Err(error.into()),
    }
}

/// The text of a small file; empty if it is missing, not a regular file, or not text.
pub fn small_text(root: &Path, path: &Path) -> String {
    let mut text = String::new();
    // Does not block on a FIFO.
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let read = open_in(root, path, flags)
        .map_err(io::Error::from)
        .and_then(|found| {
            let file = File::from(found);
            let plain = file.metadata()?.is_file();
            plain.then_some(file).ok_or(io::Error::from(Errno::EINVAL))
        })
        .and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text));
    read.map(|_| text).unwrap_or_default()
}

fn open_in(root: &Path, path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    let root = open(
        root,
        OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?;
    let inside = path.strip_prefix("/").unwrap_or(path);
    let inside = if inside.as_os_str().is_empty() {
        Path::new(".")
    } else {
        inside
    };
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    openat2(&root, inside, how)
}
