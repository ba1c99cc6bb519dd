//! How declared disks are doing in their places. It opens no device, needs no root, and a filesystem that hangs costs only its own answer.
//!
//! ```text
//! mountinfo, swaps ─▶ what the disk's place stands on ─▶ sysfs: errors that the filesystem and the disk have counted
//!                                                     └▶ MountProbe: statfs and stat, with a deadline
//! ```

mod counters;

use std::{fs, io, path::Path, sync::Arc, time::Duration};

use nix::errno::Errno;
use virtfleet_agent_core::{
    disks::{
        DevNumber,
        health::{Answer, Look, Usage},
        state::DiskState,
    },
    procfs::mountinfo::{self, Mount},
};

use crate::{
    FsSpace, MountProbe, Outcome, ReadError, Roots, Statfs, Target, disks::observe::node_number, list,
    read_bounded, read_text,
};

const CAP: usize = 64 << 20;

/// A declared disk that is to be looked at.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The kernel's name of the disk, e.g. `vdb`.
    pub device: &'a str,
    /// Where it is declared to be mounted; none for swap.
    pub mount_point: Option<&'a str>,
}

impl<'a> From<&'a DiskState> for Asked<'a> {
    fn from(disk: &'a DiskState) -> Self {
        Self {
            device: &disk.device,
            mount_point: (disk.filesystem != "swap").then_some(&disk.mount_point),
        }
    }
}

/// Looks at disks again and again; keeps the threads, of which one may hang in a filesystem.
#[derive(Debug)]
pub struct DiskHealth {
    probe: MountProbe,
}

impl DiskHealth {
    /// `timeout` is how long all filesystems together may take to answer.
    pub fn new(statfs: Arc<dyn Statfs>, timeout: Duration) -> Self {
        let asks: Arc<dyn Statfs> = Arc::new(Awake(statfs));
        Self {
            probe: MountProbe::new(asks, timeout),
        }
    }

