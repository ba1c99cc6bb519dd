//! Fixtures for the tests of this module.

use virtfleet_wire::settings::{DiskContent, DiskFilesystem, ProofKind, SeedFrom};

use super::{
    binds::{Bind, PRIVATE_MODE, default_directory, private_mount_point},
    device::{Bus, Carried, DevNumber, Device, DeviceId},
    journal::{Entry, Evidence, FORMAT, Journal, Progress},
    partition::{LINUX_DATA, Partition},
    probe::{Blankness, Content, Doubt, Probe},
    seen::{MountPoint, Seen},
    uuids,
    wanted::{Encryption, Key, KeySource, Owner, Wanted},
};

pub(super) const VM: &str = "6f1c1f3a-95d6-5e0b-8b43-7a0b5d5b0a01";
pub(super) const BOOT: &str = "boot-2";
pub(super) const FOREIGN: &str = "11111111-2222-4333-8444-555555555555";
pub(super) const GIB: u64 = 1 << 30;

/// A disk with a serial, a filesystem and a mount point.
pub(super) fn wanted(name: &str) -> Wanted {
    Wanted {
        name: name.to_owned(),
        serial: Some(format!("s-{name}")),
        volume: None,
        path: None,
        size: None,
        order: None,
        part_uuid: None,
        part_label: None,
        filesystem: DiskFilesystem::Ext4,
        mount_point: Some(format!("/mnt/{name}")),
        binds: Vec::new(),
        options: Vec::new(),
        owner: None,
        seed_from: SeedFrom::None,
        grow: false,
        ephemeral: false,
        required: false,
        shared: false,
        content: DiskContent::Blank,
        proof: ProofKind::Sampled,
        proof_seconds: 20,
        approve_above: 1 << 40,
        new: false,
        label: None,
        reserved_percent: None,
        mkfs_options: Vec::new(),
        discard: false,
        encryption: None,
    }
}

/// The disk with two places, `/mnt/<name>` and `/srv/<name>`, instead of its mount point.
pub(super) fn shared(disk: Wanted) -> Wanted {
    let bind = |path: String, mode| Bind {
        directory: default_directory(&path),
        path,
        owner: mode,
    };
    let mode = Owner {
        mode: Some(0o711),
        ..Owner::default()
    };
    let private = Owner {
        mode: Some(PRIVATE_MODE),
        ..Owner::default()
    };
    Wanted {
        mount_point: Some(private_mount_point(&disk.name)),
        binds: vec![
            bind(format!("/mnt/{}", disk.name), None),
            bind(format!("/srv/{}", disk.name), Some(mode)),
        ],
        owner: Some(private),
        ..disk
    }
}

pub(super) fn encrypted(name: &str) -> Wanted {
    Wanted {
        encryption: Some(Encryption {
            key: KeySource::File("/etc/keys/k".into()),
            recovery: None,
        }),
        ..wanted(name)
    }
}

pub(super) fn swap(name: &str) -> Wanted {
    Wanted {
        filesystem: DiskFilesystem::Swap,
        mount_point: None,
        ..wanted(name)
    }
}

/// A disk that is declared only by size and order.
pub(super) fn positional(name: &str, order: u32) -> Wanted {
    Wanted {
        serial: None,
        size: Some(GIB),
        order: Some(order),
        ..wanted(name)
    }
}

/// The n-th virtio disk, 1 GiB.
pub(super) fn device(n: u8, serial: Option<&str>) -> Device {
    Device {
        id: DeviceId {
            name: format!("vd{}", char::from(b'a' + n)),
            number: DevNumber {
                major: 253,
                minor: u32::from(n) * 16,
            },
            diskseq: Some(u64::from(n) + 1),
            size: GIB,
            serial: serial.map(str::to_owned),
            partition: None,
        },
        bus: Bus::Virtio,
        volume: None,
        paths: vec![format!("pci-0000:{n:02x}:00.0")],
        syspath: format!(
            "/sys/devices/pci0000:00/0000:{n:02x}:00.0/virtio{n}/block/vd{}",
            char::from(b'a' + n)
        ),
        logical_block: 512,
        read_only: false,
        carries_system: false,
        uses: Vec::new(),
        carried: Carried::Nothing,
        fault: None,
        came_later: false,
    }
}

