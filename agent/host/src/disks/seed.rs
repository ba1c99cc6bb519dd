//! Copies a tree to a new filesystem with everything that it is made of, and compares the two.
//!
//! The copy is cp(1)'s; the comparison is ours, because a copy that nobody compared is a hope: kinds, owners, modes, times, links,
//! extended attributes (ACLs are such), and every byte.

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

/// How long copying may take.
const DEADLINE: Duration = Duration::from_hours(4);
/// What mkfs.ext4 puts at the top by itself.
const LOST_AND_FOUND: &str = "lost+found";

/// Why a tree could not be copied, or is not the same.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// The tool.
    #[error(transparent)]
    Copy(#[from] CommandError),
    /// A file of one of the two trees.
    #[error("cannot {step} {}", path.display())]
    Io {
        /// What was being done.
        step: &'static str,
        /// With what.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// The copy is not what was copied; somebody may have changed the original meanwhile.
    #[error("{}: the copy differs in its {what}; stop what writes there and try again", path.display())]
    Differs {
        /// The original.
        path: PathBuf,
        /// In what, e.g. `mode`.
        what: String,
    },
}

/// What was copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seeded {
    /// Files, folders, links and so on.
    pub entries: u64,
    /// Bytes of regular files.
    pub bytes: u64,
}

/// Empties the folder `to`, copies all of the folder `from` into it (not what is mounted below), and syncs it.
pub fn copy_tree(commands: &dyn Commands, from: &Path, to: &Path) -> Result<(), SeedError> {
    empty(to)?;
    let tool = Tool::new("cp")
        .args(["--archive", "--one-file-system", "--no-target-directory", "--"])
        .arg(from)
        .arg(to)
        .deadline(DEADLINE);
    commands.check(&tool)?;
    let folder = File::open(to).map_err(io_error("open", to))?;
    nix::unistd::syncfs(&folder).map_err(|error| io_error("sync", to)(error.into()))
}

/// Compares two trees, of which the second is a copy of the first.
pub fn compare_trees(from: &Path, to: &Path) -> Result<Seeded, SeedError> {
    let mut comparison = Comparison {
        device: look(from)?.dev(),
        links: BTreeMap::new(),
        seeded: Seeded::default(),
    };
    comparison.folder(from, to, true)?;
    Ok(comparison.seeded)
}

/// A number that stands for names, kinds, sizes and times of change in a tree, not for what is mounted below it: another one, and something was changed. Only
/// good within a process.
pub fn stamp_of(folder: &Path) -> Result<u64, SeedError> {
    let mut hasher = DefaultHasher::new();
    stamp(folder, look(folder)?.dev(), &mut hasher)?;
    Ok(hasher.finish())
}

fn stamp(folder: &Path, device: u64, hasher: &mut DefaultHasher) -> Result<(), SeedError> {
    // That somebody has looked into it is no change.
    let marks = |metadata: &Metadata| {
        (
            metadata.ino(),
            metadata.mode(),
            metadata.ctime(),
            metadata.ctime_nsec(),
        )
    };
    marks(&look(folder)?).hash(hasher);
    for name in names(folder)? {
        let path = folder.join(&name);
        let metadata = look(&path)?;
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
        let metadata = look(&path)?;
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
    /// Of the first tree: what has another one is mounted below it.
    device: u64,
    /// Inodes of the first tree that have several names, and what they are in the second.
    links: BTreeMap<u64, u64>,
    seeded: Seeded,
}

impl Comparison {
    fn folder(&mut self, from: &Path, to: &Path, top: bool) -> Result<(), SeedError> {
        self.entry(from, to)?;
        let ours = names(from)?;
        let mut theirs = names(to)?;
        if top && !ours.contains(OsStr::new(LOST_AND_FOUND)) {
            theirs.remove(OsStr::new(LOST_AND_FOUND));
        }
        if ours != theirs {
            return Err(differs(from, "names"));
        }
        for name in ours {
            let (from, to) = (from.join(&name), to.join(&name));
            let metadata = look(&from)?;
            if metadata.dev() != self.device {
                // Something is mounted here: it is not copied, its place is.
                if !look(&to)?.is_dir() {
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
        let (ours, theirs) = (look(from)?, look(to)?);
        let same = |what: &str, same: bool| if same { Ok(()) } else { Err(differs(from, what)) };
        same("kind", kind(&ours) == kind(&theirs))?;
        same("mode", ours.mode() == theirs.mode())?;
        same("owner", (ours.uid(), ours.gid()) == (theirs.uid(), theirs.gid()))?;
        same(
            "time of change",
            (ours.mtime(), ours.mtime_nsec()) == (theirs.mtime(), theirs.mtime_nsec()),
        )?;
        same("device number", ours.rdev() == theirs.rdev())?;
        if !ours.is_dir() {
            same("size", ours.len() == theirs.len())?;
        }
        if ours.is_symlink() {
            same("target", link(from)? == link(to)?)?;
        }
        if !ours.is_dir() && ours.nlink() > 1 {
            let known = self.links.insert(ours.ino(), theirs.ino());
            same("hard links", known.is_none_or(|known| known == theirs.ino()))?;
        }
        same("extended attributes", attributes(from)? == attributes(to)?)
    }
}

fn contents(from: &Path, to: &Path) -> Result<(), SeedError> {
    let open = |path: &Path| File::open(path).map_err(io_error("open", path));
    let (mut ours, mut theirs) = (open(from)?, open(to)?);
    let (mut a, mut b) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let count = ours.read(&mut a).map_err(io_error("read", from))?;
        if count == 0 {
            let rest = theirs.read(&mut b).map_err(io_error("read", to))?;
            return if rest == 0 {
                Ok(())
            } else {
                Err(differs(from, "contents"))
            };
        }
        let piece = &mut b[..count];
        theirs.read_exact(piece).map_err(io_error("read", to))?;
        if a[..count] != *piece {
            return Err(differs(from, "contents"));
        }
    }
}

fn attributes(path: &Path) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, SeedError> {
    let at = |step, errno: rustix::io::Errno| io_error(step, path)(errno.into());
    // The kernel's own bounds (XATTR_LIST_MAX, XATTR_SIZE_MAX).
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

fn look(path: &Path) -> Result<Metadata, SeedError> {
    fs::symlink_metadata(path).map_err(io_error("look at", path))
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
