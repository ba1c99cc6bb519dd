//! virtio devices, and other devices where virtio is expected, from sysfs, `/proc/interrupts`,
//! `/proc/irq` and the drivers of network interfaces. Decisions are made in `agent_core::virtio`.
//!
//! ```text
//! interrupts ─┐
//! devices ────┤
//! nics ───────┼─▶ Machine
//! disks ──────┤
//! pci ────────┘
//! ```
//!
//! Nothing here fails. A device that disappears meanwhile is left out. What cannot be read of an
//! existing device is listed in [`Machine::unread`], and the rest is read. Every directory and file
//! has a size limit.

mod devices;
mod disks;
mod file_reader;
mod interrupts;
mod leases;
mod nics;
mod pci;
mod place;
mod processors;
#[cfg(test)]
mod tests;

use std::path::Path;

use virtfleet_agent_core::{
    procfs::cpulist,
    virtio::{Cpus, Device, Disk, Kind, Machine, Nic, Role, Sharing, Vectors},
};

use self::file_reader::FileReader;
pub use self::interrupts::MAX_INTERRUPTS_BYTES;
use crate::{NicCalls, Roots, read_text};

/// Inspects all devices once. `calls` queries the drivers of network interfaces. `offered`: also
/// read the features that devices offer, which requires root (debugfs); the rest needs no
/// privilege.
///
/// Cost: a few system calls per interrupt, queue and device, i.e. a few milliseconds on a usual
/// guest and tens of milliseconds with hundreds of queues. Nothing is cached between calls.
pub fn observe(roots: &Roots, calls: &dyn NicCalls, offered: bool) -> Machine {
    let mut reader = FileReader::new(roots);
    let kernel = reader.needed(&roots.proc("sys/kernel/osrelease"));
    let cpus = cpus(&mut reader);
    let interrupts = interrupts::of_devices(&mut reader, &cpus);
    let mut devices = devices::devices(&mut reader, interrupts, offered);
    let nics = nics::nics(&mut reader, calls);
    let disks = disks::disks(&mut reader);
    for device in &mut devices {
        complete(device, &nics, &disks);
    }
    let mut vectors = pci::vectors(&mut reader);
    vectors.limit = Vectors::estimate(std::env::consts::ARCH, cpus.online.len());
    Machine {
        kernel: kernel.unwrap_or_default(),
        cpus,
        devices,
        nics,
        disks,
        vectors,
        asked_offered: offered,
        unread: reader.unread(),
    }
}

fn cpus(reader: &mut FileReader<'_>) -> Cpus {
    let folder = reader.roots.sys("devices/system/cpu");
    let mut list = |name: &str| {
        let path: &Path = &folder.join(name);
        let text = reader.needed(path)?;
        reader.parsed(path, cpulist::cpus(&text))
    };
    Cpus {
        online: list("online").unwrap_or_default(),
        present: list("present").unwrap_or_default(),
        possible: list("possible").unwrap_or_default(),
        isolated: isolated(&folder),
        smt: reader.text(&folder.join("smt/control")),
        random: processors::random(reader),
    }
}

/// Isolated CPUs. A kernel without isolation has no file, or the text `(null)`.
fn isolated(folder: &Path) -> Vec<u32> {
    let lists = ["isolated", "nohz_full"].map(|name| {
        let text = read_text(&folder.join(name), 64 << 10).unwrap_or_default();
        cpulist::cpus(&text).unwrap_or_default()
    });
    let mut all = lists.concat();
    all.sort_unstable();
    all.dedup();
    all
}

/// Adds relations that are found elsewhere: disks behind a SCSI controller, and queues without
/// their own interrupts.
fn complete(device: &mut Device, nics: &[Nic], disks: &[Disk]) {
    let ours = |disk: &&Disk| disk.device.as_ref() == Some(&device.name);
    let disks: Vec<&Disk> = disks.iter().filter(ours).collect();
    for disk in &disks {
        if !device.parts.contains(&disk.name) {
            device.parts.push(disk.name.clone());
        }
    }
    if device.sharing == Sharing::Own {
        return;
    }
    let number = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    match device.kind {
        Kind::NET => {
            let nic = nics.iter().find(|nic| nic.device.as_ref() == Some(&device.name));
            let pairs = |nic: &Nic| {
                let possible = nic.channels.map(|channels| channels.possible);
                possible.unwrap_or_else(|| number(nic.queues.len().div_ceil(2)))
            };
            let pairs = nic.map_or(0, pairs);
            device.add_queues(&Role::Input, pairs);
            device.add_queues(&Role::Output, pairs);
        }
        Kind::BLOCK | Kind::SCSI => {
            let most = disks.iter().map(|disk| disk.queues.len()).max();
            device.add_queues(&Role::Request, number(most.unwrap_or(0)));
        }
        _ => {}
    }
}
