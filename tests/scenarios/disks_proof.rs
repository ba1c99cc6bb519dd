//! What a proof by time sees, what it says that it could miss, and who uses a disk without a claim.

use std::{fs::OpenOptions, os::unix::fs::FileExt as _, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use virtfleet_tests::{
    disks::{LoopDisk, Order, Outcome, Stage, needs},
    loops::Loop,
    process::Launch,
    skip,
    wait::eventually,
};
use virtfleet_wire::settings::{DiskFilesystem, DiskMatch, DiskSettings, ProofKind};

const TIER: u8 = 2;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const SOON: Duration = Duration::from_mins(1);

fn stage(test: &str) -> Result<Option<Stage>> {
    skip::need(TIER, test, needs(&["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"]))?
        .map(|()| Stage::new())
        .transpose()
}

/// A disk of the stage, its settings, and a proof of one second.
fn disk(stage: &Stage, name: &str, bytes: u64) -> Result<(LoopDisk, DiskSettings)> {
    let disk = LoopDisk::new(stage.folder(), name, bytes)?;
    stage.serial(&disk, name)?;
    let settings = DiskSettings {
        matching: DiskMatch {
            serial: Some(name.to_owned()),
            ..DiskMatch::default()
        },
        filesystem: DiskFilesystem::Ext4,
        proof_seconds: Some(1),
        ..DiskSettings::named(name)
    };
    Ok((disk, settings))
}

fn plan(stage: &Stage, disk: &DiskSettings) -> Result<Outcome> {
    stage.plan(std::slice::from_ref(disk))
}

/// The plan refuses the disk so, as soon as the kernel has let go of a loop device that was on it.
fn refused(stage: &Stage, disk: &DiskSettings, kind: &str) -> Result<()> {
    eventually(SOON, &format!("disk {} refused as {kind}", disk.name), || {
        let outcome = plan(stage, disk)?;
        ensure!(outcome.refusals(&disk.name) == [kind], "{}", outcome.plan);
        Ok(())
    })
}

fn notes(outcome: &Outcome) -> String {
    outcome.plan["disks"][0]["notes"].to_string()
}

fn steps(outcome: &Outcome) -> usize {
    outcome.plan["disks"][0]["steps"].as_array().map_or(0, Vec::len)
}

fn write(node: &str, offset: u64, bytes: &[u8]) -> Result<()> {
    let file = OpenOptions::new().write(true).open(node)?;
    file.write_all_at(bytes, offset)?;
    Ok(file.sync_all()?)
}

fn sh(script: &str, node: &str) -> Result<()> {
    let ran = Launch::new("sh").args(["-c", script, "sh", node]).text(SOON);
    ran.map(drop).with_context(|| format!("{script} {node}"))
}

fn approve(stage: &Stage, disk: &DiskSettings, evidence: &str) -> Result<()> {
    let order = Order {
        disks: vec![disk.clone()],
        approve: Some((disk.name.clone(), evidence.to_owned())),
        ..Order::default()
    };
    let outcome = stage.order(&order)?;
    ensure!(outcome.code == 0, "{}", outcome.text);
    Ok(())
}

#[test]
fn tier2_a_btrfs_whose_first_gib_is_empty_is_seen_and_who_mounts_it_by_offset_too() {
    let Some(stage) =
        stage("tier2_a_btrfs_whose_first_gib_is_empty_is_seen_and_who_mounts_it_by_offset_too").unwrap()
    else {
        return;
    };
    let (disk, settings) = disk(&stage, "big", 1024 * GIB).unwrap();
    {
        let inner = Loop::attach_with(Path::new(&disk.node), &["--offset", &GIB.to_string()]).unwrap();
        let inner_node = inner.node().display().to_string();
        sh("mkfs.btrfs -q -f \"$1\"", &inner_node).unwrap();
        let used = plan(&stage, &settings).unwrap();
        assert_eq!(used.refusals("big"), ["in-use"], "{}", used.plan);
        let outcome = stage.pass(std::slice::from_ref(&settings)).unwrap();
        assert_eq!(outcome.standing("big"), "refused");
    }
    refused(&stage, &settings, "unknown-data").unwrap();
}

#[test]
fn tier2_filesystems_behind_a_usual_offset_are_seen_without_time() {
    let Some(stage) = stage("tier2_filesystems_behind_a_usual_offset_are_seen_without_time").unwrap() else {
        return;
    };
    for (number, (offset, script)) in [
        (MIB, "mkfs.ext4 -q -F \"$1\""),
        (16 * MIB, "mkfs.ext4 -q -F -b 4096 \"$1\""),
        (16 * MIB, "mkfs.xfs -q -f \"$1\""),
        (17 * MIB, "mkfs.btrfs -q -f \"$1\""),
        (129 * MIB, "mkfs.xfs -q -f \"$1\""),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("off{number}");
        let (disk, mut settings) = disk(&stage, &name, 5 * GIB).unwrap();
        settings.proof = ProofKind::Sampled;
        settings.proof_seconds = None;
        {
            let inner = Loop::attach_with(Path::new(&disk.node), &["--offset", &offset.to_string()]).unwrap();
            sh(script, &inner.node().display().to_string()).unwrap();
        }
        // The table, and the superblock in front.
        write(&disk.node, 0, &vec![0; usize::try_from(MIB).unwrap()]).unwrap();
        write(&disk.node, offset, &vec![0; 128 << 10]).unwrap();
        refused(&stage, &settings, "unknown-data")
            .with_context(|| format!("{script} at {offset}"))
            .unwrap();
    }
}

#[test]
fn tier2_a_proof_by_time_says_how_far_it_came_and_a_large_disk_needs_an_approval() {
    let Some(stage) =
        stage("tier2_a_proof_by_time_says_how_far_it_came_and_a_large_disk_needs_an_approval").unwrap()
    else {
        return;
    };
    let (_small, mut settings) = disk(&stage, "small", 300 * MIB).unwrap();
    // It ends when all is read.
    settings.proof_seconds = Some(120);
    let all = plan(&stage, &settings).unwrap();
    assert!(notes(&all).contains("fully proven"), "{}", all.plan);
    let (disk, mut settings) = disk(&stage, "large", 8 << 40).unwrap();
    let part = plan(&stage, &settings).unwrap();
    assert_eq!(part.refusals("large"), ["partly-proven"], "{}", part.plan);
    assert!(
        notes(&part).contains("the largest run that could have been missed is"),
        "{}",
        part.plan
    );
    settings.approve_above = Some("16Ti".to_owned());
    assert!(steps(&plan(&stage, &settings).unwrap()) > 0);
    settings.approve_above = None;
    settings.new = true;
    assert!(steps(&plan(&stage, &settings).unwrap()) > 0);
    settings.new = false;
    // An approval holds for the same state, and no longer.
    let again = plan(&stage, &settings).unwrap();
    let evidence = |outcome: &Outcome| {
        let refusal: &Value = &outcome.plan["disks"][0]["refusals"][0]["evidence"];
        refusal.as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(evidence(&part), evidence(&again));
    approve(&stage, &settings, &evidence(&again)).unwrap();
    assert!(steps(&plan(&stage, &settings).unwrap()) > 0);
    write(&disk.node, 5 << 40, &[0; 4096]).unwrap();
    let void = plan(&stage, &settings).unwrap();
    assert_eq!(void.refusals("large"), ["partly-proven"]);
    assert!(
        void.plan.to_string().contains("sectorsWritten was"),
        "{}",
        void.plan
    );
}

#[test]
fn tier2_a_write_anywhere_voids_an_approval() {
    let Some(stage) = stage("tier2_a_write_anywhere_voids_an_approval").unwrap() else {
        return;
    };
    let (disk, settings) = disk(&stage, "data", 100 * GIB).unwrap();
    write(&disk.node, 5 * MIB, b"something that somebody has written").unwrap();
    let found = plan(&stage, &settings).unwrap();
    assert_eq!(found.refusals("data"), ["unknown-data"], "{}", found.plan);
    let evidence = found.plan["disks"][0]["refusals"][0]["evidence"]
        .as_str()
        .unwrap()
        .to_owned();
    approve(&stage, &settings, &evidence).unwrap();
    // 45 MiB between the samples.
    write(
        &disk.node,
        30 * GIB + 10 * MIB,
        &vec![7; usize::try_from(45 * MIB).unwrap()],
    )
    .unwrap();
    let outcome = stage.pass(std::slice::from_ref(&settings)).unwrap();
    assert_eq!(outcome.refusals("data"), ["unknown-data"], "{}", outcome.state);
    assert!(
        outcome.state.to_string().contains("sectorsWritten was"),
        "{}",
        outcome.state
    );
    // Of what is there now it is good.
    let found = plan(&stage, &settings).unwrap();
    let evidence = found.plan["disks"][0]["refusals"][0]["evidence"]
        .as_str()
        .unwrap()
        .to_owned();
    approve(&stage, &settings, &evidence).unwrap();
    let outcome = stage.pass(std::slice::from_ref(&settings)).unwrap();
    assert_eq!(outcome.standing("data"), "ready", "{}", outcome.state);
}

#[test]
fn tier2_a_half_of_a_mirror_that_has_grown_is_neither_mounted_nor_grown_over() {
    let Some(stage) =
        stage("tier2_a_half_of_a_mirror_that_has_grown_is_neither_mounted_nor_grown_over").unwrap()
    else {
        return;
    };
    let md = [&[0xfc, 0x4e, 0x2b, 0xa9, 1, 0, 0, 0][..], &[7; 248]].concat();
    let (disk, mut settings) = disk(&stage, "half", 200 * MIB).unwrap();
    settings.mount_point = Some("/srv/half".to_owned());
    settings.grow = true;
    sh("mkfs.ext4 -q -F \"$1\" 102272k", &disk.node).unwrap();
    // A mirror of 100 MiB has its superblock 8 KiB before its end.
    write(&disk.node, 100 * MIB - (8 << 10), &md).unwrap();
    let outcome = plan(&stage, &settings).unwrap();
    assert_eq!(outcome.refusals("half"), ["foreign-data"], "{}", outcome.plan);
    assert!(
        outcome.plan.to_string().contains("linux_raid_member"),
        "{}",
        outcome.plan
    );
    // Without it, it is a filesystem like any other; and written there once mounted, it does not
    // grow.
    write(&disk.node, 100 * MIB - (8 << 10), &[0; 256]).unwrap();
    settings.grow = false;
    stage
        .pass_until(std::slice::from_ref(&settings), "half", "ready")
        .unwrap();
    let image = OpenOptions::new().write(true).open(&disk.file).unwrap();
    image.write_all_at(&md, 100 * MIB - (8 << 10)).unwrap();
    settings.grow = true;
    let outcome = stage.pass(std::slice::from_ref(&settings)).unwrap();
    assert_eq!(outcome.standing("half"), "failed", "{}", outcome.state);
    assert!(
        outcome.error("half").contains("linux_raid_member"),
        "{}",
        outcome.state
    );
}

#[test]
fn tier2_a_filesystem_larger_than_its_disk_is_refused_in_the_plan() {
    let Some(stage) = stage("tier2_a_filesystem_larger_than_its_disk_is_refused_in_the_plan").unwrap() else {
        return;
    };
    for (name, kind, script) in [
        ("cut-ext4", DiskFilesystem::Ext4, "mkfs.ext4 -q -F \"$1\" 900M"),
        (
            "cut-xfs",
            DiskFilesystem::Xfs,
            "mkfs.xfs -q -f -d size=900m \"$1\"",
        ),
    ] {
        let (disk, mut settings) = disk(&stage, name, 900 * MIB).unwrap();
        settings.filesystem = kind;
        settings.mount_point = Some(format!("/srv/{name}"));
        sh(script, &disk.node).unwrap();
        let image = OpenOptions::new().write(true).open(&disk.file).unwrap();
        image.set_len(500 * MIB).unwrap();
        sh("losetup -c \"$1\"", &disk.node).unwrap();
        let outcome = plan(&stage, &settings).unwrap();
        assert_eq!(outcome.refusals(name), ["not-eligible"], "{}", outcome.plan);
    }
}

#[test]
fn tier2_a_disk_that_a_process_has_open_is_not_formatted() {
    let Some(stage) = stage("tier2_a_disk_that_a_process_has_open_is_not_formatted").unwrap() else {
        return;
    };
    let (disk, settings) = disk(&stage, "open", 80 * MIB).unwrap();
    for (redirection, kind) in [("<>", "in-use"), ("<", "unreadable")] {
        let process = stage.hold(&format!("9{redirection}{}", disk.node)).unwrap();
        let outcome = stage.pass(std::slice::from_ref(&settings)).unwrap();
        assert_eq!(outcome.refusals("open"), [kind], "{}", outcome.state);
        assert!(outcome.state.to_string().contains("sleep"), "{}", outcome.state);
        stage.let_go(&[&process]).unwrap();
    }
    let outcome = stage
        .pass_until(std::slice::from_ref(&settings), "open", "ready")
        .unwrap();
    assert!(
        outcome.state.to_string().contains("fully proven"),
        "{}",
        outcome.state
    );
}

#[test]
fn tier2_another_run_of_the_agent_may_read_a_disk_that_is_formatted() {
    let test = "tier2_another_run_of_the_agent_may_read_a_disk_that_is_formatted";
    let Some(stage) = stage(test).unwrap() else {
        return;
    };
    let (disk, settings) = disk(&stage, "read", 80 * MIB).unwrap();
    // The stage's first process runs the program that the passes are run by.
    let script = format!("/proc/1/exe read {} >/dev/null 2>&1 & echo $!", disk.node);
    let reader = stage.sh(&script).unwrap();
    let opened = format!("ls -l /proc/{}/fd | grep -c '{}$'", reader.trim(), disk.node);
    eventually(SOON, "a reader of the disk", || stage.sh(&opened)).unwrap();
    let outcome = stage.pass(std::slice::from_ref(&settings)).unwrap();
    assert_eq!(outcome.standing("read"), "ready", "{}", outcome.state);
    stage.sh(&opened).unwrap();
}
