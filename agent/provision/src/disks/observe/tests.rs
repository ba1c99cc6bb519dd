use std::fs;

use virtfleet_agent_core::disks::{Bus, Carried};
use virtfleet_agent_host::Roots;
use virtfleet_wire::settings::{DiskMatch, DiskSettings};

use super::*;
use crate::machine::BootIdentity;

const UUID: &str = "11111111-2222-4333-8444-555555555555";

/// A degraded mirror is mounted from its only device, and sysfs lists no other one.
#[test]
fn a_btrfs_in_place_has_the_number_of_devices_of_its_superblock() {
    let dir = tempfile::tempdir().unwrap();
    let roots = Roots {
        rootfs: dir.path().to_owned(),
        ..Roots::default()
    };
    let mut superblock = vec![0_u8; 128 << 10];
    superblock[(64 << 10) + 64..][..8].copy_from_slice(b"_BHRfS_M");
    superblock[(64 << 10) + 136] = 2;
    fs::create_dir(dir.path().join("dev")).unwrap();
    fs::write(dir.path().join("dev/vdb"), superblock).unwrap();
    let boot = BootIdentity::default();
    let provisioner = DiskProvisioner::of_guest(&roots, &boot, None);
    let (wanted, problems) = provisioner.checked(&[DiskSettings {
        matching: DiskMatch {
            serial: Some("s".to_owned()),
            ..DiskMatch::default()
        },
        filesystem: DiskFilesystem::Btrfs,
        mount_point: Some("/srv/data".to_owned()),
        ..DiskSettings::named("data")
    }]);
    assert!(problems.is_empty(), "{problems:?}");
    let number = DevNumber {
        major: 253,
        minor: 16,
    };
    let mut device = Device {
        id: DeviceId {
            name: "vdb".to_owned(),
            number,
            diskseq: None,
            size: 1 << 30,
            serial: Some("s".to_owned()),
            partition: None,
        },
        bus: Bus::Virtio,
        volume: None,
        paths: Vec::new(),
        syspath: String::new(),
        logical_block: 512,
        read_only: false,
        carries_system: false,
        uses: Vec::new(),
        carried: Carried::Unknown,
        fault: None,
        came_later: false,
    };
    let mounts = [Mounted {
        mount_point: "/srv/data".to_owned(),
        number,
        root: "/".to_owned(),
        filesystem: "btrfs".to_owned(),
        options: Vec::new(),
        filesystem_bytes: None,
        owner: None,
    }];
    let uuid = UUID.to_owned();
    let mut probe = |name: &str| {
        name.clone_into(&mut device.id.name);
        let swaps = BTreeSet::new();
        in_place(
            &provisioner,
            &wanted[0],
            &device,
            None,
            &mounts,
            &swaps,
            Some(&uuid),
        )
    };
    let Some(Probe::HasData(content)) = probe("vdb") else {
        panic!("not in place")
    };
    assert_eq!((content.uuid.as_deref(), content.devices), (Some(UUID), Some(2)));
    // A device that cannot be read is not taken for the only one.
    assert!(matches!(probe("vdc"), Some(Probe::Unknown(_))));
}
