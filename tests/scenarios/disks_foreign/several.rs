//! One btrfs on two disks: its devices have one UUID by design, so none is a copy of the other.

use anyhow::{Context as _, Result, ensure};
use virtfleet_tests::{
    disks::{LoopDisk, Stage, needs},
    skip,
};
use virtfleet_wire::settings::{DiskFilesystem, DiskMatch, DiskSettings};

const MIB: u64 = 1 << 20;

fn declared(name: &str) -> DiskSettings {
    DiskSettings {
        matching: DiskMatch {
            serial: Some(format!("serial-{name}")),
            ..DiskMatch::default()
        },
        filesystem: DiskFilesystem::Btrfs,
        mount_point: Some(format!("/srv/{name}")),
        ..DiskSettings::named(name)
    }
}

/// Not mounted: both are refused. Mounted by either of its devices: the declared mount point keeps
/// it.
fn check(stage: &Stage, disks: &[LoopDisk; 2], declared: &[DiskSettings]) -> Result<()> {
    let options = format!("-o device={},device={}", disks[0].node, disks[1].node);
    let outcome = stage.pass(declared)?;
    for disk in declared {
        ensure!(
            outcome.refusals(&disk.name) == ["several-devices"],
            "{}",
            outcome.state
        );
    }
    ensure!(
        !outcome.state.to_string().contains("btrfstune"),
        "{}",
        outcome.state
    );
    for disk in disks {
        let mount = format!(
            "mkdir -p /srv/one; mount -t btrfs {options} {} /srv/one",
            disk.node
        );
        stage.sh(&mount)?;
        let outcome = stage.pass(declared).and_then(|_| stage.pass(declared))?;
        let (one, refused) = (outcome.standing("one"), outcome.refusals("one"));
        ensure!(one == "ready" && refused.is_empty(), "{}", outcome.state);
        if declared.len() > 1 {
            ensure!(
                outcome.refusals("two") == ["several-devices"],
                "{}",
                outcome.state
            );
        }
        ensure!(
            !outcome.state.to_string().contains("btrfstune"),
            "{}",
            outcome.state
        );
        stage.sh("cat /srv/one/file && umount /srv/one")?;
    }
    let intact = format!("btrfs check --readonly {} 2>&1", disks[0].node);
    stage.sh(&intact).map(drop)
}

#[test]
fn tier2_a_btrfs_on_two_disks_is_kept_mounted_or_refused() {
    let test = "tier2_a_btrfs_on_two_disks_is_kept_mounted_or_refused";
    let Some(()) = skip::need(super::TIER, test, needs(&["mkfs.btrfs", "btrfs"])).unwrap() else {
        return;
    };
    let stage = Stage::new().unwrap();
    let disks = ["one", "two"].map(|name| {
        let disk = LoopDisk::new(stage.folder(), name, 256 * MIB).unwrap();
        stage.serial(&disk, &format!("serial-{name}")).unwrap();
        disk
    });
    let [one, two] = [&disks[0].node, &disks[1].node];
    stage
        .sh(&format!(
            "mkfs.btrfs -q -f -d raid1 -m raid1 {one} {two} && mkdir -p /srv/one && \
             mount -t btrfs -o device={one},device={two} {one} /srv/one && echo kept > /srv/one/file && umount /srv/one"
        ))
        .unwrap();
    let all = ["one", "two"].map(declared);
    for declared in [&all[..1], &all[..]] {
        check(&stage, &disks, declared)
            .with_context(|| format!("{} declared", declared.len()))
            .unwrap();
    }
    // To erase one device damages the other, so that is never advised.
    let ext4 = DiskSettings {
        filesystem: DiskFilesystem::Ext4,
        ..declared("one")
    };
    let outcome = stage.pass(&[ext4]).unwrap();
    let refused = outcome.refusals("one") == ["several-devices"];
    assert!(
        refused && !outcome.state.to_string().contains("wipefs"),
        "{}",
        outcome.state
    );
    // Degraded: only the superblock shows that there is another device.
    stage
        .sh(&format!(
            "btrfs device scan --forget {two} && mount -t btrfs -o degraded {one} /srv/one && \
             test $(ls /sys/fs/btrfs/$(findmnt -no UUID /srv/one)/devices | wc -l) = 1"
        ))
        .unwrap();
    let outcome = stage.pass(&all[..1]).and_then(|_| stage.pass(&all[..1])).unwrap();
    stage.sh("umount /srv/one").unwrap();
    assert_eq!(outcome.standing("one"), "ready", "{}", outcome.state);
    assert!(
        outcome.state.to_string().contains("one filesystem on 2 devices"),
        "{}",
        outcome.state
    );
    // The kernel remembers them otherwise.
    stage
        .sh(&format!("btrfs device scan --forget {one} {two} || true"))
        .unwrap();
}