/// A partition of 256 MiB with the type of Linux filesystems.
pub(super) fn partition(disk: &Device, index: u32, uuid: &str, label: &str) -> Device {
    let name = format!("{}{index}", disk.id.name);
    Device {
        id: DeviceId {
            number: DevNumber {
                minor: disk.id.number.minor + index,
                ..disk.id.number
            },
            size: 256 << 20,
            partition: Some(Partition {
                disk: disk.id.name.clone(),
                disk_number: disk.id.number,
                index,
                start: u64::from(index) << 28,
                uuid: Some(uuid.to_owned()),
                label: Some(label.to_owned()),
                kind: LINUX_DATA.to_owned(),
                attributes: 0,
            }),
            name: name.clone(),
            ..disk.id.clone()
        },
        syspath: format!("{}/{name}", disk.syspath),
        carries_system: false,
        uses: Vec::new(),
        ..disk.clone()
    }
}

pub(super) fn blank() -> Probe {
    Probe::Blank(Blankness {
        proof: ProofKind::Sampled,
        regions: 1024,
        bytes: GIB,
        size: GIB,
        ..Blankness::default()
    })
}

pub(super) fn unknown() -> Probe {
    Probe::Unknown(Doubt {
        reason: "read error at byte 4096: Input/output error".into(),
        passing: false,
    })
}

pub(super) fn content(kind: &str, uuid: Option<&str>) -> Content {
    Content {
        kind: kind.into(),
        uuid: uuid.map(str::to_owned),
        digest: "d1".into(),
        whole: true,
        first_byte: kind.is_empty().then_some(4096),
        ..Content::default()
    }
}

pub(super) fn data(kind: &str, uuid: Option<&str>) -> Probe {
    Probe::HasData(content(kind, uuid))
}

pub(super) fn fs_uuid(name: &str) -> String {
    uuids::filesystem(VM, name).unwrap()
}

pub(super) fn luks_uuid(name: &str) -> String {
    uuids::luks(VM, name).unwrap()
}

/// Journal entry for a disk of [`wanted`] on a device of [`device`].
pub(super) fn entry(name: &str, device: &Device, progress: Progress) -> Entry {
    Entry {
        format: FORMAT,
        name: name.into(),
        key: Key::Serial(format!("s-{name}")),
        progress,
        device: device.id.clone(),
        boot_id: BOOT.into(),
        filesystem: "ext4".into(),
        uuid: fs_uuid(name),
        luks_uuid: None,
        evidence: Evidence::Blank(Blankness {
            proof: ProofKind::Sampled,
            regions: 7,
            bytes: 7,
            ..Blankness::default()
        }),
        at_ns: 1,
        arguments: Vec::new(),
        others_wrote: false,
        binds: Vec::new(),
    }
}

pub(super) fn journal(entries: Vec<Entry>) -> Journal {
    Journal {
        entries,
        ..Journal::default()
    }
}

/// A guest with systemd, the disks, and an empty directory at each declared mount point.
pub(super) fn seen(wanted: &[Wanted], devices: Vec<Device>, probes: Vec<(&str, Probe)>) -> Seen {
    let points = wanted.iter().flat_map(Wanted::paths).map(str::to_owned);
    let empty = MountPoint {
        exists: true,
        ..MountPoint::default()
    };
    let mut seen = Seen {
        vm_uuid: VM.into(),
        boot_id: BOOT.into(),
        devices,
        probes: probes
            .into_iter()
            .map(|(name, probe)| (name.to_owned(), probe))
            .collect(),
        mount_points: points.map(|path| (path, empty.clone())).collect(),
        systemd: true,
        ..Seen::default()
    };
    for (name, probe) in &seen.probes {
        let serial = Some(format!("s-{name}"));
        let device = seen.devices.iter().find(|device| device.id.serial == serial);
        if let (Probe::HasData(Content { uuid: Some(uuid), .. }), Some(device)) = (probe, device) {
            seen.uuids
                .entry(uuid.clone())
                .or_default()
                .push(device.id.clone());
        }
    }
    seen
}
