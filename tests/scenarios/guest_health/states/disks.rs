//! The declared disks.

use virtfleet_tests::{
    guest::{Disk, Io},
    process::Launch,
    stage::STAGE_TIMEOUT,
};

use super::GuestState;

/// A second declared disk; the one that is plugged in has another filesystem.
const MORE: &str = "- { name: more, proofSeconds: 1, match: { serial: more }, filesystem: xfs, mountPoint: /more, required: true }\n";

pub(super) const STATES: [GuestState; 5] = [
    GuestState {
        script: "disk-missing",
        create: |world| {
            world.declare(MORE)?;
            world.apply("disks")
        },
        shows: |seen| seen.has("disk-missing"),
        undo: |world| {
            world.declare("")?;
            world.apply("disks")
        },
    },
    GuestState {
        script: "disk-refused",
        create: |world| {
            let image = world.machine.folder().join("foreign.img");
            let format = Launch::new("mke2fs")
                .args(["-q", "-t", "ext4"])
                .arg(&image)
                .arg("96M");
            format.text(STAGE_TIMEOUT)?;
            let disk = Disk::raw("more", &image).serial("more");
            world.machine.plug_disk(&disk)?;
            world.declare(MORE)?;
            world.apply("disks")
        },
        shows: |seen| seen.has("disk-foreign-data"),
        undo: |world| {
            world.declare("")?;
            world.machine.unplug_disk("more")?;
            world.apply("disks")
        },
    },
    GuestState {
        script: "disk-full",
        create: |world| {
            let size = "$(($(stat -f -c '%a * %S' /data) * 97 / 100))";
            world.machine.run(&format!("fallocate -l {size} /data/full"))?;
            world.apply("disks")
        },
        shows: |seen| seen.has("disk-space"),
        undo: |world| {
            world.machine.run("rm /data/full")?;
            world.apply("disks")
        },
    },
    GuestState {
        script: "disk-hangs",
        create: |world| {
            // A freeze empties the journal, which keeps the root directory's block in memory.
            world.machine.run("fsfreeze -f /data && fsfreeze -u /data")?;
            world.machine.hang("data")?;
            // The first operation may still be answered.
            let read = "dd if=/dev/disk/by-id/virtio-data of=/dev/null bs=4k count=4 iflag=direct";
            world.machine.run(&format!(
                "systemd-run --quiet {read}; echo 3 >/proc/sys/vm/drop_caches"
            ))?;
            world.apply("disks")
        },
        shows: |seen| seen.has("disk-not-answering"),
        undo: |world| {
            world.machine.slow("data", 0, 0)?;
            world.apply("disks")
        },
    },
    GuestState {
        script: "disk-read-only",
        create: |world| {
            world.machine.fail("data", &[Io::Write, Io::Flush])?;
            // The journal is aborted; the next change notices it.
            world.machine.sh("touch /data/written; sync; touch /data/more")?;
            world.apply("disks")
        },
        shows: |seen| seen.has("disk-read-only") && seen.has("disk-filesystem-errors"),
        undo: |world| {
            world.machine.heal("data")?;
            // e2fsck exits with 1 after a repair.
            let repair = "umount /data; e2fsck -fy /dev/disk/by-id/virtio-data; [ $? -le 1 ]";
            world.machine.run(repair)?;
            world.apply("disks")
        },
    },
];
