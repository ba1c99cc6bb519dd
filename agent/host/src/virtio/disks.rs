//! Disks with a device (`/sys/block`; kernel: `block/blk-sysfs.c`, `block/blk-mq-sysfs.c`).

use std::{
    fs,
    path::{Path, PathBuf},
};

use virtfleet_agent_core::{
    procfs::cpulist,
    virtio::{Disk, DiskKind, DiskQueue, WriteCache},
};

use super::{
    file_reader::{FileReader, not},
    pci::{QEMU, subsystem_vendor},
    place::place,
};
use crate::disks::udev_serial;

/// Drivers of emulated controllers: SATA, IDE, the SCSI controllers of LSI and VMware, USB.
const EMULATED: [&str; 11] = [
    "ahci",
    "ata_piix",
    "ata_generic",
    "sym53c8xx",
    "mptspi",
    "mptsas",
    "mpt3sas",
    "megaraid_sas",
    "vmw_pvscsi",
    "usb-storage",
    "uas",
];
/// Subsystem vendor of VMware's controller, which QEMU emulates too.
const VMWARE: &str = "0x15ad";
/// The kernel's sector size in bytes, independent of the device's.
const SECTOR_BYTES: u64 = 512;

/// All disks by name.
pub(super) fn disks(reader: &mut FileReader<'_>) -> Vec<Disk> {
    let folder = reader.roots.sys("block");
    let mut all = Vec::new();
    for name in reader.names(&folder) {
        let path = folder.join(&name);
        // CD and floppy drives are always emulated; they are not virtio disks.
        if name.starts_with("sr") || name.starts_with("fd") {
            continue;
        }
        // Stacked devices, such as loop devices and volumes, have no such link. A single path of a
        // multipath NVMe disk is hidden.
        let Ok(device) = fs::canonicalize(path.join("device")) else {
            continue;
        };
        if reader.quiet(&path.join("hidden")).as_deref() == Some("1") {
            continue;
        }
        let mark = reader.mark();
        let disk = disk(reader, name, &path, &device);
        if fs::symlink_metadata(&path).is_ok() {
            all.push(disk);
        } else {
            reader.forget(mark);
        }
    }
    all
}

fn disk(reader: &mut FileReader<'_>, name: String, path: &Path, device: &Path) -> Disk {
    let place = place(&controller(reader, device));
    let kind = match place.driver.as_str() {
        "virtio_blk" => DiskKind::VirtioBlk,
        "virtio_scsi" => DiskKind::VirtioScsi,
        "nvme" => DiskKind::Nvme,
        driver if EMULATED.contains(&driver) && is_emulated(reader, &place.address) => DiskKind::Emulated,
        _ => DiskKind::Other,
    };
    let queue = path.join("queue");
    let (scheduler, schedulers) = schedulers(&reader.text(&queue.join("scheduler")).unwrap_or_default());
    Disk {
        kind,
        driver: place.driver,
        device: place.virtio,
        address: place.address,
        bytes: reader
            .number::<u64>(&path.join("size"))
            .unwrap_or_default()
            .saturating_mul(SECTOR_BYTES),
        serial: serial(reader, path),
        queues: queues(reader, &path.join("mq")),
        requests: reader.number(&queue.join("nr_requests")),
        scheduler,
        schedulers,
        write_cache: write_cache(reader, path),
        discard: reader.number(&queue.join("discard_max_bytes")),
        read_only: reader.number::<u8>(&path.join("ro")).is_some_and(|ro| ro != 0),
        in_flight: in_flight(reader, &path.join("inflight")),
        name,
    }
}

/// The serial from udev's database. Reading a virtio-blk disk's `serial` attribute sends a request
/// to the device (kernel: `drivers/block/virtio_blk.c`, `serial_show`); while the volume does not
/// respond, the reader blocks uninterruptibly.
fn serial(reader: &mut FileReader<'_>, path: &Path) -> Option<String> {
    let number = reader.text(&path.join("dev"))?;
    udev_serial(reader.roots, &number)
}

