//! Health of mounted declared disks. Opens no device and needs no root. A filesystem that hangs
//! affects only its own result.
//!
//! ```text
//! mountinfo, swaps ─▶ block device of the disk's mount ─┬─▶ sysfs: error counters
//!                                                       ├─▶ MountProbe: statfs, stat (deadline)
//!                         ext4 with recorded errors     └─▶ MountProbe: write probe (deadline)
//! ```

mod counters;

use std::{fs, io, path::Path, sync::Arc, time::Duration};

use nix::errno::Errno;
use rustix::fs::{Mode, OFlags, StatVfsMountFlags};
use virtfleet_agent_core::{
    disks::{
        DevNumber,
        health::{DiskSample, StatfsResult, Usage},
        state::DiskState,
    },
    procfs::mountinfo::{self, Mount},
};

use crate::{
    FsSpace, MountProbe, MountTarget, ReadError, Roots, Statfs, StatfsOutcome, disks::observe::node_number,
    list, read_bounded, read_text,
};

const MAX_MOUNTINFO_BYTES: usize = 64 << 20;

/// A declared disk to inspect.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The kernel's name of the disk, e.g. `vdb`.
    pub device: &'a str,
    /// Declared mount point. `None` for swap.
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

/// Inspects disks repeatedly. Keeps its worker threads, which may hang in a filesystem.
#[derive(Debug)]
pub struct DiskHealth {
    probe: MountProbe,
    write_probe: MountProbe,
}

impl DiskHealth {
    /// `timeout`: maximum time for all filesystems together to answer.
    pub fn new(statfs: Arc<dyn Statfs>, timeout: Duration) -> Self {
        Self::with_write_probe(statfs, Arc::new(WriteProbe), timeout)
    }

    fn with_write_probe(statfs: Arc<dyn Statfs>, write: Arc<dyn Statfs>, timeout: Duration) -> Self {
        let asks: Arc<dyn Statfs> = Arc::new(RootProbe(statfs));
        Self {
            probe: MountProbe::new(asks, timeout),
            write_probe: MountProbe::new(write, timeout),
        }
    }

