//! What changes around a disk later: its mount options, who has mounted it, its place on the bus
//! and its size.

use std::fs;

use anyhow::Result;
use virtfleet_tests::{
    disks::{LoopDisk, Stage, grows, needs},
    skip,
};
use virtfleet_wire::settings::{DiskFilesystem, DiskMatch, DiskSettings, SeedFrom};

const TIER: u8 = 2;
const MIB: u64 = 1 << 20;

fn declared(name: &str, matching: DiskMatch) -> DiskSettings {
    DiskSettings {
        matching,
        filesystem: DiskFilesystem::Ext4,
        mount_point: Some(format!("/srv/{name}")),
        ..DiskSettings::named(name)
    }
}

fn by_serial(name: &str) -> DiskMatch {
    DiskMatch {
        serial: Some(format!("serial-{name}")),
        ..DiskMatch::default()
    }
}

fn disk(stage: &Stage, name: &str) -> Result<LoopDisk> {
    let disk = LoopDisk::new(stage.folder(), name, 80 * MIB)?;
    stage.serial(&disk, &format!("serial-{name}"))?;
    Ok(disk)
}

fn stage(test: &str) -> Result<Option<Stage>> {
    skip::need(TIER, test, needs(&["mkfs.ext4", "mkfs.xfs"]))?
        .map(|()| Stage::new())
        .transpose()
}

#[test]
fn tier2_changed_options_are_in_effect_after_a_pass_or_noted() {
    let Some(stage) = stage("tier2_changed_options_are_in_effect_after_a_pass_or_noted").unwrap() else {
        return;
    };
    let mut all = [declared("data", by_serial("data"))];
    let _disk = disk(&stage, "data").unwrap();
    stage.pass(&all).unwrap();
    let options = || {
        stage
            .sh("grep ' /srv/data ' /proc/mounts | cut -d ' ' -f 4")
            .unwrap()
    };
    for (asked, there, gone) in [
        (
            &["nodev", "noatime"][..],
            &["rw", "nodev", "noatime"][..],
            &["relatime"][..],
        ),
        (
            &["nodev", "discard"],
            &["rw", "nodev", "relatime", "discard"],
            &["noatime"],
        ),
        (&["nosuid"], &["rw", "nosuid", "relatime"], &["nodev", "discard"]),
        (&[], &["rw", "relatime"], &["nosuid"]),
    ] {
        all[0].options = asked.iter().map(|option| (*option).to_owned()).collect();
        let plan = stage.plan(&all).unwrap();
        assert!(plan.plan.to_string().contains("\"remount\""), "{}", plan.plan);
        stage.pass_until(&all, "data", "ready").unwrap();
        let now = options();
        let now: Vec<&str> = now.trim().split(',').collect();
        assert!(
            there.iter().all(|option| now.contains(option)),
            "{asked:?}: {now:?}"
        );
        assert!(
            !gone.iter().any(|option| now.contains(option)),
            "{asked:?}: {now:?}"
        );
        let again = stage.pass(&all).unwrap();
        assert!(!again.changed, "{:?}", again.points);
        let fstab = fs::read_to_string(stage.root().join("etc/fstab")).unwrap();
        assert!(asked.iter().all(|option| fstab.contains(option)), "{fstab}");
    }
    // Each run reports what a remount cannot change.
    all[0].options = vec!["data=journal".to_owned()];
    for _ in 0..2 {
        let outcome = stage.pass(&all).unwrap();
        assert_eq!(outcome.standing("data"), "ready", "{}", outcome.state);
        assert!(
            outcome.state["disks"][0]["notes"]
                .to_string()
                .contains("data=journal"),
            "{}",
            outcome.state
        );
    }
}