/// True if a controller is emulated: a passed-through one has its manufacturer as the subsystem
/// vendor.
fn is_emulated(reader: &mut FileReader<'_>, address: &str) -> bool {
    let vendor = subsystem_vendor(reader, address);
    vendor.is_none_or(|vendor| [QEMU, VMWARE].contains(&vendor.as_str()))
}

/// The directory from which the controller is found. A SCSI disk's own driver is `sd`; its
/// controller is above its host. A multipath NVMe disk belongs to a subsystem, which has links to
/// the controllers.
fn controller(reader: &mut FileReader<'_>, device: &Path) -> PathBuf {
    let is_host = |folder: &&Path| {
        let name = folder
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        name.strip_prefix("host")
            .is_some_and(|number| number.parse::<u32>().is_ok())
    };
    if let Some(above) = device.ancestors().find(is_host).and_then(Path::parent) {
        return above.to_owned();
    }
    let name = device
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    if name.starts_with("nvme-subsys") {
        let first = reader.names(device).into_iter().find(|name| {
            name.strip_prefix("nvme")
                .is_some_and(|number| number.parse::<u32>().is_ok())
        });
        if let Some(real) = first.and_then(|name| fs::canonicalize(device.join(name)).ok()) {
            return real;
        }
    }
    device.to_owned()
}

fn queues(reader: &mut FileReader<'_>, folder: &Path) -> Vec<DiskQueue> {
    let numbered = |name: &String| name.parse::<u32>().is_ok();
    let names: Vec<String> = reader.names(folder).into_iter().filter(numbered).collect();
    let mut queues = Vec::new();
    for name in names {
        let path = folder.join(name).join("cpu_list");
        let cpus = reader
            .text(&path)
            .and_then(|text| reader.parsed(&path, cpulist::cpus(&text)));
        queues.push(DiskQueue {
            cpus: cpus.unwrap_or_default(),
            depth: reader.number(&path.with_file_name("nr_tags")),
        });
    }
    queues
}

/// The scheduler in use is in brackets. A device that can have none lists `none`.
fn schedulers(text: &str) -> (Option<String>, Vec<String>) {
    let bare = |word: &str| word.trim_matches(['[', ']']).to_owned();
    let words: Vec<&str> = text.split_whitespace().collect();
    let used = words.iter().find(|word| word.starts_with('['));
    let used = used.or_else(|| words.first().filter(|_| words.len() == 1));
    (
        used.map(|word| bare(word)),
        words.iter().map(|word| bare(word)).collect(),
    )
}

/// The block layer's setting, else the driver's.
fn write_cache(reader: &mut FileReader<'_>, path: &Path) -> Option<WriteCache> {
    for name in ["queue/write_cache", "cache_type"] {
        let path = path.join(name);
        let Some(text) = reader.text(&path) else { continue };
        let made = match text.as_str() {
            "write back" => Ok(WriteCache::Back),
            "write through" => Ok(WriteCache::Through),
            other => Err(not("write back or write through", other)),
        };
        if let Some(cache) = reader.parsed(&path, made) {
            return Some(cache);
        }
    }
    None
}

/// Reads and writes in flight.
fn in_flight(reader: &mut FileReader<'_>, path: &Path) -> Option<(u64, u64)> {
    let text = reader.text(path)?;
    let mut words = text.split_whitespace().map(str::parse);
    let made = match (words.next(), words.next(), words.next()) {
        (Some(Ok(reads)), Some(Ok(writes)), None) => Ok((reads, writes)),
        _ => Err(not("two numbers", &text)),
    };
    reader.parsed(path, made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedulers_are_parsed_in_all_forms() {
        for (text, used, all) in [
            (
                "[none] mq-deadline kyber",
                Some("none"),
                &["none", "mq-deadline", "kyber"][..],
            ),
            (
                "none [mq-deadline]",
                Some("mq-deadline"),
                &["none", "mq-deadline"],
            ),
            ("none", Some("none"), &["none"]),
            ("a b", None, &["a", "b"]),
            ("", None, &[]),
        ] {
            let found = schedulers(text);
            assert_eq!(
                (found.0.as_deref(), found.1),
                (used, all.iter().map(|one| (*one).to_owned()).collect())
            );
        }
    }
}