    /// Inspects each disk; results are in the same order, with `None` for a disk that is not
    /// mounted at its declared place.
    ///
    /// # Errors
    /// The mounts cannot be read, or no probe thread can be started.
    pub fn inspect(&mut self, roots: &Roots, asked: &[Asked<'_>]) -> io::Result<Vec<Option<DiskSample>>> {
        let places = places(roots)?;
        let (mut results, mut targets, mut positions) = (Vec::new(), Vec::new(), Vec::new());
        for asked in asked {
            let is_on = |block: &str| is_on_disk(roots, block, asked.device);
            let health = match asked.mount_point {
                None => swap(roots, is_on),
                Some(path) => places
                    .iter()
                    .rfind(|place| place.mount_point == path)
                    .filter(|place| is_on(&place.block))
                    .map(|place| {
                        positions.push(results.len());
                        targets.push(MountTarget {
                            mount_id: place.id,
                            path: roots.root(path).into(),
                        });
                        place.health(roots)
                    }),
            };
            results.push(health.map(|mut health| {
                (health.io_errors, health.io_timeouts) = counters::scsi(roots, asked.device);
                health
            }));
        }
        let outcomes = self.probe.probe(&targets)?;
        let (mut suspects, mut suspect_targets) = (Vec::new(), Vec::new());
        for ((outcome, at), target) in outcomes.into_iter().zip(positions).zip(targets) {
            if let Some(Some(health)) = results.get_mut(at) {
                answer(health, outcome);
                if is_suspect(health) {
                    suspects.push(at);
                    suspect_targets.push(target);
                }
            }
        }
        let outcomes = self.write_probe.probe(&suspect_targets)?;
        for (outcome, at) in outcomes.into_iter().zip(suspects) {
            if let (StatfsOutcome::Failed(errno @ (Errno::EROFS | Errno::EIO)), Some(Some(health))) =
                (outcome, results.get_mut(at))
            {
                health.read_only = Some(true);
                health.write_error = Some(errno.desc().to_owned());
            }
        }
        Ok(results)
    }
}

/// Whether the kernel may reject writes although the mount options do not say so.
fn is_suspect(health: &DiskSample) -> bool {
    // ext4 is the only filesystem with a counter of this name.
    health.answer == StatfsResult::Yes
        && health.read_only == Some(false)
        && health.errors.get("error").is_some_and(|count| *count > 0)
}

/// Extended attribute that does not exist. Removing it begins a transaction of the filesystem and
/// changes nothing.
const PROBED_ATTRIBUTE: &str = "trusted.virtfleet.probe";

/// Checks whether an ext4 takes writes, without writing. After an error, ext4 says `ro` in its
/// mount options up to Linux 6.11, and `emergency_ro` or `shutdown` from 6.15 on. The releases
/// between, and those to which the same change was ported back (6.1 of Debian 12), say nothing.
/// - Removing an attribute that does not exist fails with `ENODATA`, or with `EROFS` or `EIO` if
///   the filesystem rejects writes. This needs `CAP_SYS_ADMIN` and a mount that is not read-only.
/// - Otherwise fsync(2) of the root directory fails with `EIO` from Linux 6.6 on (Debian 13).
struct WriteProbe;

impl Statfs for WriteProbe {
    fn statfs(&self, path: &Path) -> Result<FsSpace, Errno> {
        let errno = |error: rustix::io::Errno| Errno::from_raw(error.raw_os_error());
        let root = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(errno)?;
        let mount = rustix::fs::fstatvfs(&root).map_err(errno)?;
        if !mount.f_flag.contains(StatVfsMountFlags::RDONLY) {
            match rustix::fs::fremovexattr(&root, PROBED_ATTRIBUTE) {
                Ok(()) | Err(rustix::io::Errno::NODATA) => return Ok(FsSpace::default()),
                Err(error @ (rustix::io::Errno::ROFS | rustix::io::Errno::IO)) => return Err(errno(error)),
                // Without the right, or without such attributes.
                Err(_) => {}
            }
        }
        rustix::fs::fsync(&root).map_err(errno)?;
        Ok(FsSpace::default())
    }
}

fn answer(health: &mut DiskSample, outcome: StatfsOutcome) {
    health.answer = match outcome {
        StatfsOutcome::Space(space) => {
            health.space = Some(Usage {
                used: space.size.saturating_sub(space.free),
                available: space.available,
            });
            health.inodes = (space.files > 0).then(|| Usage {
                used: space.files.saturating_sub(space.files_free),
                available: space.files_free,
            });
            StatfsResult::Yes
        }
        StatfsOutcome::TimedOut => StatfsResult::Silent,
        // These errors are about the permissions or the mount namespace of this process, not about
        // the filesystem.
        StatfsOutcome::Failed(Errno::EACCES | Errno::EPERM | Errno::ENOENT) => StatfsResult::Unknown,
        StatfsOutcome::Failed(errno) => StatfsResult::Error(errno.desc().to_owned()),
    };
}

/// Probes the root directory too, because statfs(2) still succeeds on a filesystem that the kernel
/// has shut down.
struct RootProbe(Arc<dyn Statfs>);

impl Statfs for RootProbe {
    fn statfs(&self, path: &Path) -> Result<FsSpace, Errno> {
        let space = self.0.statfs(path)?;
        let readable = fs::metadata(path).and_then(|_| match fs::read_dir(path)?.next() {
            Some(Err(error)) => Err(error),
            _ => Ok(()),
        });
        let errno = readable
            .err()
            .and_then(|error| error.raw_os_error())
            .map(Errno::from_raw);
        // Only these errors are faults; a directory may be closed to users other than root.
        match errno {
            Some(fault @ (Errno::EIO | Errno::EUCLEAN | Errno::ENXIO | Errno::ENODEV | Errno::ESTALE)) => {
                Err(fault)
            }
            _ => Ok(space),
        }
    }
}

/// A mounted block device.
struct Place {
    id: u32,
    mount_point: String,
    /// The kernel's name of the block device.
    block: String,
    filesystem: String,
    read_only: bool,
}

impl Place {
    fn health(&self, roots: &Roots) -> DiskSample {
        let health = DiskSample {
            block: self.block.clone(),
            read_only: Some(self.read_only),
            ..DiskSample::default()
        };
        match self.filesystem.as_str() {
            "ext4" => counters::ext4(roots, health),
            "btrfs" => counters::btrfs(roots, health),
            _ => health,
        }
    }
}

/// The mounts of PID 1. If those are not readable, the mounts of this process; then only the
/// superblock's `ro` is used, because a hardened unit has read-only mounts of its own.
fn places(roots: &Roots) -> io::Result<Vec<Place>> {
    let (bytes, own) = match read_bounded(&roots.proc("1/mountinfo"), MAX_MOUNTINFO_BYTES) {
        Ok(bytes) => (bytes, false),
        Err(ReadError::Missing | ReadError::Denied) => {
            let bytes =
                read_bounded(&roots.proc("self/mountinfo"), MAX_MOUNTINFO_BYTES).map_err(io::Error::other)?;
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
    // A path that is not below the guest's root is kept unchanged, as in the filesystem collector;
    // whether it belongs to the disk is checked separately.
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

/// True if `block` is the disk itself or a device on top of it.
fn is_on_disk(roots: &Roots, block: &str, device: &str) -> bool {
    block == device
        // A partition has its directory below its disk's and a link here.
        || ["block", "class/block"].iter().any(|folder| {
            list(&roots.sys(format!("{folder}/{device}/holders")))
                .is_ok_and(|holders| holders.iter().any(|holder| holder == block))
        })
}

/// The swap area's entry in `/proc/swaps`, which counts in KiB.
fn swap(roots: &Roots, is_on: impl Fn(&str) -> bool) -> Option<DiskSample> {
    let text = read_text(&roots.proc("swaps"), 1 << 20).ok()?;
    text.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let &[node, _, size, used, ..] = &words[..] else {
            return None;
        };
        let block = name(roots, node_number(&roots.root(node))?)?;
        let kib = |text: &str| text.parse::<u64>().ok()?.checked_mul(1024);
        let (size, used) = (kib(size)?, kib(used)?);
        is_on(&block).then(|| DiskSample {
            block,
            answer: StatfsResult::Yes,
            space: Some(Usage {
                used,
                available: size.saturating_sub(used),
            }),
            ..DiskSample::default()
        })
    })
}

#[cfg(test)]
mod tests;
