//! Copies a directory tree with all attributes to a new filesystem and compares the two.
//!
//! cp(1) copies. The comparison checks kinds, owners, modes, times, links, extended attributes
//! (which include ACLs) and every byte.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    fs::{self, File, Metadata},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::{self, Read as _},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{FileTypeExt as _, MetadataExt as _},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{CommandError, Commands, Tool};

/// Maximum time for copying.
const COPY_TIMEOUT: Duration = Duration::from_hours(4);
/// Directory that mkfs.ext4 creates.
const LOST_AND_FOUND: &str = "lost+found";

/// Why a tree could not be copied, or differs from the original.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// cp(1) failed.
    #[error(transparent)]
    Copy(#[from] CommandError),
    /// A file in one of the trees cannot be accessed.
    #[error("cannot {step} {}", path.display())]
    Io {
        step: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// The copy differs; another process may have changed the original meanwhile.
    #[error("{}: the copy differs in its {what}; stop the programs that write there and try again", path.display())]
    Differs {
        path: PathBuf,
        /// The attribute that differs, e.g. `mode`.
        what: String,
    },
}

/// Size of a copied tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seeded {
    /// Number of files, directories, links and so on.
    pub entries: u64,
    /// Bytes of regular files.
    pub bytes: u64,
}

/// Empties the directory `to`, copies the content of `from` into it (without other mounts below),
/// and syncs it.
///
/// # Errors
/// A directory cannot be emptied or synced, or cp(1) fails.
pub fn copy_tree(commands: &dyn Commands, from: &Path, to: &Path) -> Result<(), SeedError> {
    empty(to)?;
    let tool = Tool::new("cp")
        .args(["--archive", "--one-file-system", "--no-target-directory", "--"])
        .arg(from)
        .arg(to)
        .deadline(COPY_TIMEOUT);
    commands.check(&tool)?;
    let folder = File::open(to).map_err(io_error("open", to))?;
    nix::unistd::syncfs(&folder).map_err(|error| io_error("sync", to)(error.into()))
}

/// Compares a tree with its copy.
///
/// # Errors
/// A file cannot be read, or the trees differ.
pub fn compare_trees(from: &Path, to: &Path) -> Result<Seeded, SeedError> {
    let mut comparison = Comparison {
        device: inode(from)?.dev(),
        links: BTreeMap::new(),
        seeded: Seeded::default(),
    };
    comparison.folder(from, to, true)?;
    Ok(comparison.seeded)
}

/// A hash of names, kinds, sizes and modification times in a tree, without other mounts below. A
/// different value means that the tree has changed. Comparable only within a process.
///
/// # Errors
/// A directory cannot be read.
pub fn stamp_of(folder: &Path) -> Result<u64, SeedError> {
    let mut hasher = DefaultHasher::new();
    stamp(folder, inode(folder)?.dev(), &mut hasher)?;
    Ok(hasher.finish())
}

fn stamp(folder: &Path, device: u64, hasher: &mut DefaultHasher) -> Result<(), SeedError> {
    // Access times are ignored: reading is not a change.
    let marks = |metadata: &Metadata| {
        (
            metadata.ino(),
            metadata.mode(),
            metadata.ctime(),
            metadata.ctime_nsec(),
        )
    };
    marks(&inode(folder)?).hash(hasher);
    for name in names(folder)? {
        let path = folder.join(&name);
        let metadata = inode(&path)?;
        name.hash(hasher);
        if metadata.dev() != device {
            continue;
        }
        if metadata.is_dir() {
            stamp(&path, device, hasher)?;
        } else {
            (
                marks(&metadata),
                metadata.len(),
                metadata.mtime(),
                metadata.mtime_nsec(),
            )
                .hash(hasher);
        }
    }
    Ok(())
}

fn empty(folder: &Path) -> Result<(), SeedError> {
    for name in names(folder)? {
        let path = folder.join(&name);
        let metadata = inode(&path)?;
        let removed = if metadata.is_dir() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        removed.map_err(io_error("remove", &path))?;
    }
    Ok(())
}

struct Comparison {
    /// Device of the first tree. A directory with another one is a mount point.
    device: u64,
    /// Inodes of the first tree with several hard links, and their inodes in the second tree.
    links: BTreeMap<u64, u64>,
    seeded: Seeded,
}

