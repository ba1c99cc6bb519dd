use virtfleet_agent_core::virtio::{Channels, Role, Sharing};
use virtfleet_tests::roots::virtio::{Disk, Nic, Tree};

use super::seen;

#[test]
fn no_device() {
    let machine = seen(&Tree::default());
    assert!(machine.devices.is_empty() && machine.nics.is_empty() && machine.disks.is_empty());
    assert_eq!((machine.unread.len(), machine.vectors.used), (0, 0));
}

#[test]
fn sixty_four_interfaces() {
    let machine = seen(&Tree {
        nics: vec![Nic::pairs(2, 2); 64],
        ..Tree::default()
    });
    assert_eq!(machine.unread, []);
    assert_eq!((machine.devices.len(), machine.nics.len()), (64, 64));
    let names: Vec<_> = machine.nics.iter().map(|nic| nic.name.clone()).collect();
    assert_eq!(names, (0..64).map(|nic| format!("eth{nic}")).collect::<Vec<_>>());
    for (number, (nic, device)) in machine.nics.iter().zip(&machine.devices).enumerate() {
        assert_eq!(
            (nic.device.as_ref(), &device.address),
            (Some(&device.name), &nic.address)
        );
        assert_eq!(
            (device.name.clone(), device.queues.len()),
            (format!("virtio{number}"), 4)
        );
        assert!(
            device
                .queues
                .iter()
                .all(|queue| device.vector(queue.irq.unwrap()).is_some())
        );
    }
    assert_eq!(machine.vectors.used, 64 * 5);
    if let Some(left) = machine.vectors.left() {
        assert_eq!(left, 2 * 200 - 16 - 64 * 5);
    }
}

#[test]
fn queues_of_256_cpus() {
    let machine = seen(&Tree {
        cpus: 256,
        possible: 512,
        nics: vec![Nic::pairs(256, 256)],
        disks: vec![Disk {
            queues: 256,
            ..Disk::default()
        }],
        ..Tree::default()
    });
    assert_eq!(machine.unread, []);
    assert_eq!(
        (machine.cpus.online.len(), machine.cpus.possible.len()),
        (256, 512)
    );
    let nic = &machine.nics[0];
    let all = Channels {
        current: 256,
        possible: 256,
    };
    assert_eq!((nic.channels, nic.queues.len()), (Some(all), 512));
    assert_eq!(nic.queues[511].cpus.as_deref(), Some(&[255][..]));
    let device = &machine.devices[0];
    assert_eq!(
        (device.sharing, device.queues_of(&Role::Output).count()),
        (Sharing::Own, 256)
    );
    assert_eq!(device.queues[255].index, 255);
    let disk = &machine.disks[0];
    assert_eq!(
        (disk.queues.len(), disk.queues[255].cpus.as_slice()),
        (256, &[255][..])
    );
    assert_eq!(machine.devices[1].queues.len(), 256);
}
