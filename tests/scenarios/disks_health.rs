//! How declared disks are doing, on real loop devices: errors that the kernel counts, filesystems
//! that it shuts down, and disks that fill up.

use std::fs;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use virtfleet_tests::{
    bins,
    disks::{LoopDisk, Outcome, Stage, needs},
    skip,
};
use virtfleet_wire::settings::{DiskFilesystem, DiskMatch, DiskSettings};

const TIER: u8 = 2;
const MIB: u64 = 1 << 20;
const DISKS_FILE: &str = "run/virtfleet/state/disks.json";
const AGENT: &str = "/tmp/virtfleet-agent";

fn stage(test: &str) -> Result<Option<Stage>> {
    let needed = needs(&["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "xfs_io", "mkswap"]);
    if skip::need(TIER, test, needed)?.is_none() {
        return Ok(None);
    }
    let stage = Stage::new()?;
    fs::copy(bins::agent()?, stage.root().join(AGENT.trim_start_matches('/')))?;
    Ok(Some(stage))
}

fn disk(stage: &Stage, name: &str, filesystem: DiskFilesystem, mib: u64) -> Result<(LoopDisk, DiskSettings)> {
    let disk = LoopDisk::new(stage.folder(), name, mib * MIB)?;
    stage.serial(&disk, name)?;
    let settings = DiskSettings {
        matching: DiskMatch {
            serial: Some(name.to_owned()),
            ..DiskMatch::default()
        },
        filesystem,
        mount_point: (filesystem != DiskFilesystem::Swap).then(|| format!("/srv/{name}")),
        ..DiskSettings::named(name)
    };
    Ok((disk, settings))
}

fn health(outcome: &Outcome, name: &str) -> Value {
    let disks = outcome.state["disks"].as_array().cloned().unwrap_or_default();
    let disk = disks.into_iter().find(|disk| disk["name"] == name);
    disk.map_or(Value::Null, |disk| disk["health"].clone())
}

/// A disk's findings: id, severity and reason.
fn findings(outcome: &Outcome, name: &str) -> Vec<[String; 3]> {
    let all = outcome.state["findings"].as_array().cloned().unwrap_or_default();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    all.iter()
        .filter(|finding| finding["subject"]["name"] == name)
        .map(|finding| [&finding["id"], &finding["severity"], &finding["reason"]].map(word))
        .collect()
}

fn is(id: &str, severity: &str, reason: &str) -> [String; 3] {
    [id, severity, reason].map(str::to_owned)
}

/// The agent's own scrape there, the families of declared disks.
fn scrape(stage: &Stage) -> Result<Vec<String>> {
    let page = stage.sh(&format!("{AGENT} metrics"))?;
    let lines = page.lines().filter(|line| line.starts_with("virtfleet_disk_"));
    Ok(lines.map(str::to_owned).collect())
}

fn has(lines: &[String], line: &str) {
    assert!(
        lines.iter().any(|other| other == line),
        "{line} is not in {lines:#?}"
    );
}

#[test]
fn tier2_kernel_error_counts_and_shutdowns_are_reported() {
    let Some(stage) = stage("tier2_kernel_error_counts_and_shutdowns_are_reported").unwrap() else {
        return;
    };
    let (ext4, mut declared) = disk(&stage, "ext4", DiskFilesystem::Ext4, 80).unwrap();
    declared.options = vec!["errors=remount-ro".to_owned()];
    let (_xfs, xfs) = disk(&stage, "xfs", DiskFilesystem::Xfs, 320).unwrap();
    let (_btrfs, btrfs) = disk(&stage, "btrfs", DiskFilesystem::Btrfs, 160).unwrap();
    let all = [declared, xfs, btrfs];
    stage.pass(&all).unwrap();
    let well = stage.pass(&all).unwrap();
    for name in ["ext4", "xfs", "btrfs"] {
        assert_eq!(well.standing(name), "ready", "{}", well.state);
        assert_eq!(findings(&well, name), Vec::<[String; 3]>::new());
        let look = &health(&well, name)["look"];
        assert_eq!(
            (&look["answer"]["is"], &look["readOnly"]),
            (&json!("yes"), &json!(false)),
            "{look}"
        );
        assert!(look["space"]["available"].as_u64() > Some(30 * MIB), "{look}");
        // btrfs counts no inodes.
        assert_eq!(look["inodes"].is_null(), name == "btrfs", "{look}");
    }
    let page = scrape(&stage).unwrap();
    for line in [
        "virtfleet_disk_answers{name=\"xfs\"} 1",
        "virtfleet_disk_read_only{name=\"ext4\"} 0",
        "virtfleet_disk_filesystem_errors_total{name=\"ext4\",kind=\"error\"} 0",
        "virtfleet_disk_filesystem_errors_total{name=\"btrfs\",kind=\"write\"} 0",
    ] {
        has(&page, line);
    }
    // An error of the filesystem, as the kernel makes it for tests; and a shutdown.
    let name = ext4.node.trim_start_matches("/dev/").to_owned();
    stage
        .sh(&format!(
            "echo made-by-a-test > /sys/fs/ext4/{name}/trigger_fs_error && xfs_io -x -c shutdown /srv/xfs"
        ))
        .unwrap();
    let unwell = stage.pass(&all).unwrap();
    let said = findings(&unwell, "ext4");
    assert_eq!(
        said,
        [
            is("disk-read-only", "critical", "ReadOnly"),
            is("disk-filesystem-errors", "warning", "FilesystemErrors"),
        ],
        "{}",
        unwell.state
    );
    let look = &health(&unwell, "ext4")["look"];
    // Once its journal has aborted, the kernel counts one more when it writes something back.
    let kernel = fs::read_to_string(format!("/sys/fs/ext4/{name}/errors_count")).unwrap();
    let counted = look["errors"]["error"].as_u64().unwrap();
    assert!(
        (1..=kernel.trim().parse().unwrap()).contains(&counted),
        "{look}, {kernel}"
    );
    assert_eq!(look["readOnly"], true, "{look}");
    assert!(look["lastErrorS"].as_u64() > Some(1_700_000_000), "{look}");
    assert_eq!(
        findings(&unwell, "xfs"),
        [is("disk-not-answering", "critical", "Fails")],
        "{}",
        unwell.state
    );
    assert_eq!(findings(&unwell, "btrfs"), Vec::<[String; 3]>::new());
    let page = scrape(&stage).unwrap();
    for line in [
        "virtfleet_disk_answers{name=\"xfs\"} 0",
        "virtfleet_disk_read_only{name=\"ext4\"} 1",
        &format!("virtfleet_disk_filesystem_errors_total{{name=\"ext4\",kind=\"error\"}} {counted}"),
    ] {
        has(&page, line);
    }
}

#[test]
fn tier2_full_disks_and_disks_that_fill_up_are_reported() {
    let Some(stage) = stage("tier2_full_disks_and_disks_that_fill_up_are_reported").unwrap() else {
        return;
    };
    let (_space, space) = disk(&stage, "space", DiskFilesystem::Ext4, 80).unwrap();
    let (_inodes, mut inodes) = disk(&stage, "inodes", DiskFilesystem::Ext4, 80).unwrap();
    inodes.mkfs_options = vec!["-i".to_owned(), "1048576".to_owned()];
    let all = [space, inodes];
    stage.pass(&all).unwrap();
    stage
        .sh("set -e
             head -c 45M /dev/zero > /srv/space/one
             free=$(stat -f -c %d /srv/inodes)
             mkdir /srv/inodes/many; cd /srv/inodes/many; seq $((free - 2)) | xargs touch")
        .unwrap();
    let half = stage.pass(&all).unwrap();
    assert_eq!(
        findings(&half, "space"),
        Vec::<[String; 3]>::new(),
        "{}",
        half.state
    );
    assert_eq!(
        findings(&half, "inodes"),
        [is("disk-inodes", "critical", "InodesNearlyFull")],
        "{}",
        half.state
    );
    // As if it had been looked at before, each quarter of an hour: 5 MiB were added each time.
    let file = stage.root().join(DISKS_FILE);
    let mut written: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let points = &mut written["disks"][0]["health"]["points"];
    let last = points.as_array().unwrap().last().unwrap().clone();
    let (at, bytes) = (last["atNs"].as_u64().unwrap(), last["bytes"].as_u64().unwrap());
    let quarter = 15 * 60 * 1_000_000_000;
    if at < 4 * quarter {
        // The machine has just been started.
        return;
    }
    let earlier = |n: u64| json!({"atNs": at - n * quarter, "bytes": bytes - n * 5 * MIB});
    *points = json!([earlier(3), earlier(2), earlier(1)]);
    fs::write(&file, serde_json::to_vec(&written).unwrap()).unwrap();
    let filling = stage.pass(&all).unwrap();
    assert_eq!(
        findings(&filling, "space"),
        [is("disk-space", "critical", "SpaceFillsUp")],
        "{}",
        filling.state
    );
    let left = health(&filling, "space")["spaceFullInS"].as_f64().unwrap();
    assert!((60.0..4.0 * 3600.0).contains(&left), "{left}");
    let page = scrape(&stage).unwrap();
    let shown = page
        .iter()
        .find(|line| line.starts_with("virtfleet_disk_full_in_seconds{name=\"space\",resource=\"space\"} "));
    assert!(shown.is_some(), "{page:#?}");
    stage
        .sh("head -c 80M /dev/zero > /srv/space/two 2>/dev/null; true")
        .unwrap();
    let full = stage.pass(&all).unwrap();
    assert_eq!(
        findings(&full, "space")[0][..2],
        ["disk-space", "critical"].map(str::to_owned),
        "{}",
        full.state
    );
    // Another boot begins without points.
    let points = health(&full, "space")["points"].as_array().map(Vec::len);
    assert!(points >= Some(4), "{points:?}");
}

#[test]
fn tier2_a_swap_area_is_a_disk_in_its_place() {
    let test = "tier2_a_swap_area_is_a_disk_in_its_place";
    let Some(stage) = stage(test).unwrap() else {
        return;
    };
    let (swap, declared) = disk(&stage, "swap", DiskFilesystem::Swap, 80).unwrap();
    let probe = LoopDisk::new(stage.folder(), "probe", 64 * MIB).unwrap();
    let node = &probe.node;
    let works = stage
        .sh(&format!("mkswap {node} && swapon {node} && swapoff {node}"))
        .context("this kernel swaps to no loop device");
    if skip::need(TIER, test, works).unwrap().is_none() {
        return;
    }
    drop(probe);
    let all = [declared];
    let passed = stage.pass(&all).and_then(|_| stage.pass(&all));
    let page = scrape(&stage);
    // Swap is the machine's, and does not end with the stage.
    stage.sh(&format!("swapoff {}", swap.node)).unwrap();
    let passed = passed.unwrap();
    assert_eq!(passed.standing("swap"), "ready", "{}", passed.state);
    let look = &health(&passed, "swap")["look"];
    // A kernel that is short of memory swaps to it at once.
    let bytes = |key: &str| look["space"][key].as_u64().unwrap();
    let size = bytes("used") + bytes("available");
    assert!((79 * MIB + 1..=80 * MIB).contains(&size), "{look}");
    assert_eq!((&look["inodes"], &look["readOnly"]), (&Value::Null, &Value::Null));
    assert_eq!(findings(&passed, "swap"), Vec::<[String; 3]>::new());
    let page = page.unwrap();
    let used = "virtfleet_disk_used_bytes{name=\"swap\"} ";
    assert!(page.iter().any(|line| line.starts_with(used)), "{page:#?}");
}
