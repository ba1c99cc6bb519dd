//! Files whose size depends on the number of disks.
#![expect(clippy::format_push_string, reason = "written once, and easier to read so")]

use std::{os::unix::fs::symlink, path::Path};

use anyhow::{Context as _, Result};

use super::files::{attributes, put};

pub(super) fn write(dir: &Path, count: usize) -> Result<()> {
    let mut diskstats = String::new();
    let mut mounts =
        "29 1 252:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,discard,errors=remount-ro\n".to_owned();
    let mut table = "/dev/vda1 / ext4 rw,relatime,discard,errors=remount-ro 0 0\n".to_owned();
    for disk in 0..count {
        let name = name(disk);
        // The kernel gives virtio disks one major number and sixteen minor numbers each, and then
        // another major number.
        let device = format!("252:{}", disk * 16);
        let by = disk + 1;
        diskstats += &format!(
            " 252 {:7} {name} {} 1203 {} 20123 {} 81234 {} 412345 0 312345 440000 1024 0 8123456 210 45123 7532\n",
            disk * 16,
            51_234 * by,
            4_123_456 * by,
            912_345 * by,
            51_234_567 * by
        );
        let folder = format!("sys/devices/pci0000:00/virtio{disk}/block/{name}");
        attributes(
            dir,
            &folder,
            &[
                ("dev", &device),
                ("ro", "0"),
                ("size", "41943040"),
                ("removable", "0"),
            ],
        )?;
        attributes(
            dir,
            &format!("{folder}/queue"),
            &[
                ("rotational", "1"),
                ("logical_block_size", "512"),
                ("physical_block_size", "4096"),
                ("nr_requests", "256"),
                ("scheduler", "[none] mq-deadline"),
                ("write_cache", "write back"),
                ("hw_sector_size", "512"),
                ("max_sectors_kb", "1280"),
            ],
        )?;
        for (place, up) in [
            (format!("sys/block/{name}"), ".."),
            (format!("sys/class/block/{name}"), "../.."),
            (format!("sys/dev/block/{device}"), "../.."),
        ] {
            let target = format!("{up}/{}", folder.trim_start_matches("sys/"));
            link(dir, &place, &target)?;
        }
        put(
            dir,
            format!("udev/b{device}"),
            format!(
                "S:disk/by-path/pci-0000:0{disk}:00.0\nI:1234567\nE:ID_PATH=pci-0000:{disk:02x}:00.0\nE:ID_SERIAL=serial-{disk}\n\
                 E:ID_FS_TYPE=ext4\nE:ID_FS_USAGE=filesystem\nE:ID_FS_UUID=8a1c6a2e-6c0b-4f0e-9f5e-4f4d1f1f{disk:04x}\nE:ID_FS_VERSION=1.0\nG:systemd\n"
            ),
        )?;
        if disk > 0 {
            let id = 100 + disk;
            mounts += &format!(
                "{id} 29 {device} / /data/{disk} rw,relatime shared:{id} - ext4 /dev/{name} rw,discard\n"
            );
            table += &format!("/dev/{name} /data/{disk} ext4 rw,relatime,discard 0 0\n");
            let inside = dir.join(format!("rootfs/data/{disk}"));
            std::fs::create_dir_all(&inside).with_context(|| inside.display().to_string())?;
        }
    }
    put(dir, "proc/diskstats", diskstats)?;
    for place in ["proc/1", "proc/self"] {
        put(dir, format!("{place}/mountinfo"), &mounts)?;
        put(dir, format!("{place}/mounts"), &table)?;
    }
    put(dir, "proc/mounts", &table)
}

fn link(dir: &Path, place: &str, target: &str) -> Result<()> {
    let place = dir.join(place);
    if let Some(parent) = place.parent() {
        std::fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
    }
    symlink(target, &place).with_context(|| format!("link {}", place.display()))
}

/// `vda` to `vdz`, then `vdaa` and so on, as the kernel names them.
fn name(disk: usize) -> String {
    let letter = |at: usize| char::from(b'a' + u8::try_from(at % 26).unwrap_or(0));
    match disk / 26 {
        0 => format!("vd{}", letter(disk)),
        more => format!("vd{}{}", letter(more - 1), letter(disk)),
    }
}
