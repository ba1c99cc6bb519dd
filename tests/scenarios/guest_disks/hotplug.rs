//! Disks that come, grow and go while the guest runs, and two passes at once.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use virtfleet_tests::{
    guest::{Disk, GIB, Guest, MIB, play},
    real::{AGENT, BROUGHT},
    skip,
};

use crate::guest_disks::kit::{self, AGENT_TIMEOUT};

const TWO: &str = "
- { name: block, match: { serial: block }, filesystem: ext4, mountPoint: /data/block, grow: true }
- { name: scsi, match: { volume: scsi }, filesystem: xfs, mountPoint: /data/scsi, grow: true }
- { name: tree, match: { serial: tree }, filesystem: btrfs, mountPoint: /data/tree, grow: true }
";

/// Bytes of the filesystem that is mounted there, as `statfs` says it.
fn size(machine: &Guest, path: &str) -> Result<u64> {
    machine
        .run(&format!("findmnt -bno SIZE --mountpoint {path}"))?
        .trim()
        .parse()
        .context("a size")
}

/// Starts a unit that writes to a filesystem and syncs it, again and again, and waits until it
/// writes. The bytes are those of the agent: random ones cost an emulated CPU more than all else.
fn begin_load(machine: &Guest, name: &str, place: &str) -> Result<()> {
    machine.run(&format!(
        "systemd-run --quiet --unit=load-{name} sh -c 'while :; do \
         dd if={BROUGHT} of={place}/load bs=256k count=16 conv=fsync status=none || exit 1; done'"
    ))?;
    machine.run_until(&format!("test -s {place}/load"), "the first bytes of the load")
}

#[test]
fn tier4_disks_are_mounted_when_they_come_and_grow_under_load_when_they_grow() {
    play(
        "tier4_disks_are_mounted_when_they_come_and_grow_under_load_when_they_grow",
        |scene| {
            let machine = kit::guest(scene, &kit::vm("grows"), TWO)?;
            machine.run_within(
                "systemctl start virtfleet-provision virtfleet-reconcile.path",
                AGENT_TIMEOUT,
            )?;
            let begun = Instant::now();
            machine.plug_disk(&Disk::blank("block", 2 * GIB).serial("block"))?;
            machine.plug_disk(&Disk::blank("scsi", 2 * GIB).scsi())?;
            machine.plug_disk(&Disk::blank("tree", 2 * GIB).serial("tree"))?;
            let places = ["/data/block", "/data/scsi", "/data/tree"];
            for place in places {
                kit::until_mounted(&machine, place)?;
            }
            println!(
                "three disks were mounted {:?} after the first was plugged in",
                begun.elapsed()
            );

            for (name, place) in [("block", places[0]), ("scsi", places[1]), ("tree", places[2])] {
                let before = size(&machine, place)?;
                begin_load(&machine, name, place)?;
                let begun = Instant::now();
                machine.resize(name, 5 * GIB)?;
                let grown = format!(
                    "test $(findmnt -bno SIZE --mountpoint {place}) -gt {}",
                    before + 2 * GIB
                );
                machine.run_until_within(&grown, &format!("that {name} has grown"), AGENT_TIMEOUT / 4)?;
                println!("{name} had grown {:?} after the disk", begun.elapsed());
                // Every write has succeeded.
                machine.run(&format!(
                    "systemctl is-active --quiet load-{name} && systemctl stop load-{name}"
                ))?;
            }
            kit::settled(&machine)?;
            machine.run("umount /data/block && e2fsck -fn /dev/disk/by-id/virtio-block")?;
            Ok(())
        },
    );
}

#[test]
fn tier4_a_disk_that_goes_during_a_pass_ends_it_and_harms_nothing() {
    if skip::deferred(
        4,
        "tier4_a_disk_that_goes_during_a_pass_ends_it_and_harms_nothing",
        kit::SOAK,
    ) {
        return;
    }
    play(
        "tier4_a_disk_that_goes_during_a_pass_ends_it_and_harms_nothing",
        |scene| {
            let disks = "
- { name: going, match: { serial: going }, filesystem: ext4, mountPoint: /data/going }
- { name: staying, match: { serial: staying }, filesystem: ext4, mountPoint: /data/staying }
";
            let vm = kit::vm("goes")
                .disk(Disk::blank("going", GIB).serial("going"))
                .disk(Disk::blank("staying", GIB).serial("staying"));
            let machine = kit::guest(scene, &vm, disks)?;
            machine.slow("going", 100, 4)?;
            machine.run(&format!("systemd-run --quiet --unit=pass {AGENT} apply disks"))?;
            machine.run_until(
                "grep -q '\"going\"' /var/lib/virtfleet/journal/audit.jsonl 2>/dev/null",
                "the pass at the disk",
            )?;
            machine.unplug_disk("going")?;
            machine.run_until_within(
                "test \"$(systemctl show -P SubState pass)\" != running",
                "the end of the pass",
                AGENT_TIMEOUT / 4,
            )?;
            kit::not_mounted(&machine, "/data/going")?;
            kit::apply(&machine)?;
            ensure!(kit::mounted(&machine, "/data/staying")?.0 == "ext4");
            // The disk is not required: its absence causes no refusal.
            ensure!(
                kit::refusals(&machine, "going")?.is_empty(),
                "{:#?}",
                kit::refusals(&machine, "going")?
            );
            // A blank disk in its place, on which no data can be lost: the format was started and
            // never completed.
            machine.plug_disk(&Disk::blank("going", GIB).serial("going"))?;
            kit::applied(&machine)?;
            ensure!(kit::mounted(&machine, "/data/going")?.0 == "ext4");
            // Had it been in use before, it would be refused.
            machine.run("umount /data/going")?;
            machine.unplug_disk("going")?;
            machine.plug_disk(&Disk::blank("going", GIB).serial("going"))?;
            kit::apply(&machine)?;
            kit::not_mounted(&machine, "/data/going")?;
            kit::refused(&machine, "going", "blank-again").map(drop)
        },
    );
}

