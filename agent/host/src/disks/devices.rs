//! The whole disks that the kernel knows, from sysfs.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use virtfleet_agent_core::disks::{Bus, DevNumber, Device, DeviceId, Doubt, Use};

use super::{
    Disks, Kinds,
    facts::{block, dev_number, line, link_name, number},
    names,
    partitions::{self, TableSource},
    uses::{self, MountsError, Users},
};
use crate::{ReadError, list};

/// Device name prefixes that are not disks: in memory, over files, the network or other devices,
/// and optical drives.
const NOT_DISKS: [&str; 12] = [
    "bcache", "dm-", "drbd", "fd", "md", "mtdblock", "nbd", "ram", "rbd", "sr", "zd", "zram",
];

/// Maximum time to wait for a process that only reads a disk.
const READER_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time for udev to process partitions, which appear one by one at boot.
const UDEV_TIMEOUT: Duration = Duration::from_secs(5);

/// Why the list of disks is unknown. Nothing may be formatted then.
#[derive(Debug, thiserror::Error)]
pub enum DevicesError {
    #[error("cannot list the disks in {}: {reason}; is sysfs mounted?", path.display())]
    List { path: PathBuf, reason: ReadError },
    /// Mounts or swap areas cannot be read.
    #[error("cannot find out which disks are in use: {0}")]
    Uses(#[from] MountsError),
}

impl Disks<'_> {
    /// All whole disks. A disk that disappears meanwhile or has no size (an empty card reader) is
    /// left out.
    ///
    /// # Errors
    /// The list of disks, the mounts or the swap areas cannot be read.
    pub fn devices(&self) -> Result<Vec<Device>, DevicesError> {
        Ok(self.disks_and_users()?.0)
    }

    /// All whole disks, followed by their partitions with the table entries that udev has read.
    ///
    /// # Errors
    /// As [`Disks::devices`].
    pub fn devices_and_partitions(&self) -> Result<Vec<Device>, DevicesError> {
        let (mut devices, users) = self.disks_and_users()?;
        let udev = partitions::udev_runs(&devices);
        if udev {
            self.wait_for_udev(&devices);
        }
        let partitions: Vec<Device> = devices
            .iter()
            .flat_map(|disk| self.partitions_of(disk, &users, udev))
            .collect();
        devices.extend(partitions);
        Ok(devices)
    }

    /// Waits until udev has read the table entry of each partition, at most [`UDEV_TIMEOUT`].
    fn wait_for_udev(&self, disks: &[Device]) {
        let begun = Instant::now();
        while begun.elapsed() < UDEV_TIMEOUT && !partitions::udev_is_done(self.roots, disks) {
            #[expect(
                clippy::disallowed_methods,
                reason = "a thread of a one-shot program; udev signals nothing"
            )]
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// The current device with that number. For a partition, its table entry is read from the disk.
    /// `None` if the device is gone.
    ///
    /// # Errors
    /// As [`Disks::devices`].
    pub fn current(&self, id: &DeviceId) -> Result<Option<Device>, DevicesError> {
        let (devices, users) = self.disks_and_users()?;
        let number = id
            .partition
            .as_ref()
            .map_or(id.number, |partition| partition.disk_number);
        let disk = devices.into_iter().find(|device| device.id.number == number);
        if id.partition.is_none() {
            return Ok(disk);
        }
        let partition =
            disk.and_then(|disk| self.partition(&disk, &id.name, &users, TableSource::Disk, false));
        Ok(partition.filter(|partition| partition.id.number == id.number))
    }

    fn disks_and_users(&self) -> Result<(Vec<Device>, Users), DevicesError> {
        let path = self.roots.sys("block");
        let names = list(&path).map_err(|reason| DevicesError::List { path, reason })?;
        let users = Users::read(self.roots)?;
        let names = names
            .into_iter()
            .map(|name| name.replace('!', "/"))
            .filter(|name| self.counts(name));
        let devices = names
            .filter_map(|name| {
                let mut device = self.device(&name)?;
                device.carries_system = users.system.contains(&name);
                device.uses = uses::of(self.roots, &name, device.id.number, &users);
                Some(device)
            })
            .collect();
        Ok((devices, users))
    }

    /// Adds to each disk the processes that have it or one of its partitions open for writing,
    /// except this process and its descendants.
    ///
    /// # Errors
    /// The list of processes cannot be read.
    pub fn add_writers(&self, devices: &mut [Device]) -> Result<(), DevicesError> {
        let numbers: Vec<BTreeSet<DevNumber>> =
            devices.iter().map(|device| self.numbers(&device.id)).collect();
        let all = numbers.iter().flatten().copied().collect();
        let openers = uses::openers(self.roots, &all)?;
        for (device, numbers) in devices.iter_mut().zip(numbers) {
            let writers = openers
                .iter()
                .filter(|opener| opener.writes && numbers.contains(&opener.number));
            device
                .uses
                .extend(writers.map(|opener| Use::Opened(opener.process.clone())));
        }
        Ok(())
    }

