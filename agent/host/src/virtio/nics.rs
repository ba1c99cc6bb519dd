//! The network interfaces behind which there is a device (`/sys/class/net`; kernel: `net/core/net-sysfs.c`).

use std::{fs, path::Path};

use nix::errno::Errno;
use virtfleet_agent_core::{
    procfs::cpulist,
    virtio::{Counters, Direction, Nic, NicKind, NicQueue, counters},
};

use super::{
    leases::Leases,
    look::{Look, not},
    pci::{QEMU, subsystem_vendor},
    place::{is_pci, place},
};
use crate::NicCalls;

/// Drivers of devices that hypervisors emulate. Real cards that some of them drive, too, are none that a node would pass through.
const EMULATED: [&str; 9] = [
    "e1000", "e1000e", "8139too", "8139cp", "vmxnet3", "pcnet32", "ne2k-pci", "tulip", "sungem",
];
/// `IFF_UP`.
const UP: u32 = 1;
/// Queues of each direction that are taken.
const QUEUES: u32 = 4096;

/// All of them, by name.
pub(super) fn nics(look: &mut Look<'_>, calls: &dyn NicCalls) -> Vec<Nic> {
    let folder = look.roots.sys("class/net");
    let leases = Leases::of(look.roots);
    let mut all = Vec::new();
    for name in look.names(&folder) {
        let path = folder.join(&name);
        // What has no device behind it, like a bridge or a tunnel, has no such link.
        let Ok(device) = fs::canonicalize(path.join("device")) else {
            continue;
        };
        let mark = look.mark();
        let mut nic = nic(look, name, &path, &device);
        ask(look, calls, &mut nic);
        nic.dhcp_mtu = leases.mtu(&nic);
        if fs::symlink_metadata(&path).is_ok() {
            all.push(nic);
        } else {
            look.forget(mark);
        }
    }
    all
}

fn nic(look: &mut Look<'_>, name: String, path: &Path, device: &Path) -> Nic {
    let place = place(device);
    let on_pci = device
        .file_name()
        .and_then(|name| name.to_str())
        .is_some_and(is_pci);
    let kind = if place.virtio.is_some() {
        NicKind::Virtio
    } else if !on_pci {
        NicKind::Other
    } else if device.join("physfn").exists() {
        NicKind::Function
    } else if EMULATED.contains(&place.driver.as_str())
        || subsystem_vendor(look, &place.address).as_deref() == Some(QEMU)
    {
        NicKind::Emulated
    } else {
        NicKind::Function
    };
    let flags = look.needed(&path.join("flags")).and_then(|text| {
        let number = text
            .strip_prefix("0x")
            .and_then(|digits| u32::from_str_radix(digits, 16).ok());
        look.parsed(
            &path.join("flags"),
            number.ok_or_else(|| not("flags such as 0x1003", &text)),
        )
    });
    Nic {
        index: look.number(&path.join("ifindex")).unwrap_or_default(),
        mac: look.text(&path.join("address")).unwrap_or_default(),
        kind,
        driver: place.driver,
        device: place.virtio,
        address: place.address,
        up: flags.is_some_and(|flags| flags & UP != 0),
        // An interface that is down answers EINVAL.
        carrier: look
            .quiet(&path.join("carrier"))
            .and_then(|text| match text.as_str() {
                "1" => Some(true),
                "0" => Some(false),
                _ => None,
            }),
        operstate: look.text(&path.join("operstate")).unwrap_or_default(),
        mtu: look.number(&path.join("mtu")).unwrap_or_default(),
        queues: queues(look, &path.join("queues")),
        name,
        ..Nic::default()
    }
}

/// The queues that are in use: those that the kernel shows.
fn queues(look: &mut Look<'_>, folder: &Path) -> Vec<NicQueue> {
    let mut queues: Vec<NicQueue> = Vec::new();
    for entry in look.names(folder) {
        let (direction, number, steering) = match entry.split_once('-') {
            Some(("rx", number)) => (Direction::Receive, number, "rps_cpus"),
            Some(("tx", number)) => (Direction::Transmit, number, "xps_cpus"),
            _ => continue,
        };
        let Some(index) = number.parse().ok().filter(|index| *index < QUEUES) else {
            continue;
        };
        let folder = folder.join(&entry);
        let path = folder.join(steering);
        // The single queue of an interface that can have no more has no `xps_cpus`.
        let cpus = look
            .text(&path)
            .and_then(|text| look.parsed(&path, cpulist::mask(&text)));
        let timeouts = match direction {
            Direction::Receive => None,
            Direction::Transmit => look.number(&folder.join("tx_timeout")),
        };
        queues.push(NicQueue {
            direction,
            index,
            cpus,
            counters: Counters {
                timeouts,
                ..Counters::default()
            },
        });
    }
    queues.sort_by_key(|queue| (queue.direction, queue.index));
    queues
}

/// The interface has gone.
struct Gone;

/// Asks the driver, and puts the counters to their queues. Once it says that there is no such interface, nothing else is asked.
fn ask(look: &mut Look<'_>, calls: &dyn NicCalls, nic: &mut Nic) {
    let mut counted = ask_until_gone(look, calls, nic).unwrap_or_default();
    for queue in &mut nic.queues {
        if let Some(counters) = counted.remove(&(queue.direction, queue.index)) {
            let timeouts = counters.timeouts.or(queue.counters.timeouts);
            queue.counters = Counters { timeouts, ..counters };
        }
    }
}

fn ask_until_gone(
    look: &mut Look<'_>,
    calls: &dyn NicCalls,
    nic: &mut Nic,
) -> Result<counters::ByQueue, Gone> {
    let name = nic.name.clone();
    nic.channels = answer(look, &name, "channels", calls.channels(&name))?;
    nic.rings = answer(look, &name, "rings", calls.rings(&name))?;
    nic.coalescing = answer(look, &name, "coalescing", calls.coalescing(&name))?;
    let statistics = answer(look, &name, "statistics", calls.statistics(&name))?;
    let mut counted = counters::of_statistics(&statistics);
    let told = calls.queue_counters(nic.index);
    let told = answer(look, &name, "counters of the queues", told)?.unwrap_or_default();
    let told = told
        .into_iter()
        .map(|one| ((one.direction, one.index), one.counters));
    counters::merge(&mut counted, told);
    Ok(counted)
}

/// An answer; a refusal is noted, and is as good as nothing.
fn answer<T: Default>(
    look: &mut Look<'_>,
    nic: &str,
    what: &str,
    answer: Result<T, Errno>,
) -> Result<T, Gone> {
    match answer {
        Ok(answer) => Ok(answer),
        Err(Errno::ENODEV) => Err(Gone),
        Err(error) => {
            look.note(Path::new(&format!("{what} of {nic}")), error.desc());
            Ok(T::default())
        }
    }
}
