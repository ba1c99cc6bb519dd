use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use virtfleet_agent_core::disks::{DevNumber, Use};

use super::*;
use crate::host::{FakeCommands, Roots};

/// A guest of files.
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

    /// A device in `sys/devices`, with its links.
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
fn names_on_the_bus_come_from_udev_and_from_the_links() {
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
    // What SCSI says itself counts more.
    fs::create_dir_all(disk.join("device")).unwrap();
    fs::write(disk.join("device/vpd_pg80"), b"\0\x80\0\x04own ").unwrap();
    assert_eq!(guest.devices()[0].id.serial.as_deref(), Some("own"));
}

#[test]
fn mounts_that_cannot_be_read_are_an_error() {
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
