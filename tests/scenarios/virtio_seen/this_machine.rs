use std::{fs, path::Path};

use virtfleet_agent_core::virtio::{Sharing, features::transport};
use virtfleet_agent_host::{Roots, virtio::observe};
use virtfleet_tests::roots::virtio::FakeNics;

/// Entries of a folder of sysfs for which `wanted` holds.
fn entries(folder: &str, wanted: impl Fn(&Path) -> bool) -> Vec<String> {
    let found = fs::read_dir(folder).into_iter().flatten().flatten();
    let found = found.filter(|entry| wanted(&entry.path()));
    let mut names: Vec<String> = found
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn every_device_of_this_machine_is_seen() {
    let machine = observe(&Roots::default(), &FakeNics::default(), true);
    assert_eq!(
        machine.kernel,
        fs::read_to_string("/proc/sys/kernel/osrelease").unwrap().trim()
    );
    assert!(!machine.cpus.online.is_empty());
    assert!(machine.cpus.possible.len() >= machine.cpus.online.len());
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    let devices = machine.devices.iter().map(|device| device.name.clone());
    assert_eq!(
        sorted(devices.collect()),
        entries("/sys/bus/virtio/devices", |_| true)
    );
    let nics = machine.nics.iter().map(|nic| nic.name.clone());
    assert_eq!(
        sorted(nics.collect()),
        entries("/sys/class/net", |path| path.join("device").exists())
    );
    let about_devices = machine.unread.iter().filter(|one| one.what.contains("/virtio"));
    assert_eq!(about_devices.count(), 0, "{:?}", machine.unread);
    for device in &machine.devices {
        assert!(
            device.kind.name().is_some() && !device.address.is_empty(),
            "{device:?}"
        );
        if device.driver.is_some() && device.status == Some(15) {
            assert!(
                device.negotiated.has(transport::VERSION_1) || device.negotiated.0 < 1 << 32,
                "{device:?}"
            );
        }
        for queue in &device.queues {
            let vector = queue.irq.map(|irq| device.vector(irq));
            assert!(vector.is_none_or(|vector| vector.is_some()), "{device:?}");
        }
        assert_eq!(
            device.sharing == Sharing::Own,
            device.queues.iter().any(|queue| queue.irq.is_some()) && device.shared_vector().is_none()
        );
    }
    for nic in &machine.nics {
        assert!(nic.index > 0 && nic.mtu > 0 && !nic.driver.is_empty(), "{nic:?}");
        assert!(!nic.queues.is_empty(), "{nic:?}");
        if let Some(device) = &nic.device {
            assert!(machine.device(device).unwrap().parts.contains(&nic.name));
        }
    }
    for disk in &machine.disks {
        assert!(!disk.queues.is_empty() && !disk.driver.is_empty(), "{disk:?}");
    }
}
