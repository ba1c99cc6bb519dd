//! A blank partition that the settings name, on a disk with other partitions.

use std::{
    fs::{self, File, OpenOptions},
    io::{Read as _, Seek as _, SeekFrom, Write as _},
};

use anyhow::Result;
use virtfleet_tests::{
    disks::{LoopDisk, Order, Outcome, Stage, needs},
    process::Launch,
    skip,
};
use virtfleet_wire::settings::{DiskFilesystem, DiskMatch, DiskSettings};

use super::TIER;

const MIB: u64 = 1 << 20;
const SOON: std::time::Duration = std::time::Duration::from_secs(30);
/// An EFI partition, one with data, and the blank one of 128 MiB, which begins at 97 MiB.
const TABLE: &str = "label: gpt\nstart=1MiB,size=32MiB,type=U,name=esp\nsize=64MiB,name=data\nsize=128MiB";
const BLANK_START: u64 = 97 * MIB;
const END: u64 = BLANK_START + 128 * MIB;

fn stage(test: &str) -> Result<Option<Stage>> {
    let needed = needs(&["mkfs.ext4", "mkfs.btrfs", "sfdisk", "partx", "strace"]);
    let needed = skip::need(TIER, test, needed)?;
    needed.map(|()| Stage::new()).transpose()
}

/// The names of a blank partition. Tests that run at the same time see each other's disks.
struct Names {
    uuid: String,
    label: String,
}

impl Names {
    fn new() -> Self {
        let number = fastrand::u64(..) >> 16;
        Self {
            uuid: format!("436278e6-ec18-6147-b5fb-{number:012x}"),
            label: format!("blank {number:012x}"),
        }
    }

    fn by_uuid(&self) -> DiskMatch {
        DiskMatch {
            part_uuid: Some(self.uuid.to_ascii_uppercase()),
            ..DiskMatch::default()
        }
    }

    /// By its PARTUUID, on the disk of that name.
    fn on(&self, disk: &str) -> DiskMatch {
        DiskMatch {
            serial: Some(format!("serial-{disk}")),
            ..self.by_uuid()
        }
    }

    fn by_label(&self) -> DiskMatch {
        DiskMatch {
            part_label: Some(self.label.clone()),
            ..DiskMatch::default()
        }
    }
}

fn disk(stage: &Stage, name: &str, names: &Names) -> Result<LoopDisk> {
    let table = format!("{TABLE},name=\"{}\",uuid={}\n", names.label, names.uuid);
    let disk = LoopDisk::partitioned(stage.folder(), name, 512 * MIB, &table)?;
    Launch::new("mkfs.ext4").args(["-q", &disk.part(2)]).text(SOON)?;
    stage.serial(&disk, &format!("serial-{name}"))?;
    Ok(disk)
}

fn named(matching: DiskMatch) -> DiskSettings {
    DiskSettings {
        matching,
        mount_point: Some("/srv/part".to_owned()),
        grow: true,
        ..DiskSettings::named("part")
    }
}

