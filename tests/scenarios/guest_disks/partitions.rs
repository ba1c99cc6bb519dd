//! One blank partition, named by its PARTUUID or PARTLABEL, on a disk with others.

use std::{fs::File, os::unix::fs::FileExt as _, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use virtfleet_tests::{
    guest::{Disk, Guest, MIB, play},
    process::Launch,
    skip,
};

use crate::guest_disks::kit;

const TOOL: Duration = Duration::from_mins(1);
/// An EFI partition, one with data, and the blank one.
const TABLE: &str = "label: gpt\nstart=1MiB,size=48MiB,type=U,name=esp\nsize=80MiB,name=data\n\
                     size=128MiB,name=blank,uuid=436278e6-ec18-6147-b5fb-95b948393267\n";
const BY_LABEL: &str =
    "- { name: part, match: { partLabel: blank }, filesystem: ext4, mountPoint: /data/part, grow: true }\n";
const BY_UUID: &str = "- { name: part, match: { partUuid: 436278e6-ec18-6147-b5fb-95b948393267, serial: parts }, \
                       filesystem: ext4, mountPoint: /data/part, grow: true }\n";
/// MiB of the disk without the blank partition, from its begin and from behind it.
const NEIGHBOURS: &[(u64, u64)] = &[(0, 129), (257, 255)];
/// MiB of the two partitions alone: the table changes when the third grows.
const CONTENT: &[(u64, u64)] = &[(1, 128)];

/// What these MiB of the disk hold, read from its file on the host.
fn content(machine: &Guest, parts: &[(u64, u64)]) -> Result<Vec<u8>> {
    machine.run("sync")?;
    let path = machine.folder().join("parts.img");
    let file = File::open(&path).with_context(|| format!("open {}", path.display()))?;
    let mut held = Vec::new();
    for (skip, count) in parts {
        let begin = held.len();
        held.resize(begin + usize::try_from(count * MIB)?, 0);
        file.read_exact_at(&mut held[begin..], skip * MIB)
            .with_context(|| format!("read {}", path.display()))?;
    }
    Ok(held)
}

/// The third partition becomes larger, as growpart(1) does it: sfdisk(8) writes the table, and
/// partx(8) tells the kernel.
const GROW: &str = "disk=$(readlink -e /dev/disk/by-id/virtio-parts); \
     echo ',320MiB' | sfdisk -q --no-reread --no-tell-kernel --force -N 3 $disk && \
     partx --update --nr 3 $disk";

fn image(path: &Path) -> Result<()> {
    File::create(path)
        .and_then(|file| file.set_len(512 * MIB))
        .with_context(|| format!("create {}", path.display()))?;
    Launch::new("sfdisk")
        .arg("--quiet")
        .arg(path)
        .stdin(TABLE)
        .text(TOOL)
        .map(drop)
}

fn size(machine: &Guest) -> Result<u64> {
    let text = machine.run("findmnt -bno SIZE --mountpoint /data/part")?;
    text.trim().parse().context("a size")
}

#[test]
fn tier4_a_named_partition_is_formatted_and_grown_beside_its_neighbours() {
    let test = "tier4_a_named_partition_is_formatted_and_grown_beside_its_neighbours";
    if skip::deferred(4, test, kit::SOAK) {
        return;
    }
    play(test, |scene| {
        let file = scene.path().join("parts.img");
        image(&file)?;
        let vm = kit::vm("parts").disk(Disk::raw("parts", &file).serial("parts"));
        let machine = kit::guest(scene, &vm, BY_LABEL)?;
        // Its neighbour is mounted below /boot, so the disk as a whole carries the system.
        machine.run(
            "disk=$(readlink -e /dev/disk/by-id/virtio-parts); mkfs.vfat ${disk}1 >/dev/null && \
                 mke2fs -q -t ext4 ${disk}2 && mkdir -p /boot/neighbour && \
                 mount ${disk}2 /boot/neighbour && echo mine >/boot/neighbour/file && sync",
        )?;
        machine.run("mount -o remount,ro /boot/neighbour && udevadm settle")?;
        let (around, both) = (content(&machine, NEIGHBOURS)?, content(&machine, CONTENT)?);

        // A copy of the disk has the same names.
        machine.plug_disk(&Disk::raw("copy", &file).serial("copy"))?;
        machine.run("udevadm settle")?;
        kit::refused(&machine, "part", "ambiguous")?;
        kit::declare(&machine, BY_UUID)?;
        kit::applied(&machine)?;
        ensure!(kit::mounted(&machine, "/data/part")?.0 == "ext4");
        machine.run("echo kept >/data/part/file && sync")?;
        ensure!(kit::begun(&machine, "part", "format")? == 1);
        machine.unplug_disk("copy")?;
        kit::declare(&machine, BY_LABEL)?;
        kit::settled(&machine)?;
        ensure!(
            content(&machine, NEIGHBOURS)? == around,
            "a neighbour was written to"
        );

        // The partition grows while it is mounted, and so does its filesystem.
        let before = size(&machine)?;
        machine.run(GROW)?;
        kit::applied(&machine)?;
        let after = size(&machine)?;
        ensure!(after > before + 128 * MIB, "{before} bytes before, {after} after");
        kit::settled(&machine)?;
        ensure!(content(&machine, CONTENT)? == both, "a neighbour was written to");

        // The next boot mounts it, with or without the agent.
        machine.cut_power();
        machine.boot_to_agent()?;
        kit::until_mounted(&machine, "/data/part")?;
        ensure!(machine.run("cat /data/part/file")? == "kept");
        ensure!(kit::begun(&machine, "part", "format")? == 1);
        ensure!(content(&machine, CONTENT)? == both, "a neighbour was written to");
        Ok(())
    });
}
