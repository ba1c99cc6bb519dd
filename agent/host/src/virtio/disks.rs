//! The disks behind which there is a device (`/sys/block`; kernel: `block/blk-sysfs.c`, `block/blk-mq-sysfs.c`).

use std::{
    fs,
    path::{Path, PathBuf},
};

use virtfleet_agent_core::{
    procfs::cpulist,
    virtio::{Disk, DiskKind, DiskQueue, WriteCache},
};

use super::{
    look::{Look, not},
    pci::{QEMU, subsystem_vendor},
    place::place,
};
use crate::disks::udev_serial;

/// Drivers of controllers that hypervisors emulate: SATA, IDE, the SCSI controllers of LSI and VMware, USB.
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
/// The vendor of the subsystem of VMware's controller, which QEMU plays, too.
const VMWARE: &str = "0x15ad";
/// The kernel counts in sectors of this size, whatever the device's.
const SECTOR: u64 = 512;

/// All of them, by name.
pub(super) fn disks(look: &mut Look<'_>) -> Vec<Disk> {
    let folder = look.roots.sys("block");
    let mut all = Vec::new();
    for name in look.names(&folder) {
        let path = folder.join(&name);
        // Drives for CDs and floppies are emulated because no disk of virtio is one.
        if name.starts_with("sr") || name.starts_with("fd") {
            continue;
        }
        // What is made of others, like a loop device or a volume, has no such link; a path of several to one disk of NVMe is hidden.
        let Ok(device) = fs::canonicalize(path.join("device")) else {
            continue;
        };
        if look.quiet(&path.join("hidden")).as_deref() == Some("1") {
            continue;
        }
        let mark = look.mark();
        let disk = disk(look, name, &path, &device);
        if fs::symlink_metadata(&path).is_ok() {
            all.push(disk);
        } else {
            look.forget(mark);
        }
    }
    all
}

fn disk(look: &mut Look<'_>, name: String, path: &Path, device: &Path) -> Disk {
    let place = place(&controller(look, device));
    let kind = match place.driver.as_str() {
        "virtio_blk" => DiskKind::VirtioBlk,
        "virtio_scsi" => DiskKind::VirtioScsi,
        "nvme" => DiskKind::Nvme,
        driver if EMULATED.contains(&driver) && is_played(look, &place.address) => DiskKind::Emulated,
        _ => DiskKind::Other,
    };
    let queue = path.join("queue");
    let (scheduler, schedulers) = schedulers(&look.text(&queue.join("scheduler")).unwrap_or_default());
    Disk {
        kind,
        driver: place.driver,
        device: place.virtio,
        address: place.address,
        bytes: look
            .number::<u64>(&path.join("size"))
            .unwrap_or_default()
            .saturating_mul(SECTOR),
        serial: serial(look, path),
        queues: queues(look, &path.join("mq")),
        requests: look.number(&queue.join("nr_requests")),
        scheduler,
        schedulers,
        write_cache: write_cache(look, path),
        discard: look.number(&queue.join("discard_max_bytes")),
        read_only: look.number::<u8>(&path.join("ro")).is_some_and(|ro| ro != 0),
        in_flight: in_flight(look, &path.join("inflight")),
        name,
    }
}

/// From what udev has found out. The file `serial` of a virtio-blk disk asks the device at each reading (kernel: `drivers/block/virtio_blk.c`, `serial_show`), and
/// whoever reads it waits, and cannot be ended, for as long as the volume stands still.
fn serial(look: &mut Look<'_>, path: &Path) -> Option<String> {
    let number = look.text(&path.join("dev"))?;
    udev_serial(look.roots, &number)
}

/// Whether a controller is none that is passed through: that has its maker in the subsystem's vendor, where it can be read.
fn is_played(look: &mut Look<'_>, address: &str) -> bool {
    let vendor = subsystem_vendor(look, address);
    vendor.is_none_or(|vendor| [QEMU, VMWARE].contains(&vendor.as_str()))
}

/// The folder from which to look for the controller. A SCSI disk's own driver is `sd`, and what it is attached to lies above its host; a disk of NVMe with several
/// paths belongs to a subsystem, which has links to the controllers.
fn controller(look: &mut Look<'_>, device: &Path) -> PathBuf {
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
        let first = look.names(device).into_iter().find(|name| {
            name.strip_prefix("nvme")
                .is_some_and(|number| number.parse::<u32>().is_ok())
        });
        if let Some(real) = first.and_then(|name| fs::canonicalize(device.join(name)).ok()) {
            return real;
        }
    }
    device.to_owned()
}

fn queues(look: &mut Look<'_>, folder: &Path) -> Vec<DiskQueue> {
    let numbered = |name: &String| name.parse::<u32>().is_ok();
    let names: Vec<String> = look.names(folder).into_iter().filter(numbered).collect();
    let mut queues = Vec::new();
    for name in names {
        let path = folder.join(name).join("cpu_list");
        let cpus = look
            .text(&path)
            .and_then(|text| look.parsed(&path, cpulist::cpus(&text)));
        queues.push(DiskQueue {
            cpus: cpus.unwrap_or_default(),
            depth: look.number(&path.with_file_name("nr_tags")),
        });
    }
    queues
}

/// The scheduler in use stands in brackets; a device that can have none says `none`.
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

/// What the block layer reckons with, else what the driver says.
fn write_cache(look: &mut Look<'_>, path: &Path) -> Option<WriteCache> {
    for name in ["queue/write_cache", "cache_type"] {
        let path = path.join(name);
        let Some(text) = look.text(&path) else { continue };
        let made = match text.as_str() {
            "write back" => Ok(WriteCache::Back),
            "write through" => Ok(WriteCache::Through),
            other => Err(not("write back or write through", other)),
        };
        if let Some(cache) = look.parsed(&path, made) {
            return Some(cache);
        }
    }
    None
}

/// Reads and writes that are under way.
fn in_flight(look: &mut Look<'_>, path: &Path) -> Option<(u64, u64)> {
    let text = look.text(path)?;
    let mut words = text.split_whitespace().map(str::parse);
    let made = match (words.next(), words.next(), words.next()) {
        (Some(Ok(reads)), Some(Ok(writes)), None) => Ok((reads, writes)),
        _ => Err(not("two numbers", &text)),
    };
    look.parsed(path, made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedulers_in_all_their_forms() {
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