/// All bytes of the disk's file but those of the blank partition.
fn neighbours(disk: &LoopDisk) -> Result<Vec<u8>> {
    Launch::new("sync").arg(&disk.file).text(SOON)?;
    let mut file = File::open(&disk.file)?;
    let mut bytes = vec![0; usize::try_from(BLANK_START)?];
    file.read_exact(&mut bytes)?;
    file.seek(SeekFrom::Start(END))?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn refused(stage: &Stage, disks: &[DiskSettings], name: &str, kind: &str) -> Result<Outcome> {
    let outcome = stage.pass(disks)?;
    assert_eq!(outcome.refusals(name), [kind], "{}", outcome.state);
    Ok(outcome)
}

#[test]
fn tier2_a_named_partition_is_formatted_and_its_neighbours_stay() {
    let Some(mut stage) = stage("tier2_a_named_partition_is_formatted_and_its_neighbours_stay").unwrap()
    else {
        return;
    };
    let names = Names::new();
    let disk = disk(&stage, "one", &names).unwrap();
    stage
        .sh(&format!("mkdir /srv/data && mount {} /srv/data", disk.part(2)))
        .unwrap();
    stage
        .sh("echo mine > /srv/data/file && umount /srv/data")
        .unwrap();
    let before = neighbours(&disk).unwrap();
    let part = [named(names.on("one"))];
    // The whole disk is refused as ever, also beside its partition.
    let whole = DiskSettings {
        matching: DiskMatch {
            serial: Some("serial-one".to_owned()),
            ..DiskMatch::default()
        },
        mount_point: Some("/srv/whole".to_owned()),
        ..DiskSettings::named("whole")
    };
    refused(&stage, std::slice::from_ref(&whole), "whole", "foreign-data").unwrap();
    let both = [part[0].clone(), whole];
    for name in ["part", "whole"] {
        refused(&stage, &both, name, "claimed-twice").unwrap();
    }
    let label = DiskSettings {
        mount_point: Some("/srv/label".to_owned()),
        matching: DiskMatch {
            serial: Some("serial-one".to_owned()),
            ..names.by_label()
        },
        ..DiskSettings::named("label")
    };
    refused(&stage, &[part[0].clone(), label], "part", "claimed-twice").unwrap();
    let none = DiskMatch {
        serial: Some("serial-one".to_owned()),
        part_label: Some("other".to_owned()),
        ..DiskMatch::default()
    };
    assert_eq!(stage.pass(&[named(none)]).unwrap().standing("part"), "missing");
    assert!(neighbours(&disk).unwrap() == before, "nothing was written yet");

    let made = stage.pass(&part).unwrap();
    assert_eq!(made.standing("part"), "ready", "{}", made.state);
    let shown = &made.state["disks"][0];
    assert_eq!(shown["key"], format!("PARTUUID {}", names.uuid));
    assert_eq!(shown["device"], disk.part(3).trim_start_matches("/dev/"));
    stage
        .sh("echo kept > /srv/part/file && sync -f /srv/part")
        .unwrap();
    assert_eq!(stage.audit("part").unwrap(), ["about-to format", "done format"]);
    let again = stage.pass(&part).unwrap();
    assert!(!again.changed, "{:?}", again.points);
    stage.boot().unwrap();
    // After a boot, and by its label: the data is the same.
    stage
        .pass_until(
            &[named(DiskMatch {
                serial: Some("serial-one".to_owned()),
                ..names.by_label()
            })],
            "part",
            "ready",
        )
        .unwrap();
    assert_eq!(stage.sh("cat /srv/part/file").unwrap(), "kept\n");
    assert_eq!(stage.audit("part").unwrap().len(), 2);
    assert!(
        neighbours(&disk).unwrap() == before,
        "the neighbours are as they were"
    );
}

#[test]
fn tier2_a_partition_that_grows_has_its_filesystem_grown() {
    let Some(stage) = stage("tier2_a_partition_that_grows_has_its_filesystem_grown").unwrap() else {
        return;
    };
    let names = Names::new();
    let disk = disk(&stage, "one", &names).unwrap();
    let part = [DiskSettings {
        filesystem: DiskFilesystem::Btrfs,
        ..named(names.on("one"))
    }];
    stage.pass_until(&part, "part", "ready").unwrap();
    let before = neighbours(&disk).unwrap();
    let resize = format!(
        "echo ',256MiB' | sfdisk --quiet --no-reread --no-tell-kernel --force -N 3 {}",
        disk.node
    );
    stage.sh(&resize).unwrap();
    disk.read_table().unwrap();
    let grown = stage.pass(&part).unwrap();
    assert_eq!(grown.standing("part"), "ready", "{}", grown.state);
    let bytes = grown.state["disks"][0]["filesystemBytes"].as_u64().unwrap();
    assert_eq!(bytes, 256 * MIB);
    // Besides the table and its checksums in the first and the last MiB, nothing has changed.
    let after = neighbours(&disk).unwrap();
    let (first, last) = (
        usize::try_from(MIB).unwrap(),
        before.len() - usize::try_from(129 * MIB).unwrap(),
    );
    assert!(
        before[first..usize::try_from(BLANK_START).unwrap()]
            == after[first..usize::try_from(BLANK_START).unwrap()]
    );
    assert!(last > first);
}

#[test]
fn tier2_copies_stale_tables_and_other_types_are_refused() {
    let Some(stage) = stage("tier2_copies_stale_tables_and_other_types_are_refused").unwrap() else {
        return;
    };
    let names = Names::new();
    let one = disk(&stage, "one", &names).unwrap();
    let copy = stage.folder().join("copy.img");
    fs::copy(&one.file, &copy).unwrap();
    let two = LoopDisk::with_table(copy).unwrap();
    stage.serial(&two, "serial-two").unwrap();
    let before = [neighbours(&one).unwrap(), neighbours(&two).unwrap()];
    for matching in [names.by_uuid(), names.by_label()] {
        refused(&stage, &[named(matching)], "part", "ambiguous").unwrap();
    }
    let settings = [named(names.on("two"))];

    // The table on the disk and the kernel's differ.
    let resize = |bytes: &str| {
        let script = format!(
            "echo ',{bytes}' | sfdisk --quiet --no-reread --no-tell-kernel --force -N 3 {}",
            two.node
        );
        stage.sh(&script).unwrap();
    };
    resize("127MiB");
    let outcome = refused(&stage, &settings, "part", "unreadable").unwrap();
    assert!(
        outcome.state.to_string().contains("partx --update"),
        "{}",
        outcome.state
    );
    resize("128MiB");

    // Another type, and one that fits only swap.
    let kind = |name: &str| {
        let script = format!(
            "sfdisk --quiet --no-reread --no-tell-kernel --force --part-type {} 3 {name}",
            two.node
        );
        stage.sh(&script).unwrap();
    };
    for name in ["uefi", "lvm", "swap"] {
        kind(name);
        refused(&stage, &settings, "part", "not-eligible").unwrap();
    }
    kind("linux");

    // A loop device on the whole disk, at the partition's place.
    let node = stage
        .sh(&format!(
            "losetup --find --show --offset {BLANK_START} --sizelimit {} {}",
            128 * MIB,
            two.node
        ))
        .unwrap();
    refused(&stage, &settings, "part", "in-use").unwrap();
    stage.sh(&format!("losetup --detach {}", node.trim())).unwrap();

    // A process that has the whole disk open to write.
    let holder = stage.hold(&format!("3<>{}", two.node)).unwrap();
    let open = refused(&stage, &settings, "part", "in-use").unwrap();
    assert!(open.state.to_string().contains("sleep ("), "{}", open.state);
    stage.let_go(&[&holder]).unwrap();

    // One byte of unknown data, written through the whole disk.
    let mut file = OpenOptions::new().write(true).open(&two.node).unwrap();
    file.seek(SeekFrom::Start(BLANK_START + 5 * MIB)).unwrap();
    file.write_all(b"x").unwrap();
    drop(file);
    refused(&stage, &settings, "part", "unknown-data").unwrap();
    assert!(stage.audit("part").unwrap().is_empty());
    assert!(
        before[0] == neighbours(&one).unwrap(),
        "the first disk is as it was"
    );
    let middle = usize::try_from(MIB).unwrap()..usize::try_from(BLANK_START).unwrap();
    assert!(
        before[1][middle.clone()] == neighbours(&two).unwrap()[middle],
        "the neighbours are as they were"
    );

    stage
        .pass_until(&[named(names.on("one"))], "part", "ready")
        .unwrap();
    assert!(before[0] == neighbours(&one).unwrap());
}

/// An order for one declared disk.
fn order(settings: &DiskSettings, order: Order) -> Order {
    Order {
        disks: vec![settings.clone()],
        ..order
    }
}

#[test]
fn tier2_a_killed_mkfs_on_a_partition_is_finished_and_its_neighbours_stay() {
    let test = "tier2_a_killed_mkfs_on_a_partition_is_finished_and_its_neighbours_stay";
    let Some(stage) = stage(test).unwrap() else { return };
    for (kind, longest) in [(DiskFilesystem::Ext4, 15_000), (DiskFilesystem::Btrfs, 60_000)] {
        let names = Names::new();
        let disk = disk(&stage, kind.word(), &names).unwrap();
        let before = neighbours(&disk).unwrap();
        let settings = DiskSettings {
            filesystem: kind,
            mount_point: Some(format!("/srv/{}", kind.word())),
            ..named(names.on(kind.word()))
        };
        // Killed at random within its writing.
        let script = format!(
            "(while ! p=$(pidof mkfs.{}); do :; done; sleep 0.{:06}; kill -KILL $p) \
             </dev/null >/dev/null 2>&1 & echo $! > /run/killer",
            kind.word(),
            fastrand::u64(..longest)
        );
        let killed = stage
            .order(&order(
                &settings,
                Order {
                    script_at: Some(("part audited".to_owned(), script)),
                    ..Order::default()
                },
            ))
            .unwrap();
        println!("{}: {}", kind.word(), killed.standing("part"));
        // If it was too late for this mkfs, it must not meet the next one.
        stage
            .sh("kill -KILL $(cat /run/killer) 2>/dev/null || true")
            .unwrap();
        assert!(
            neighbours(&disk).unwrap() == before,
            "{}: the tool was killed",
            kind.word()
        );
        let settings = [settings];
        stage.pass_until(&settings, "part", "ready").unwrap();
        assert!(
            neighbours(&disk).unwrap() == before,
            "{}: it was cleared and made",
            kind.word()
        );
        let again = stage.pass(&settings).unwrap();
        assert!(!again.changed, "{:?}", again.points);
        stage.sh(&format!("umount /srv/{}", kind.word())).unwrap();
        stage
            .sh("rm -f /var/lib/virtfleet/journal/part.json /var/lib/virtfleet/journal/audit.jsonl")
            .unwrap();
    }
}

#[test]
fn tier2_bytes_written_between_intent_and_mkfs_of_a_partition_stay() {
    let Some(stage) = stage("tier2_bytes_written_between_intent_and_mkfs_of_a_partition_stay").unwrap()
    else {
        return;
    };
    let names = Names::new();
    let disk = disk(&stage, "one", &names).unwrap();
    let before = neighbours(&disk).unwrap();
    let settings = named(names.on("one"));
    let killed = stage
        .order(&order(
            &settings,
            Order {
                script_at: Some(("part audited".to_owned(), "kill -KILL $PPID; sleep 5".to_owned())),
                orphans: true,
                kill_after_us: Some(60_000_000),
                ..Order::default()
            },
        ))
        .unwrap();
    assert!(killed.killed, "{}", killed.text);
    // Through the node of the whole disk.
    let bytes = [0x5a; 3000];
    let at = BLANK_START + 9 * MIB + 11;
    let mut file = OpenOptions::new().write(true).open(&disk.node).unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(&bytes).unwrap();
    drop(file);
    for _ in 0..2 {
        refused(&stage, std::slice::from_ref(&settings), "part", "unfinished").unwrap();
        Launch::new("sync").arg(&disk.file).text(SOON).unwrap();
        let mut now = [0; 3000];
        let mut file = File::open(&disk.file).unwrap();
        file.seek(SeekFrom::Start(at)).unwrap();
        file.read_exact(&mut now).unwrap();
        assert!(now == bytes, "what was written is lost");
    }

    // An approval needs the declared name where several declared disks have the serial.
    let plan = stage
        .order(&order(
            &settings,
            Order {
                plan: true,
                ..Order::default()
            },
        ))
        .unwrap();
    let evidence = &plan.plan["disks"][0]["refusals"][0]["evidence"];
    let evidence = evidence.as_str().unwrap().to_owned();
    let other = DiskSettings {
        mount_point: Some("/srv/other".to_owned()),
        matching: DiskMatch {
            part_label: Some("other".to_owned()),
            serial: Some("serial-one".to_owned()),
            ..DiskMatch::default()
        },
        ..DiskSettings::named("other")
    };
    let approve = |who: &str| {
        let order = Order {
            disks: vec![settings.clone(), other.clone()],
            approve: Some((who.to_owned(), evidence.clone())),
            ..Order::default()
        };
        stage.order(&order).unwrap()
    };
    let several = approve("serial-one");
    let node = disk.part(3);
    for said in [
        "virtfleet-agent disks approve part --evidence",
        &format!("part ({node}, PARTUUID {})", names.uuid),
    ] {
        assert!(
            several.code != 0 && several.text.contains(said),
            "{}",
            several.text
        );
    }
    let approved = approve("part");
    assert_eq!(approved.code, 0, "{}", approved.text);
    assert!(
        approved.text.starts_with("disk part: format it once ("),
        "{}",
        approved.text
    );
    let settings = [settings];
    let made = stage.pass(&settings).unwrap();
    assert_eq!(made.standing("part"), "ready", "{}", made.state["disks"]);
    assert!(neighbours(&disk).unwrap() == before);
}

#[test]
fn tier2_a_mkfs_of_a_partition_that_outlives_the_agent_keeps_the_disk_locked() {
    let test = "tier2_a_mkfs_of_a_partition_that_outlives_the_agent_keeps_the_disk_locked";
    let Some(stage) = stage(test).unwrap() else { return };
    let names = Names::new();
    let disk = disk(&stage, "one", &names).unwrap();
    let before = neighbours(&disk).unwrap();
    let settings = DiskSettings {
        filesystem: DiskFilesystem::Btrfs,
        ..named(names.on("one"))
    };
    let killed = stage
        .order(&order(&settings, Order::freezing("part", "mkfs.btrfs")))
        .unwrap();
    assert!(killed.killed, "{}", killed.text);
    let held = format!("flock -n {} true && echo free || echo locked", disk.node);
    assert_eq!(stage.sh(&held).unwrap(), "locked\n");
    let settings = [settings];
    let outcome = stage.pass(&settings).unwrap();
    assert_eq!(outcome.standing("part"), "ready", "{}", outcome.state["disks"]);
    assert_eq!(stage.sh("pidof mkfs.btrfs || echo gone").unwrap(), "gone\n");
    stage.sh("btrfs scrub start -B /srv/part >/dev/null").unwrap();
    assert!(neighbours(&disk).unwrap() == before);
}