#[test]
fn tier2_a_disk_that_somebody_else_has_mounted_is_never_made_anew() {
    let Some(stage) = stage("tier2_a_disk_that_somebody_else_has_mounted_is_never_made_anew").unwrap() else {
        return;
    };
    let all = [declared("data", by_serial("data"))];
    let disk = disk(&stage, "data").unwrap();
    stage
        .sh(&format!(
            "mkfs.ext4 -q {0} && mkdir -p /srv/data && mount {0} /srv/data && echo theirs > /srv/data/file",
            disk.node
        ))
        .unwrap();
    let first = stage.pass_until(&all, "data", "ready").unwrap();
    let entry = fs::read_to_string(stage.root().join("var/lib/virtfleet/journal/data.json")).unwrap();
    assert!(
        entry.contains("\"used\"") && entry.contains("\"found\""),
        "{entry} {}",
        first.state
    );
    assert!(!stage.pass(&all).unwrap().changed);
    stage
        .sh(&format!(
            "umount /srv/data && blkdiscard -z -f {0} 2>/dev/null || dd if=/dev/zero of={0} bs=1M count=80 conv=fsync 2>/dev/null",
            disk.node
        ))
        .unwrap();
    let blank = stage.pass(&all).unwrap();
    assert_eq!(blank.refusals("data"), ["blank-again"], "{}", blank.state);
}

/// A unit is in `/etc` a moment before the journal has its disk as used: the next boot may mount
/// it, and somebody may write to it.
#[test]
fn tier2_nothing_is_copied_over_what_somebody_has_written() {
    let Some(stage) = stage("tier2_nothing_is_copied_over_what_somebody_has_written").unwrap() else {
        return;
    };
    let mut all = [declared("data", by_serial("data"))];
    let disk = disk(&stage, "data").unwrap();
    stage.pass(&all).unwrap();
    stage
        .sh(
            "echo theirs > /srv/data/file && umount /srv/data && echo below > /srv/data/file && \
             sed -i 's/\"used\"/\"formatted\"/' /var/lib/virtfleet/journal/data.json",
        )
        .unwrap();
    all[0].seed_from = SeedFrom::Existing;
    let refused = stage.pass(&all).unwrap();
    assert_eq!(refused.standing("data"), "failed", "{}", refused.state);
    assert!(
        refused
            .error("data")
            .contains("files that the agent did not copy there"),
        "{}",
        refused.state
    );
    stage
        .sh(&format!(
            "mkdir -p /srv/look && mount {} /srv/look && grep -q theirs /srv/look/file && umount /srv/look",
            disk.node
        ))
        .unwrap();
}

#[test]
fn tier2_a_disk_without_identity_is_found_by_its_uuid_wherever_it_is() {
    let Some(stage) = stage("tier2_a_disk_without_identity_is_found_by_its_uuid_wherever_it_is").unwrap()
    else {
        return;
    };
    // No other test has disks of this size.
    let size = 336 * MIB + (fastrand::u64(1..2000) * 4096);
    let at = |order| DiskMatch {
        size: Some(size.to_string()),
        order: Some(order),
        allow_positional: true,
        ..DiskMatch::default()
    };
    let kind = DiskFilesystem::Xfs;
    let all = [("one", 1), ("two", 2)].map(|(name, order)| DiskSettings {
        grow: true,
        filesystem: kind,
        ..declared(name, at(order))
    });
    let gone = LoopDisk::new(stage.folder(), "gone", MIB).unwrap();
    let first = LoopDisk::new(stage.folder(), "first", size).unwrap();
    let outcome = stage.pass(&all).unwrap();
    assert_eq!(
        (outcome.standing("one").as_str(), outcome.standing("two").as_str()),
        ("ready", "missing"),
        "{}",
        outcome.state
    );
    stage.sh("echo one > /srv/one/file").unwrap();
    let second = LoopDisk::new(stage.folder(), "second", size).unwrap();
    drop(gone);
    let third = LoopDisk::new(stage.folder(), "third", size).unwrap();
    let outcome = stage.pass_until(&all, "two", "ready").unwrap();
    // The kernel gives a loop device the lowest free number, so the third one is the first in
    // order, unless another test has taken that number.
    let device = outcome.state["disks"][1]["device"].as_str().unwrap();
    let (two, blank) = if second.node.ends_with(&format!("/{device}")) {
        (&second, &third)
    } else {
        (&third, &second)
    };
    stage
        .sh("echo two > /srv/two/file && umount /srv/one /srv/two")
        .unwrap();
    // Whatever was second is first now, and the other has grown.
    let mut moved = [all[0].clone(), all[1].clone()];
    moved[0].matching.order = Some(2);
    moved[1].matching.order = Some(1);
    assert!(grows(kind.word()).is_ok());
    first.grow(size * 2).unwrap();
    stage.pass_until(&moved, "one", "ready").unwrap();
    let outcome = stage.pass_until(&moved, "two", "ready").unwrap();
    assert_eq!(stage.sh("cat /srv/one/file /srv/two/file").unwrap(), "one\ntwo\n");
    let one = &outcome.state["disks"][0];
    assert!(
        one["filesystemBytes"].as_u64().unwrap() > size * 19 / 10,
        "it has grown: {}",
        outcome.state
    );
    assert!(one["key"].as_str().unwrap().starts_with("UUID "), "{one}");
    // A copy of it refuses both, and the blank one beside them is not taken for it.
    stage
        .sh(&format!(
            "umount /srv/one /srv/two && dd if={} of={} bs=1M count=64 conv=fsync 2>/dev/null",
            two.node, blank.node
        ))
        .unwrap();
    let copied = stage.pass(&all).unwrap();
    assert_eq!(copied.refusals("two"), ["duplicate-uuid"], "{}", copied.state);
    stage.sh("! grep ' /srv/two ' /proc/mounts").unwrap();
}