impl Comparison {
    fn folder(&mut self, from: &Path, to: &Path, top: bool) -> Result<(), SeedError> {
        self.entry(from, to)?;
        let original = names(from)?;
        let mut copy = names(to)?;
        if top && !original.contains(OsStr::new(LOST_AND_FOUND)) {
            copy.remove(OsStr::new(LOST_AND_FOUND));
        }
        if original != copy {
            return Err(differs(from, "names"));
        }
        for name in original {
            let (from, to) = (from.join(&name), to.join(&name));
            let metadata = inode(&from)?;
            if metadata.dev() != self.device {
                // A mount point: its content is not copied, only the directory.
                if !inode(&to)?.is_dir() {
                    return Err(differs(&from, "kind"));
                }
            } else if metadata.is_dir() {
                self.folder(&from, &to, false)?;
            } else {
                self.entry(&from, &to)?;
                if metadata.is_file() {
                    self.seeded.bytes += metadata.len();
                    contents(&from, &to)?;
                }
            }
        }
        Ok(())
    }

    fn entry(&mut self, from: &Path, to: &Path) -> Result<(), SeedError> {
        self.seeded.entries += 1;
        let (original, copy) = (inode(from)?, inode(to)?);
        let same = |what: &str, same: bool| if same { Ok(()) } else { Err(differs(from, what)) };
        same("kind", kind(&original) == kind(&copy))?;
        same("mode", original.mode() == copy.mode())?;
        same(
            "owner",
            (original.uid(), original.gid()) == (copy.uid(), copy.gid()),
        )?;
        same(
            "modification time",
            (original.mtime(), original.mtime_nsec()) == (copy.mtime(), copy.mtime_nsec()),
        )?;
        same("device number", original.rdev() == copy.rdev())?;
        if !original.is_dir() {
            same("size", original.len() == copy.len())?;
        }
        if original.is_symlink() {
            same("target", link(from)? == link(to)?)?;
        }
        if !original.is_dir() && original.nlink() > 1 {
            let known = self.links.insert(original.ino(), copy.ino());
            same("hard links", known.is_none_or(|known| known == copy.ino()))?;
        }
        same("extended attributes", attributes(from)? == attributes(to)?)
    }
}

fn contents(from: &Path, to: &Path) -> Result<(), SeedError> {
    let open = |path: &Path| File::open(path).map_err(io_error("open", path));
    let (mut original, mut copy) = (open(from)?, open(to)?);
    let (mut a, mut b) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let count = original.read(&mut a).map_err(io_error("read", from))?;
        if count == 0 {
            let rest = copy.read(&mut b).map_err(io_error("read", to))?;
            return if rest == 0 {
                Ok(())
            } else {
                Err(differs(from, "contents"))
            };
        }
        let piece = &mut b[..count];
        copy.read_exact(piece).map_err(io_error("read", to))?;
        if a[..count] != *piece {
            return Err(differs(from, "contents"));
        }
    }
}

fn attributes(path: &Path) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, SeedError> {
    let at = |step, errno: rustix::io::Errno| io_error(step, path)(errno.into());
    // The kernel's limits (XATTR_LIST_MAX, XATTR_SIZE_MAX).
    let mut list = vec![0; 1 << 16];
    let length = match rustix::fs::llistxattr(path, &mut list[..]) {
        Ok(length) => length,
        Err(rustix::io::Errno::OPNOTSUPP) => 0,
        Err(errno) => return Err(at("list the attributes of", errno)),
    };
    let mut attributes = BTreeMap::new();
    let names = list[..length].split(|byte| *byte == 0);
    for name in names.filter(|name| !name.is_empty()) {
        let mut value = vec![0; 1 << 16];
        let length = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value[..])
            .map_err(|errno| at("read an attribute of", errno))?;
        value.truncate(length);
        attributes.insert(name.to_vec(), value);
    }
    Ok(attributes)
}

fn kind(metadata: &Metadata) -> u8 {
    let kind = metadata.file_type();
    let kinds = [
        kind.is_file(),
        kind.is_dir(),
        kind.is_symlink(),
        kind.is_fifo(),
        kind.is_socket(),
        kind.is_block_device(),
        kind.is_char_device(),
    ];
    kinds
        .iter()
        .zip(0..)
        .fold(u8::MAX, |found, (is, number)| if *is { number } else { found })
}

fn names(folder: &Path) -> Result<BTreeSet<OsString>, SeedError> {
    fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect())
        .map_err(io_error("read", folder))
}

fn inode(path: &Path) -> Result<Metadata, SeedError> {
    fs::symlink_metadata(path).map_err(io_error("inspect", path))
}

fn link(path: &Path) -> Result<PathBuf, SeedError> {
    fs::read_link(path).map_err(io_error("read", path))
}

fn differs(path: &Path, what: &str) -> SeedError {
    SeedError::Differs {
        path: path.to_owned(),
        what: what.to_owned(),
    }
}

fn io_error(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SeedError + use<> {
    let path = path.to_owned();
    move |source| SeedError::Io { step, path, source }
}

#[cfg(test)]
mod tests;
