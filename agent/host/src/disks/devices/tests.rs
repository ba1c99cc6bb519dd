use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use virtfleet_agent_core::disks::{DevNumber, Use};

use super::*;
use crate::{FakeCommands, Roots};

/// A guest's file tree.
struct Guest {
    folder: tempfile::TempDir,
    roots: Roots,
}

impl Guest {
    fn new(mounts: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        let roots = Roots {
            rootfs: at("root"),
            procfs: at("proc"),
            sysfs: at("sys"),
            udev_data: at("udev"),
        };
        for path in [
            "root/dev/disk/by-path",
            "proc/1/ns",
            "sys/block",
            "sys/dev/block",
            "udev",
        ] {
            fs::create_dir_all(at(path)).unwrap();
        }
        symlink("mnt:[1]", at("proc/1/ns/mnt")).unwrap();
        fs::write(at("proc/1/mountinfo"), mounts).unwrap();
        fs::write(at("proc/swaps"), "Filename Type Size Used Priority\n").unwrap();
        Self { folder, roots }
    }

    /// Creates a device in `sys/devices` with its links.
    fn device(&self, path: &str, number: &str, files: &[(&str, &str)]) -> PathBuf {
        let folder = self.roots.sys("devices").join(path);
        fs::create_dir_all(folder.join("holders")).unwrap();
        fs::create_dir_all(folder.join("slaves")).unwrap();
        fs::create_dir_all(folder.join("queue")).unwrap();
        for (name, text) in [("dev", number), ("size", "2097152"), ("ro", "0")]
            .iter()
            .chain(files)
        {
            fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
            fs::write(folder.join(name), format!("{text}\n")).unwrap();
        }
        symlink(&folder, self.roots.sys("dev/block").join(number)).unwrap();
        if !folder.join("partition").exists() {
            let name = folder.file_name().unwrap();
            symlink(&folder, self.roots.sys("block").join(name)).unwrap();
        }
        folder
    }

    fn stack(upper: &Path, lower: &Path) {
        symlink(lower, upper.join("slaves").join(lower.file_name().unwrap())).unwrap();
        symlink(upper, lower.join("holders").join(upper.file_name().unwrap())).unwrap();
    }

    fn devices(&self) -> Vec<Device> {
        let commands = FakeCommands::content();
        let disks = Disks {
            roots: &self.roots,
            commands: &commands,
            kinds: Kinds::Real,
        };
        disks.devices().unwrap()
    }
}

#[test]
fn the_system_is_found_through_mappings_and_partitions() {
    let guest =
        Guest::new("1 0 253:0 / / rw - ext4 /dev/mapper/root rw\n2 1 8:2 / /boot rw - ext4 /dev/sda2 rw\n");
    guest.device("pci/vda", "252:0", &[]);
    let part = guest.device("pci/vda/vda1", "252:1", &[("partition", "1")]);
    let mapping = guest.device("virtual/dm-0", "253:0", &[]);
    Guest::stack(&mapping, &part);
    guest.device("pci/sda", "8:0", &[]);
    guest.device("pci/sda/sda2", "8:2", &[("partition", "2")]);
    guest.device(
        "pci/vdb",
        "252:16",
        &[
            ("serial", "data"),
            ("diskseq", "7"),
            ("queue/logical_block_size", "4096"),
        ],
    );
    for (index, name) in ["loop0", "zram0", "sr0", "ram1", "md127", "nbd0", "fd0"]
        .iter()
        .enumerate()
    {
        guest.device(&format!("virtual/{name}"), &format!("7:{index}"), &[]);
    }
    guest.device("pci/nvme0c0n1", "259:1", &[("hidden", "1")]);
    guest.device("pci/vdc", "252:32", &[("size", "0")]);
    let devices = guest.devices();
    let names: Vec<_> = devices
        .iter()
        .map(|device| (device.id.name.as_str(), device.carries_system))
        .collect();
    assert_eq!(names, [("sda", true), ("vda", true), ("vdb", false)]);
    assert_eq!(
        devices[1].uses,
        [Use::Partition("vda1".to_owned()), Use::Holder("dm-0".to_owned())]
    );
    let id = &devices[2].id;
    assert_eq!(
        (id.size, id.diskseq, id.serial.as_deref()),
        (1 << 30, Some(7), Some("data"))
    );
    assert_eq!(
        id.number,
        DevNumber {
            major: 252,
            minor: 16
        }
    );
    assert_eq!(
        (devices[2].logical_block, devices[2].syspath.as_str()),
        (4096, "/sys/devices/pci/vdb")
    );
    assert!(devices[2].uses.is_empty() && !devices[2].read_only);
}

