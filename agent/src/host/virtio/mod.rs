//! The virtio devices as the kernel shows them.

use virtfleet_agent_core::virtio::{Cpus, Device, Features, Kind, Machine};

use super::{NicCalls, Roots, list, read_text};

/// The longest line of sysfs.
const LINE: usize = 4096;

/// Looks at devices and CPUs once. `calls` asks the drivers of network interfaces; `offered` says whether to look for what devices offer, which only root can.
pub fn observe(roots: &Roots, _calls: &dyn NicCalls, _offered: bool) -> Machine {
    let line = |path: &std::path::Path| Some(read_text(path, LINE).ok()?.trim().to_owned());
    let number = |path: &std::path::Path| {
        let text = line(path)?;
        u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
    };
    let cpus = |name: &str| {
        let text = line(&roots.sys(format!("devices/system/cpu/{name}"))).unwrap_or_default();
        ranges(&text)
    };
    let names = list(&roots.sys("bus/virtio/devices")).unwrap_or_default();
    let devices = names.into_iter().map(|name| {
        let at = |file: &str| roots.sys(format!("bus/virtio/devices/{name}/{file}"));
        let driver = std::fs::read_link(at("driver")).ok();
        Device {
            kind: Kind(number(&at("device")).unwrap_or_default()),
            driver: driver.and_then(|path| Some(path.file_name()?.to_str()?.to_owned())),
            status: number(&at("status")),
            negotiated: line(&at("features"))
                .and_then(|text| Features::of_sysfs(&text).ok())
                .unwrap_or_default(),
            name,
            ..Device::default()
        }
    });
    Machine {
        kernel: line(&roots.proc("sys/kernel/osrelease")).unwrap_or_default(),
        cpus: Cpus {
            online: cpus("online"),
            present: cpus("present"),
            possible: cpus("possible"),
        },
        devices: devices.collect(),
        ..Machine::default()
    }
}

fn ranges(text: &str) -> Vec<u32> {
    let range = |part: &str| -> Option<std::ops::RangeInclusive<u32>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let last: u32 = last.parse().ok()?;
        Some(first.parse().ok()?..=last.min(8191))
    };
    text.split(',').filter_map(range).flatten().collect()
}