    /// A look at each, in their order; none for a disk that is not in its place.
    pub fn look(&mut self, roots: &Roots, asked: &[Asked<'_>]) -> io::Result<Vec<Option<Look>>> {
        let places = places(roots)?;
        let (mut looks, mut targets, mut whose) = (Vec::new(), Vec::new(), Vec::new());
        for asked in asked {
            let stands = |block: &str| stands_on(roots, block, asked.device);
            let look = match asked.mount_point {
                None => swap(roots, stands),
                Some(path) => places
                    .iter()
                    .rfind(|place| place.mount_point == path)
                    .filter(|place| stands(&place.block))
                    .map(|place| {
                        whose.push(looks.len());
                        targets.push(Target {
                            mount_id: place.id,
                            path: roots.root(path).into(),
                        });
                        place.look(roots)
                    }),
            };
            looks.push(look.map(|mut look| {
                (look.io_errors, look.io_timeouts) = counters::scsi(roots, asked.device);
                look
            }));
        }
        let outcomes = self.probe.probe(&targets)?;
        for (outcome, at) in outcomes.into_iter().zip(whose) {
            if let Some(Some(look)) = looks.get_mut(at) {
                answer(look, outcome);
            }
        }
        Ok(looks)
    }
}

fn answer(look: &mut Look, outcome: Outcome) {
    look.answer = match outcome {
        Outcome::Space(space) => {
            look.space = Some(Usage {
                used: space.size.saturating_sub(space.free),
                available: space.available,
            });
            look.inodes = (space.files > 0).then(|| Usage {
                used: space.files.saturating_sub(space.files_free),
                available: space.files_free,
            });
            Answer::Yes
        }
        Outcome::TimedOut => Answer::Silent,
        // Said of whoever asks, or of the namespace that this is asked in, and not of the filesystem.
        Outcome::Failed(Errno::EACCES | Errno::EPERM | Errno::ENOENT) => Answer::Unknown,
        Outcome::Failed(errno) => Answer::Error(errno.desc().to_owned()),
    };
}

/// Asks more than for the space, which a filesystem that the kernel has shut down still tells: its root, and what is in it.
struct Awake(Arc<dyn Statfs>);

impl Statfs for Awake {
    fn statfs(&self, path: &Path) -> Result<FsSpace, Errno> {
        let space = self.0.statfs(path)?;
        let said = fs::metadata(path).and_then(|_| match fs::read_dir(path)?.next() {
            Some(Err(error)) => Err(error),
            _ => Ok(()),
        });
        let errno = said
            .err()
            .and_then(|error| error.raw_os_error())
            .map(Errno::from_raw);
        // A directory may be closed to others than root, which is no fault; these are.
        match errno {
            Some(fault @ (Errno::EIO | Errno::EUCLEAN | Errno::ENXIO | Errno::ENODEV | Errno::ESTALE)) => {
                Err(fault)
            }
            _ => Ok(space),
        }
    }
}

/// A mount of a block device.
struct Place {
    id: u32,
    mount_point: String,
    /// What it stands on, by the kernel's name.
    block: String,
    filesystem: String,
    read_only: bool,
}

impl Place {
    fn look(&self, roots: &Roots) -> Look {
        let look = Look {
            block: self.block.clone(),
            read_only: Some(self.read_only),
            ..Look::default()
        };
        match self.filesystem.as_str() {
            "ext4" => counters::ext4(roots, look),
            "btrfs" => counters::btrfs(roots, look),
            _ => look,
        }
    }
}

/// What the first process has mounted; or, where others hide its mounts, what we have: then only the superblock's `ro` counts, as a unit's
/// hardening makes mounts of its own read-only.
fn places(roots: &Roots) -> io::Result<Vec<Place>> {
    let (bytes, own) = match read_bounded(&roots.proc("1/mountinfo"), CAP) {
        Ok(bytes) => (bytes, false),
        Err(ReadError::Missing | ReadError::Denied) => {
            let bytes = read_bounded(&roots.proc("self/mountinfo"), CAP).map_err(io::Error::other)?;
            (bytes, true)
        }
        Err(error) => return Err(io::Error::other(format!("mountinfo: {error}"))),
    };
    let mut places = Vec::new();
    for mount in mountinfo::mounts(&bytes) {
        let mount = mount.map_err(|error| io::Error::other(format!("mountinfo: {error}")))?;
        places.extend(place(roots, &mount, own));
    }
    Ok(places)
}

fn place(roots: &Roots, mount: &Mount<'_>, own: bool) -> Option<Place> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let whole = text(&mount.mount_point);
    // What is not below the guest's root is told as it is, as by the collector of filesystems; that it stands on the disk is asked besides.
    let below = Path::new(&whole)
        .strip_prefix(&roots.rootfs)
        .unwrap_or(Path::new(&whole));
    let mut number = DevNumber {
        major: mount.major,
        minor: mount.minor,
    };
    // btrfs has a number without a device; its source is one of its devices.
    if number.major == 0 {
        number = Some(text(mount.source))
            .filter(|source| source.starts_with("/dev/"))
            .and_then(|source| node_number(&roots.root(source)))?;
    }
    let super_read_only = || {
        let mut options = mount.super_options.split(|byte| *byte == b',');
        options.any(|option| option == b"ro" || option == b"emergency_ro")
    };
    Some(Place {
        id: mount.id,
        mount_point: Path::new("/").join(below).display().to_string(),
        block: name(roots, number)?,
        filesystem: text(mount.fs_type),
        read_only: if own { super_read_only() } else { mount.read_only },
    })
}

/// The kernel's name of a block device.
fn name(roots: &Roots, number: DevNumber) -> Option<String> {
    let link = fs::read_link(roots.sys(format!("dev/block/{number}"))).ok()?;
    Some(link.file_name()?.to_str()?.to_owned())
}

/// Whether it is the disk itself, or something that stands on it.
fn stands_on(roots: &Roots, block: &str, device: &str) -> bool {
    block == device
        // A partition has its directory below that of its disk, and a link here.
        || ["block", "class/block"].iter().any(|folder| {
            list(&roots.sys(format!("{folder}/{device}/holders")))
                .is_ok_and(|holders| holders.iter().any(|holder| holder == block))
        })
}

/// The swap area, by `/proc/swaps`, which counts in KiB.
fn swap(roots: &Roots, stands: impl Fn(&str) -> bool) -> Option<Look> {
    let text = read_text(&roots.proc("swaps"), 1 << 20).ok()?;
    text.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let &[node, _, size, used, ..] = &words[..] else {
            return None;
        };
        let block = name(roots, node_number(&roots.root(node))?)?;
        let kib = |text: &str| text.parse::<u64>().ok()?.checked_mul(1024);
        let (size, used) = (kib(size)?, kib(used)?);
        stands(&block).then(|| Look {
            block,
            answer: Answer::Yes,
            space: Some(Usage {
                used,
                available: size.saturating_sub(used),
            }),
            ..Look::default()
        })
    })
}

#[cfg(test)]
mod tests;