#[test]
fn tier4_passes_at_once_and_a_busy_udev_format_once() {
    if skip::deferred(4, "tier4_passes_at_once_and_a_busy_udev_format_once", kit::SOAK) {
        return;
    }
    play("tier4_passes_at_once_and_a_busy_udev_format_once", |scene| {
        let vm = kit::vm("race")
            .disk(Disk::blank("block", 2 * GIB).serial("block"))
            .disk(Disk::blank("scsi", 2 * GIB).scsi())
            .disk(Disk::blank("tree", 2 * GIB).serial("tree"));
        let machine = kit::guest(scene, &vm, TWO)?;
        machine.run(
            "systemd-run --quiet --unit=storm sh -c 'while :; do udevadm trigger --subsystem-match=block; udevadm settle; done'",
        )?;
        let output = machine.sh_within(
            &format!(
                "for n in 1 2 3; do {AGENT} apply disks >/run/pass$n 2>&1 & done; wait; tail -n 20 /run/pass*"
            ),
            AGENT_TIMEOUT,
        )?;
        machine.run("systemctl stop storm")?;
        println!("{}", output.stdout);
        kit::applied(&machine)?;
        for (name, kind) in [("block", "ext4"), ("scsi", "xfs"), ("tree", "btrfs")] {
            ensure!(
                kit::mounted(&machine, &format!("/data/{name}"))?.0 == kind,
                "{name}"
            );
            ensure!(
                kit::begun(&machine, name, "format")? == 1,
                "{name} was formatted more than once"
            );
        }
        kit::settled(&machine)
    });
}

/// Disks by size and order and by path, of the first boot and without.
const UNNAMED: &str = "
- { name: data, match: { size: 512Mi, order: 1, allowPositional: true }, filesystem: ext4, mountPoint: /data/data }
- { name: more, match: { size: 384Mi, allowPositional: true }, filesystem: ext4, mountPoint: /data/more }
- { name: slot, match: { path: \"*-scsi-*\" }, filesystem: ext4, mountPoint: /data/slot }
";

/// How the guest finds a disk that was plugged in, and that nothing is on its first and last MiB.
fn stays_blank(machine: &Guest, node: &str) -> Result<()> {
    machine
        .run(&format!(
            "test -b {node} && for from in 0 $(($(blockdev --getsize64 {node}) / 1048576 - 1)); do \
             dd if={node} bs=1M skip=$from count=1 status=none | cmp -n 1048576 - /dev/zero || exit 1; done"
        ))
        .map(drop)
}

#[test]
fn tier4_volumes_that_csi_drivers_plug_in_stay_blank_beside_disks_without_a_name() {
    let test = "tier4_volumes_that_csi_drivers_plug_in_stay_blank_beside_disks_without_a_name";
    if skip::deferred(4, test, kit::SOAK) {
        return;
    }
    play(test, |scene| {
        let vm = kit::vm("csi").disk(Disk::blank("data", 512 * MIB).unknown());
        let machine = kit::guest(scene, &vm, UNNAMED)?;
        machine.run_within(
            "systemctl start virtfleet-provision virtfleet-reconcile.path",
            AGENT_TIMEOUT,
        )?;
        kit::until_mounted(&machine, "/data/data")?;
        machine.run("echo kept >/data/data/mark; mkdir -p /var/lib/kubelet/pods")?;

        // Drivers that set no serial: it is what `more` and `slot` look for.
        machine.plug_disk(&Disk::blank("harvester", 256 * MIB).scsi().unknown())?;
        machine.plug_disk(&Disk::blank("virtio", 384 * MIB).unknown())?;
        kit::apply(&machine)?;
        for name in ["more", "slot"] {
            kit::refused(&machine, name, "came-later")?;
        }
        ensure!(kit::findings(&machine)?.contains(&"disk-came-later".to_owned()));
        stays_blank(&machine, "/dev/sda")?;
        // Others, with serials as virtio and SCSI show them.
        let pvc = "pvc-0b3f6f3e-6d7b-4c55-9d0c-2f6a1b7c8d9e";
        machine.plug_disk(&Disk::blank("virtctl", 384 * MIB).serial(&pvc[..20]))?;
        machine.plug_disk(&Disk::blank("uid", 512 * MIB).scsi().serial(&pvc[4..]))?;
        let nodes = "/dev/sda /dev/sdb /dev/vdc /dev/vdd".split(' ');
        for reboots in [false, true] {
            if reboots {
                machine.power_off()?;
                machine.boot_to_agent()?;
                kit::until_mounted(&machine, "/data/data")?;
            }
            kit::apply(&machine)?;
            ensure!(machine.run("cat /data/data/mark")? == "kept");
            for node in nodes.clone() {
                stays_blank(&machine, node)?;
            }
            for path in ["/data/more", "/data/slot"] {
                kit::not_mounted(&machine, path)?;
            }
            ensure!(kit::begun(&machine, "data", "format")? == 1);
        }

        // An admin knows that one of them is the declared disk.
        machine.unplug_disk("uid")?;
        let refusal = kit::refused(&machine, "slot", "came-later")?;
        let evidence = refusal["evidence"].as_str().context("evidence")?;
        machine.run_within(
            &format!("{AGENT} disks approve slot --evidence {evidence}"),
            AGENT_TIMEOUT,
        )?;
        kit::apply(&machine)?;
        ensure!(kit::mounted(&machine, "/data/slot")?.0 == "ext4");
        stays_blank(&machine, "/dev/vdc")
    });
}