    /// Checks that no process except this one and its descendants has the disk or one of its
    /// partitions open. A process that only reads may have it open briefly, as udev's workers do,
    /// so the check waits for it.
    ///
    /// # Errors
    /// A process still has it open, or the processes cannot be read.
    pub(super) fn check_unopened(&self, id: &DeviceId) -> Result<(), Doubt> {
        let numbers = self.numbers(id);
        let begun = Instant::now();
        loop {
            let openers = uses::openers(self.roots, &numbers).map_err(|error| Doubt {
                reason: format!(
                    "cannot find out which processes have /dev/{} open: {error}",
                    id.name
                ),
                passing: true,
            })?;
            let opener = openers.iter().max_by_key(|opener| opener.writes);
            let Some(opener) = opener else { return Ok(()) };
            if opener.writes || begun.elapsed() >= READER_TIMEOUT {
                return Err(Doubt {
                    reason: format!(
                        "the process {} has /dev/{} open for {}",
                        opener.process,
                        id.name,
                        if opener.writes { "writing" } else { "reading" }
                    ),
                    passing: true,
                });
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "a thread of a one-shot program; nothing signals it"
            )]
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Numbers of the disk and its partitions; for a partition, its own and its disk's, because the
    /// partition can be written through the disk.
    fn numbers(&self, id: &DeviceId) -> BTreeSet<DevNumber> {
        if let Some(partition) = &id.partition {
            return [id.number, partition.disk_number].into();
        }
        let partitions = super::facts::partitions(self.roots, &id.name);
        let partitions = partitions.into_iter().filter_map(|(_, number)| number);
        partitions.chain([id.number]).collect()
    }

    fn counts(&self, name: &str) -> bool {
        let is = |kind: &str| {
            name.strip_prefix(kind).is_some_and(|rest| {
                // `dm-0`, `sr0`, `md127`, `md_d0`, but not a hypothetical `srv`.
                rest.starts_with(|c: char| c.is_ascii_digit() || c == '_')
            })
        };
        if is("loop") {
            return self.kinds != Kinds::Real;
        }
        !NOT_DISKS.iter().any(|kind| is(kind))
    }

    /// What sysfs and udev report of one disk; uses are not filled.
    fn device(&self, name: &str) -> Option<Device> {
        let folder = block(self.roots, name);
        let at = |path: &str| folder.join(path);
        // One path of a multipath NVMe namespace. It has no device node.
        if number(&at("hidden")) == Some(1) {
            return None;
        }
        let dev = dev_number(&line(&at("dev"))?)?;
        // The kernel counts in units of 512 bytes, independent of the device's block size.
        let size = number(&at("size"))?.checked_mul(512).filter(|size| *size > 0)?;
        let udev = names::udev_data(self.roots, dev);
        Some(Device {
            id: DeviceId {
                name: name.to_owned(),
                number: dev,
                diskseq: number(&at("diskseq")),
                size,
                serial: names::serial(self.roots, name, &udev),
                partition: None,
            },
            bus: bus(name, link_name(&at("device/subsystem")).as_deref()),
            volume: names::volume(self.roots, name),
            paths: names::paths(self.roots, name, &udev),
            syspath: syspath(self, &folder),
            logical_block: number(&at("queue/logical_block_size"))
                .and_then(|bytes| bytes.try_into().ok())
                .unwrap_or(512),
            // An unreadable attribute counts as read-only.
            read_only: number(&at("ro")) != Some(0),
            carries_system: false,
            uses: Vec::new(),
            carried: names::carried(&udev),
            fault: None,
            came_later: false,
        })
    }
}

/// The path in `/sys/devices`, independent of the root of sysfs.
fn syspath(disks: &Disks<'_>, folder: &std::path::Path) -> String {
    let Ok(real) = fs::canonicalize(folder) else {
        return String::new();
    };
    let top = fs::canonicalize(&disks.roots.sysfs).unwrap_or_default();
    let below = real.strip_prefix(&top).unwrap_or(&real);
    format!("/sys/{}", below.display())
}

fn bus(name: &str, subsystem: Option<&str>) -> Bus {
    match subsystem {
        Some("virtio") => Bus::Virtio,
        Some("scsi") => Bus::Scsi,
        Some("nvme" | "nvme-subsystem") => Bus::Nvme,
        None if name.starts_with("loop") => Bus::Loop,
        _ => Bus::Other,
    }
}

#[cfg(test)]
mod tests;
