//! Network interfaces with a device (`/sys/class/net`; kernel: `net/core/net-sysfs.c`).

use std::{fs, path::Path};

use nix::errno::Errno;
use virtfleet_agent_core::{
    procfs::cpulist,
    virtio::{Counters, Direction, Nic, NicKind, NicQueue, counters},
};

use super::{
    file_reader::{FileReader, not},
    leases::Leases,
    pci::{QEMU, subsystem_vendor},
    place::{is_pci, place},
};
use crate::NicCalls;

/// Drivers of emulated devices. Some of them also drive real cards, but not ones that are passed
/// through to nodes.
const EMULATED: [&str; 9] = [
    "e1000", "e1000e", "8139too", "8139cp", "vmxnet3", "pcnet32", "ne2k-pci", "tulip", "sungem",
];
/// `IFF_UP`.
const UP: u32 = 1;
/// Maximum number of queues per direction.
const MAX_QUEUES: u32 = 4096;

/// All network interfaces by name.
pub(super) fn nics(reader: &mut FileReader<'_>, calls: &dyn NicCalls) -> Vec<Nic> {
    let folder = reader.roots.sys("class/net");
    let leases = Leases::of(reader.roots);
    let mut all = Vec::new();
    for name in reader.names(&folder) {
        let path = folder.join(&name);
        // Interfaces without a device, such as bridges and tunnels, have no such link.
        let Ok(device) = fs::canonicalize(path.join("device")) else {
            continue;
        };
        let mark = reader.mark();
        let mut nic = nic(reader, name, &path, &device);
        ask(reader, calls, &mut nic);
        nic.dhcp_mtu = leases.mtu(&nic);
        if fs::symlink_metadata(&path).is_ok() {
            all.push(nic);
        } else {
            reader.forget(mark);
        }
    }
    all
}

fn nic(reader: &mut FileReader<'_>, name: String, path: &Path, device: &Path) -> Nic {
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
        || subsystem_vendor(reader, &place.address).as_deref() == Some(QEMU)
    {
        NicKind::Emulated
    } else {
        NicKind::Function
    };
    let flags = reader.needed(&path.join("flags")).and_then(|text| {
        let number = text
            .strip_prefix("0x")
            .and_then(|digits| u32::from_str_radix(digits, 16).ok());
        reader.parsed(
            &path.join("flags"),
            number.ok_or_else(|| not("flags such as 0x1003", &text)),
        )
    });
    Nic {
        index: reader.number(&path.join("ifindex")).unwrap_or_default(),
        mac: reader.text(&path.join("address")).unwrap_or_default(),
        kind,
        driver: place.driver,
        device: place.virtio,
        address: place.address,
        up: flags.is_some_and(|flags| flags & UP != 0),
        // An interface that is down answers EINVAL.
        carrier: reader
            .quiet(&path.join("carrier"))
            .and_then(|text| match text.as_str() {
                "1" => Some(true),
                "0" => Some(false),
                _ => None,
            }),
        operstate: reader.text(&path.join("operstate")).unwrap_or_default(),
        mtu: reader.number(&path.join("mtu")).unwrap_or_default(),
        queues: queues(reader, &path.join("queues")),
        name,
        ..Nic::default()
    }
}

/// The queues in use, i.e. those in sysfs.
fn queues(reader: &mut FileReader<'_>, folder: &Path) -> Vec<NicQueue> {
    let mut queues: Vec<NicQueue> = Vec::new();
    for entry in reader.names(folder) {
        let (direction, number, steering) = match entry.split_once('-') {
            Some(("rx", number)) => (Direction::Receive, number, "rps_cpus"),
            Some(("tx", number)) => (Direction::Transmit, number, "xps_cpus"),
            _ => continue,
        };
        let Some(index) = number.parse().ok().filter(|index| *index < MAX_QUEUES) else {
            continue;
        };
        let folder = folder.join(&entry);
        let path = folder.join(steering);
        // The only queue of a single-queue interface has no `xps_cpus`.
        let cpus = reader
            .text(&path)
            .and_then(|text| reader.parsed(&path, cpulist::mask(&text)));
        let timeouts = match direction {
            Direction::Receive => None,
            Direction::Transmit => reader.number(&folder.join("tx_timeout")),
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

/// The interface has been removed.
struct Gone;

/// Queries the driver and adds the counters to the queues. Stops as soon as the interface is gone.
fn ask(reader: &mut FileReader<'_>, calls: &dyn NicCalls, nic: &mut Nic) {
    let mut counted = ask_until_gone(reader, calls, nic).unwrap_or_default();
    for queue in &mut nic.queues {
        if let Some(counters) = counted.remove(&(queue.direction, queue.index)) {
            let timeouts = counters.timeouts.or(queue.counters.timeouts);
            queue.counters = Counters { timeouts, ..counters };
        }
    }
}

fn ask_until_gone(
    reader: &mut FileReader<'_>,
    calls: &dyn NicCalls,
    nic: &mut Nic,
) -> Result<counters::ByQueue, Gone> {
    let name = nic.name.clone();
    nic.channels = answer(reader, &name, "channels", calls.channels(&name))?;
    nic.rings = answer(reader, &name, "rings", calls.rings(&name))?;
    nic.coalescing = answer(reader, &name, "coalescing", calls.coalescing(&name))?;
    let statistics = answer(reader, &name, "statistics", calls.statistics(&name))?;
    let mut counted = counters::of_statistics(&statistics);
    let counters = calls.queue_counters(nic.index);
    let counters = answer(reader, &name, "counters of the queues", counters)?.unwrap_or_default();
    let counters = counters
        .into_iter()
        .map(|one| ((one.direction, one.index), one.counters));
    counters::merge(&mut counted, counters);
    Ok(counted)
}

/// The answer's value. An error is recorded, and the default is used.
fn answer<T: Default>(
    reader: &mut FileReader<'_>,
    nic: &str,
    what: &str,
    answer: Result<T, Errno>,
) -> Result<T, Gone> {
    match answer {
        Ok(answer) => Ok(answer),
        Err(Errno::ENODEV) => Err(Gone),
        Err(error) => {
            reader.note(Path::new(&format!("{what} of {nic}")), error.desc());
            Ok(T::default())
        }
    }
}