/// Sets udev's data of a disk: its name in `/dev/disk/by-path`, and its serial if it has one.
fn udev(stage: &Stage, disk: &LoopDisk, path: &str, serial: Option<&str>) -> Result<()> {
    let file = format!("run/udev/data/b{}", disk.number()?);
    let serial = serial.map_or_else(String::new, |serial| format!("E:ID_SERIAL_SHORT={serial}\n"));
    fs::write(
        stage.root().join(file),
        format!("S:disk/by-path/{path}\n{serial}"),
    )?;
    Ok(())
}

/// The VM's spec gives disks serials later, and then the settings match by these.
#[test]
fn tier2_a_disk_that_gets_a_serial_later_keeps_its_data() {
    let Some(mut stage) = stage("tier2_a_disk_that_gets_a_serial_later_keeps_its_data").unwrap() else {
        return;
    };
    // No other test has disks of this size.
    let size = 464 * MIB + (fastrand::u64(1..2000) * 4096);
    let by_path = DiskMatch {
        path: Some("pci-later-*".to_owned()),
        ..DiskMatch::default()
    };
    let by_order = DiskMatch {
        size: Some(size.to_string()),
        order: Some(1),
        allow_positional: true,
        ..DiskMatch::default()
    };
    let names = ["path", "order"];
    let before = [declared("path", by_path), declared("order", by_order)];
    let disks = [
        LoopDisk::new(stage.folder(), "path", 80 * MIB).unwrap(),
        LoopDisk::new(stage.folder(), "order", size).unwrap(),
    ];
    let paths = ["pci-later-1", "pci-other-2"];
    for (disk, path) in disks.iter().zip(paths) {
        udev(&stage, disk, path, None).unwrap();
    }
    for name in names {
        stage.pass_until(&before, name, "ready").unwrap();
        stage.sh(&format!("echo kept > /srv/{name}/file")).unwrap();
    }
    let after = names.map(|name| declared(name, by_serial(name)));
    // A restart with serials and the old settings, then one with settings that match by serial.
    for settings in [&before, &after] {
        stage.boot().unwrap();
        for ((disk, path), name) in disks.iter().zip(paths).zip(names) {
            udev(&stage, disk, path, Some(&format!("serial-{name}"))).unwrap();
        }
        for name in names {
            let outcome = stage.pass_until(settings, name, "ready").unwrap();
            assert!(outcome.refusals(name).is_empty(), "{}", outcome.state);
            let kept = stage.sh(&format!("cat /srv/{name}/file")).unwrap();
            assert_eq!(kept, "kept\n", "{}", outcome.state);
            assert_eq!(stage.audit(name).unwrap(), ["about-to format", "done format"]);
        }
        let again = stage.pass(settings).unwrap();
        assert!(!again.changed, "{:?}", again.points);
    }
}
