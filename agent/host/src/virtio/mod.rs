//! The virtio devices and those that stand where virtio was meant, as the kernel shows them: from sysfs, `/proc/interrupts`, `/proc/irq` and what the drivers of
//! network interfaces answer. What it means is decided in `agent_core::virtio`.
//!
//! ```text
//! interrupts ─┐
//! devices ────┤
//! nics ───────┼─▶ Machine
//! disks ──────┤
//! pci ────────┘
//! ```
//!
//! Nothing here fails. A device that goes away while it is read is left out; what cannot be read of one that is there is told in [`Machine::unread`], and the rest is
//! read all the same. Every folder and file has a bound.

mod devices;
mod disks;
mod interrupts;
mod leases;
mod look;
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

pub use self::interrupts::LIMIT as INTERRUPTS_LIMIT;
use self::look::Look;
use crate::{NicCalls, Roots, read_text};

/// Looks at everything once. `calls` asks the drivers of network interfaces; `offered` says whether to look for what devices offer, too, which only root can
/// (debugfs). No privilege is needed for the rest.
///
/// It costs a few system calls for each interrupt, queue and device: a few milliseconds on a usual guest, tens with hundreds of queues. Nothing is kept between calls.
pub fn observe(roots: &Roots, calls: &dyn NicCalls, offered: bool) -> Machine {
    let mut look = Look::new(roots);
    let kernel = look.needed(&roots.proc("sys/kernel/osrelease"));
    let cpus = cpus(&mut look);
    let interrupts = interrupts::of_devices(&mut look, &cpus);
    let mut devices = devices::devices(&mut look, interrupts, offered);
    let nics = nics::nics(&mut look, calls);
    let disks = disks::disks(&mut look);
    for device in &mut devices {
        complete(device, &nics, &disks);
    }
    let mut vectors = pci::vectors(&mut look);
    vectors.limit = Vectors::estimate(std::env::consts::ARCH, cpus.online.len());
    Machine {
        kernel: kernel.unwrap_or_default(),
        cpus,
        devices,
        nics,
        disks,
        vectors,
        asked_offered: offered,
        unread: look.unread(),
    }
}

fn cpus(look: &mut Look<'_>) -> Cpus {
    let folder = look.roots.sys("devices/system/cpu");
    let mut list = |name: &str| {
        let path: &Path = &folder.join(name);
        let text = look.needed(path)?;
        look.parsed(path, cpulist::cpus(&text))
    };
    Cpus {
        online: list("online").unwrap_or_default(),
        present: list("present").unwrap_or_default(),
        possible: list("possible").unwrap_or_default(),
        isolated: isolated(&folder),
        smt: look.text(&folder.join("smt/control")),
        random: processors::random(look),
    }
}

/// CPUs that are kept free. A kernel without such a thing has no file, or says `(null)`.
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

/// Adds what only others tell: disks behind a SCSI controller, and queues that have no interrupts of their own.
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
