//! Partitions that the settings can select: their place according to the kernel, and their table
//! entry.
//!
//! ```text
//! sysfs (disk, start, size) ─┐
//! udev's data, else blkid ───┴─▶ Device with a Partition; `fault` where the two differ
//! ```

use std::path::Path;

use virtfleet_agent_core::{
    disks::{Carried, Device, DeviceId, Doubt, Partition},
    procfs::udev,
};

use super::table_entry::SECTOR_BYTES;
pub(super) use super::table_entry::TableEntry;
use super::{
    Disks, Roots,
    facts::{dev_number, line, number, partition_folder, partitions},
    names,
    tools::blkid,
    uses::{self, Users},
};

/// Source of a partition's table entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TableSource {
    /// udev's data, which cost no read. blkid if udev does not run, or if udev's data differ from
    /// the kernel's.
    Udev,
    /// blkid, which reads the table on the disk.
    Disk,
}

impl Disks<'_> {
    /// The partitions of a disk. One that disappears meanwhile is left out. `udev`: udev runs here.
    pub(super) fn partitions_of(&self, disk: &Device, users: &Users, udev: bool) -> Vec<Device> {
        let names = partitions(self.roots, &disk.id.name);
        names
            .into_iter()
            .filter_map(|(name, _)| self.partition(disk, &name, users, TableSource::Udev, udev))
            .collect()
    }

    pub(super) fn partition(
        &self,
        disk: &Device,
        name: &str,
        users: &Users,
        source: TableSource,
        udev: bool,
    ) -> Option<Device> {
        let folder = partition_folder(self.roots, &disk.id.name, name);
        let dev = dev_number(&line(&folder.join("dev"))?)?;
        let (index, start, size) = place(&folder)?;
        let data = names::udev_data(self.roots, dev);
        let of_udev = || {
            let properties = udev::properties(&data);
            TableEntry::parse(
                properties.filter_map(|(key, value)| Some((key.strip_prefix("ID_PART_ENTRY_")?, value))),
            )
        };
        let known = match source {
            TableSource::Udev => of_udev().filter(|entry| entry.differs(index, start, size).is_none()),
            TableSource::Disk => None,
        };
        let done = names::carried(&data) != Carried::Unknown;
        let (entry, fault) = match known {
            Some(entry) => (entry, None),
            // udev runs but is not done: its data arrive soon, so the device is not read.
            None if source == TableSource::Udev && udev && !done => (TableEntry::default(), None),
            None => match blkid::table_entry(self.commands, &self.roots.root(format!("/dev/{name}"))) {
                Ok(Some(entry)) => {
                    let fault = entry.differs(index, start, size);
                    (entry, fault)
                }
                Ok(None) => (
                    of_udev().unwrap_or_default(),
                    Some("the partition table on the disk has no such partition".to_owned()),
                ),
                Err(doubt) => (TableEntry::default(), Some(doubt.reason)),
            },
        };
        let fault = fault.or_else(|| self.overlap(&disk.id.name, name, start, size));
        Some(Device {
            id: DeviceId {
                name: name.to_owned(),
                number: dev,
                size,
                partition: Some(Partition {
                    disk: disk.id.name.clone(),
                    disk_number: disk.id.number,
                    index,
                    start,
                    uuid: entry.uuid,
                    label: entry.label,
                    kind: entry.kind,
                    attributes: entry.attributes,
                }),
                ..disk.id.clone()
            },
            syspath: format!("{}/{name}", disk.syspath),
            // An unreadable attribute counts as read-only.
            read_only: disk.read_only || number(&folder.join("ro")) != Some(0),
            carries_system: users.system.contains(name),
            uses: uses::of_partition(self.roots, disk, name, dev, users),
            carried: names::carried(&data),
            fault,
            ..disk.clone()
        })
    }

    /// Another partition of the disk that overlaps these bytes.
    fn overlap(&self, disk: &str, name: &str, start: u64, size: u64) -> Option<String> {
        let others = partitions(self.roots, disk).into_iter().map(|(other, _)| other);
        let mut others = others.filter(|other| other != name);
        let other = others.find(|other| {
            let place = place(&partition_folder(self.roots, disk, other));
            place.is_none_or(|(_, from, bytes)| {
                from < start.saturating_add(size) && start < from.saturating_add(bytes)
            })
        })?;
        Some(format!("the partition {other} overlaps it"))
    }

    /// Checks that the kernel still has the partition at the place in the identity, and that the
    /// table on the disk agrees. A whole disk always passes.
    ///
    /// # Errors
    /// A description of the difference, or the table cannot be read.
    pub(super) fn still_in_table(&self, id: &DeviceId) -> Result<(), Doubt> {
        let Some(partition) = &id.partition else {
            return Ok(());
        };
        let doubt = |reason: String| Doubt {
            reason: format!("/dev/{}: {reason}", id.name),
            passing: true,
        };
        let folder = partition_folder(self.roots, &partition.disk, &id.name);
        if place(&folder) != Some((partition.index, partition.start, id.size)) {
            return Err(doubt("the kernel's partition has moved or is gone".to_owned()));
        }
        let entry = blkid::table_entry(self.commands, &self.node(id))?;
        let entry =
            entry.ok_or_else(|| doubt("the partition table on the disk has no such partition".to_owned()))?;
        if let Some(reason) = entry.differs(partition.index, partition.start, id.size) {
            return Err(doubt(reason));
        }
        let same = (&entry.uuid, &entry.kind, entry.attributes)
            == (&partition.uuid, &partition.kind, partition.attributes);
        if same {
            Ok(())
        } else {
            Err(doubt(
                "its entry in the partition table has changed: PARTUUID, type or attributes".to_owned(),
            ))
        }
    }
}

/// Number, first byte and size in bytes of the kernel's partition.
fn place(folder: &Path) -> Option<(u32, u64, u64)> {
    let bytes = |file: &str| number(&folder.join(file))?.checked_mul(SECTOR_BYTES);
    let index = number(&folder.join("partition"))?.try_into().ok()?;
    let size = bytes("size").filter(|size| *size > 0)?;
    Some((index, bytes("start")?, size))
}

/// True if a device was processed by udev; then udev's data describe its content.
pub(super) fn udev_runs(disks: &[Device]) -> bool {
    disks.iter().any(|disk| disk.carried != Carried::Unknown)
}

/// True if udev has processed all partitions of these disks.
pub(super) fn udev_is_done(roots: &Roots, disks: &[Device]) -> bool {
    let partitions = disks.iter().flat_map(|disk| partitions(roots, &disk.id.name));
    let mut numbers = partitions.filter_map(|(_, number)| number);
    numbers.all(|number| names::carried(&names::udev_data(roots, number)) != Carried::Unknown)
}