#[test]
fn bus_paths_come_from_udev_and_from_the_links() {
    let guest = Guest::new("");
    let disk = guest.device("pci/sda", "8:0", &[]);
    let data = "S:disk/by-path/pci-0000:09:00.0\nE:ID_SERIAL_SHORT=short\nE:ID_SCSI_SERIAL=scsi\n";
    fs::write(guest.folder.path().join("udev/b8:0"), data).unwrap();
    let links = guest.roots.root("/dev/disk/by-path");
    symlink("../../sda", links.join("virtio-pci-0000:09:00.0")).unwrap();
    symlink("../../sda1", links.join("pci-0000:09:00.0-part1")).unwrap();
    let device = &guest.devices()[0];
    assert_eq!(device.paths, ["pci-0000:09:00.0", "virtio-pci-0000:09:00.0"]);
    assert_eq!(device.id.serial.as_deref(), Some("scsi"));
    // The serial from SCSI takes precedence.
    fs::create_dir_all(disk.join("device")).unwrap();
    fs::write(disk.join("device/vpd_pg80"), b"\0\x80\0\x04own ").unwrap();
    assert_eq!(guest.devices()[0].id.serial.as_deref(), Some("own"));
}

#[test]
fn unreadable_mounts_are_an_error() {
    let guest = Guest::new("no mount at all\n");
    guest.device("pci/vdb", "252:16", &[]);
    let commands = FakeCommands::content();
    let disks = Disks {
        roots: &guest.roots,
        commands: &commands,
        kinds: Kinds::Real,
    };
    let error = disks.devices().unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("cannot find out which disks are in use"),
        "{error}"
    );
}

/// Creates a partition in the tree of its disk and its udev data.
fn partition(guest: &Guest, name: &str, number: &str, place: (u32, u64, u64), table: (u64, u64)) {
    let (index, start, size) = place;
    let files = [
        ("partition", index.to_string()),
        ("start", start.to_string()),
        ("size", size.to_string()),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(file, text)| (*file, text.as_str())).collect();
    let folder = guest.device(&format!("pci/vda/{name}"), number, &files);
    // `device` has written another size before.
    fs::write(folder.join("size"), format!("{size}\n")).unwrap();
    let data = format!(
        "I:1\nE:ID_PART_ENTRY_SCHEME=gpt\nE:ID_PART_ENTRY_NAME={name}\nE:ID_PART_ENTRY_UUID=aa-{index}\n\
         E:ID_PART_ENTRY_TYPE=0fc63daf-8483-4772-8e79-3d69d8477de4\nE:ID_PART_ENTRY_NUMBER={index}\n\
         E:ID_PART_ENTRY_OFFSET={}\nE:ID_PART_ENTRY_SIZE={}\n",
        table.0, table.1
    );
    fs::write(guest.folder.path().join(format!("udev/b{number}")), data).unwrap();
}

#[test]
fn partitions_of_the_root_disk_are_distinguished() {
    let guest = Guest::new("1 0 252:1 / / rw - ext4 /dev/vda1 rw\n2 1 252:2 / /mnt rw - ext4 /dev/vda2 rw\n");
    guest.device(
        "pci/vda",
        "252:0",
        &[("serial", "root"), ("diskseq", "5"), ("size", "4194304")],
    );
    fs::write(guest.folder.path().join("udev/b252:0"), "I:1\n").unwrap();
    partition(&guest, "vda1", "252:1", (1, 2048, 200_000), (2048, 200_000));
    partition(&guest, "vda2", "252:2", (2, 300_000, 200_000), (300_000, 200_000));
    partition(&guest, "vda3", "252:3", (3, 600_000, 200_000), (600_000, 200_000));
    partition(&guest, "vda4", "252:4", (4, 900_000, 200_000), (900_000, 200_000));
    partition(
        &guest,
        "vda5",
        "252:5",
        (5, 1_000_000, 200_000),
        (1_000_000, 200_000),
    );
    let commands = FakeCommands::content();
    let disks = Disks {
        roots: &guest.roots,
        commands: &commands,
        kinds: Kinds::Real,
    };
    assert_eq!(
        disks.devices().unwrap().len(),
        1,
        "partitions are listed only on request"
    );
    let devices = disks.devices_and_partitions().unwrap();
    let of = |name: &str| devices.iter().find(|device| device.id.name == name).unwrap();
    assert!(of("vda").carries_system && of("vda1").carries_system);
    assert!(!of("vda2").carries_system && !of("vda3").carries_system);
    assert_eq!(of("vda2").uses, [Use::Mounted("/mnt".to_owned())]);
    let blank = of("vda3");
    assert!(blank.uses.is_empty() && blank.fault.is_none() && !blank.read_only);
    assert_eq!(
        (blank.id.size, blank.id.diskseq, blank.id.serial.as_deref()),
        (200_000 * 512, Some(5), Some("root"))
    );
    let place = blank.id.partition.as_ref().unwrap();
    assert_eq!(
        (
            place.disk.as_str(),
            place.index,
            place.start,
            place.uuid.as_deref(),
            place.label.as_deref()
        ),
        ("vda", 3, 600_000 * 512, Some("aa-3"), Some("vda3"))
    );
    for name in ["vda4", "vda5"] {
        assert!(of(name).fault.as_ref().unwrap().contains("overlaps"), "{name}");
    }
    // The whole disk is in use.
    let disk = guest.roots.sys("block/vda");
    let mapping = guest.device("virtual/dm-0", "253:0", &[]);
    Guest::stack(&mapping, &disk);
    let devices = disks.devices_and_partitions().unwrap();
    let blank = devices.iter().find(|device| device.id.name == "vda3").unwrap();
    assert_eq!(blank.uses, [Use::Holder("dm-0".to_owned())]);
}
