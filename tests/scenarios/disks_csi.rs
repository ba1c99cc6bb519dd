//! Volumes that CSI drivers plug into the VM. Their drivers format them; the agent never does,
//! unless the settings name them or an admin approves one.
//!
//! `VIRTFLEET_DISK_GENERATED` is the number of generated volumes, `VIRTFLEET_DISK_SEED` the first
//! seed.

use std::{env, fs, os::unix::fs::MetadataExt as _, thread};

use anyhow::{Context as _, Result, ensure};
use virtfleet_tests::{
    disks::{LoopDisk, Order, Outcome, Stage, needs},
    skip,
};
use virtfleet_wire::settings::{DiskFilesystem, DiskMatch, DiskSettings};

const TIER: u8 = 2;
const MIB: u64 = 1 << 20;
/// Generated volumes in `make test`.
const FEW_VOLUMES: u64 = 24;
/// What kubelet makes when it starts.
const KUBELET: &str = "mkdir -p /var/lib/kubelet/pods";
const KNOWN: &str = "var/lib/virtfleet/journal/KNOWN";

/// UID of a DataVolume, and the name of a PersistentVolume.
const UID: &str = "0b3f6f3e-6d7b-4c55-9d0c-2f6a1b7c8d9e";
const PVC: &str = "pvc-0b3f6f3e-6d7b-4c55-9d0c-2f6a1b7c8d9e";

/// How drivers attach a volume: the serial that the guest sees, and whether it is one that only
/// drivers assign.
const WAYS: [(&str, Option<&str>, bool); 8] = [
    ("kubevirt-csi, SCSI", Some(UID), true),
    ("kubevirt-csi, virtio", Some("0b3f6f3e-6d7b-4c55-9"), true),
    ("virtctl addvolume, SCSI", Some(PVC), true),
    ("virtctl addvolume, virtio", Some("pvc-0b3f6f3e-6d7b-4c"), true),
    ("Harvester", None, false),
    ("Longhorn in the guest, tgt", Some("beaf11"), false),
    (
        "democratic-csi in the guest, LIO",
        Some("6d7b4c559d0c42f6a1b7c8d9e0f1a2b3"),
        false,
    ),
    ("a claim that is named like a disk", Some("data"), false),
];

/// Bytes that no other test's disks have, less than 8 MiB more than `mib`.
fn unique(mib: u64) -> u64 {
    mib * MIB + fastrand::u64(1..2000) * 4096
}

/// `match` without a name: by size, by path, by size and order.
fn unnamed(size: u64, path: &str) -> [(&'static str, DiskMatch); 3] {
    let size = Some(size.to_string());
    let by_size = DiskMatch {
        size: size.clone(),
        allow_positional: true,
        ..DiskMatch::default()
    };
    let by_path = DiskMatch {
        path: Some(path.to_owned()),
        ..DiskMatch::default()
    };
    let by_order = DiskMatch {
        order: Some(1),
        ..by_size.clone()
    };
    [("size", by_size), ("path", by_path), ("order", by_order)]
}

fn declared(name: &str, matching: DiskMatch) -> DiskSettings {
    DiskSettings {
        matching,
        filesystem: DiskFilesystem::Ext4,
        mount_point: Some(format!("/srv/{name}")),
        ..DiskSettings::named(name)
    }
}

fn stage(test: &str) -> Result<Option<Stage>> {
    skip::need(TIER, test, needs(&["mkfs.ext4"]))?
        .map(|()| Stage::new())
        .transpose()
}

/// A blank disk with a name in `/dev/disk/by-path`, and a serial if it has one.
fn plug(stage: &Stage, name: &str, bytes: u64, path: &str, serial: Option<&str>) -> Result<LoopDisk> {
    let disk = LoopDisk::new(stage.folder(), name, bytes)?;
    let serial = serial.map_or_else(String::new, |serial| format!("E:ID_SERIAL_SHORT={serial}\n"));
    let data = format!("S:disk/by-path/{path}\n{serial}");
    fs::write(
        stage.root().join(format!("run/udev/data/b{}", disk.number()?)),
        data,
    )?;
    Ok(disk)
}

/// Its data in udev's database go first: another test may get the same loop device.
fn unplug(stage: &Stage, disk: LoopDisk) -> Result<()> {
    stage.no_serial(&disk)?;
    drop(disk);
    Ok(())
}

/// The sparse file behind a disk has no block: nothing was ever written.
fn is_untouched(disk: &LoopDisk) -> Result<bool> {
    Ok(fs::metadata(&disk.file)?.blocks() == 0)
}

/// The evidence of the only refusal of a disk.
fn evidence(outcome: &Outcome, name: &str) -> Result<String> {
    let disks = outcome.plan["disks"].as_array().context("disks")?;
    let disk = disks
        .iter()
        .find(|disk| disk["name"] == name)
        .context("the disk")?;
    let evidence = disk["refusals"][0]["evidence"].as_str().context("evidence")?;
    Ok(evidence.to_owned())
}

#[test]
fn tier2_no_volume_of_a_csi_driver_is_formatted_by_its_position() {
    let test = "tier2_no_volume_of_a_csi_driver_is_formatted_by_its_position";
    let Some(mut stage) = stage(test).unwrap() else {
        return;
    };
    let size = unique(110);
    let disks: Vec<DiskSettings> = unnamed(size, "pci-csi-*")
        .map(|(name, matching)| declared(name, matching))
        .into();
    // One at a time: the three entries would claim one disk.
    for disk in &disks {
        let only = std::slice::from_ref(disk);
        let first = stage.pass(only).unwrap();
        assert_eq!(first.standing(&disk.name), "missing", "{}", first.state);
    }
    stage.sh(KUBELET).unwrap();
    for (n, (way, serial, named)) in WAYS.into_iter().enumerate() {
        let volume = plug(&stage, &format!("v{n}"), size, "pci-csi-1", serial).unwrap();
        // While the VM runs, and in the first run of another boot.
        for reboots in [false, true] {
            if reboots {
                stage.boot().unwrap();
            }
            for disk in &disks {
                let only = std::slice::from_ref(disk);
                let outcome = stage.pass(only).unwrap();
                let name = &disk.name;
                let expected: &[&str] = if named { &[] } else { &["came-later"] };
                assert_eq!(
                    outcome.refusals(name),
                    expected,
                    "{way}, {name}: {}",
                    outcome.state
                );
                let findings = outcome.state["findings"].to_string();
                let finding = if named { "CsiVolumeSkipped" } else { "CameLater" };
                assert!(findings.contains(finding), "{way}, {name}: {findings}");
                assert_eq!(stage.audit(name).unwrap(), [""; 0], "{way}, {name}");
                assert!(is_untouched(&volume).unwrap(), "{way}, {name}");
            }
        }
        unplug(&stage, volume).unwrap();
    }
    // The settings may name it.
    let serial = "6d7b4c559d0c42f6a1b7c8d9e0f1a2b3";
    let volume = plug(&stage, "named", size, "pci-csi-1", Some(serial)).unwrap();
    let by_serial = DiskMatch {
        serial: Some(serial.to_owned()),
        ..DiskMatch::default()
    };
    let named = [declared("named", by_serial)];
    stage.pass_until(&named, "named", "ready").unwrap();
    assert!(!is_untouched(&volume).unwrap());
}

/// Disks of the VM's spec without a serial, as KKP attaches them, and what the platform plugs in
/// while it provisions the VM.
#[test]
fn tier2_disks_of_the_first_boot_stay_in_place_beside_volumes() {
    let test = "tier2_disks_of_the_first_boot_stay_in_place_beside_volumes";
    let Some(mut stage) = stage(test).unwrap() else {
        return;
    };
    let sizes = [120, 130, 140].map(unique);
    let paths = ["pci-spec-1", "pci-spec-2", "pci-spec-3"];
    let all: Vec<DiskSettings> = (0..3)
        .map(|n| {
            let [size, path, order] = unnamed(sizes[n], "pci-spec-2*");
            let (name, matching) = [size, path, order][n].clone();
            declared(name, matching)
        })
        .collect();
    let spec = |n: usize| plug(&stage, &format!("s{n}"), sizes[n], paths[n], None).unwrap();
    let mut disks = vec![spec(0), spec(1)];
    stage.pass_until(&all, "size", "ready").unwrap();
    disks.push(spec(2));
    for disk in &all {
        stage.pass_until(&all, &disk.name, "ready").unwrap();
        stage.sh(&format!("echo kept > /srv/{}/file", disk.name)).unwrap();
    }
    stage.sh(KUBELET).unwrap();
    let volumes: Vec<LoopDisk> = (0..3)
        .map(|n| {
            plug(
                &stage,
                &format!("v{n}"),
                sizes[n],
                &format!("{}-volume", paths[n]),
                None,
            )
            .unwrap()
        })
        .collect();
    for reboots in [false, true, true] {
        if reboots {
            stage.boot().unwrap();
        }
        for disk in &all {
            let outcome = stage.pass_until(&all, &disk.name, "ready").unwrap();
            assert!(outcome.refusals(&disk.name).is_empty(), "{}", outcome.state);
            let kept = stage.sh(&format!("cat /srv/{}/file", disk.name)).unwrap();
            assert_eq!(kept, "kept\n");
            assert_eq!(
                stage.audit(&disk.name).unwrap(),
                ["about-to format", "done format"]
            );
        }
        assert!(!stage.pass(&all).unwrap().changed);
    }
    for volume in &volumes {
        assert!(is_untouched(volume).unwrap(), "{}", volume.node);
    }
}

#[test]
fn tier2_a_disk_that_came_later_is_used_once_it_is_approved() {
    let test = "tier2_a_disk_that_came_later_is_used_once_it_is_approved";
    let Some(mut stage) = stage(test).unwrap() else {
        return;
    };
    let size = unique(150);
    let [(_, matching), ..] = unnamed(size, "");
    let all = [declared("data", matching)];
    stage.pass(&all).unwrap();
    stage.sh(KUBELET).unwrap();
    let first = plug(&stage, "first", size, "pci-late-1", None).unwrap();
    let refused = stage.plan(&all).unwrap();
    assert_eq!(refused.refusals("data"), ["came-later"], "{}", refused.plan);
    let approve = |evidence: &str| {
        let order = Order {
            disks: all.to_vec(),
            approve: Some(("data".to_owned(), evidence.to_owned())),
            ..Order::default()
        };
        stage.order(&order).unwrap().code
    };
    // Another disk at its place is not what was approved.
    let evidence_of_first = evidence(&refused, "data").unwrap();
    unplug(&stage, first).unwrap();
    let disk = plug(&stage, "second", size, "pci-late-1", None).unwrap();
    assert_ne!(approve(&evidence_of_first), 0);
    let refused = stage.pass(&all).unwrap();
    assert_eq!(refused.refusals("data"), ["came-later"], "{}", refused.state);
    assert_eq!(approve(&evidence(&stage.plan(&all).unwrap(), "data").unwrap()), 0);
    assert!(is_untouched(&disk).unwrap(), "an approval formats nothing");
    // Nor is another disk approved.
    let volume = plug(&stage, "volume", size, "pci-late-2", None).unwrap();
    stage.pass_until(&all, "data", "ready").unwrap();
    stage.boot().unwrap();
    stage.pass_until(&all, "data", "ready").unwrap();
    assert_eq!(stage.audit("data").unwrap(), ["about-to format", "done format"]);
    assert!(is_untouched(&volume).unwrap());
}

/// Of two disks declared by size and order, the approval of one must not give it to the other.
#[test]
fn tier2_an_approval_changes_no_other_disk() {
    let test = "tier2_an_approval_changes_no_other_disk";
    let Some(stage) = stage(test).unwrap() else {
        return;
    };
    let size = unique(155);
    let [.., (_, first)] = unnamed(size, "");
    let second = DiskMatch {
        order: Some(2),
        ..first.clone()
    };
    let all = [declared("a", first), declared("b", second)];
    let unknown = Order {
        disks: all.to_vec(),
        approve: Some(("a".to_owned(), "5f0c".to_owned())),
        ..Order::default()
    };
    assert_ne!(stage.order(&unknown).unwrap().code, 0);
    stage.sh("! test -e /var/lib/virtfleet/journal").unwrap();
    stage.pass(&all).unwrap();
    stage.sh(KUBELET).unwrap();
    let _disks =
        [1, 2].map(|n| plug(&stage, &format!("d{n}"), size, &format!("pci-late-{n}"), None).unwrap());
    let approve = |name: &str| {
        let plan = stage.plan(&all).unwrap();
        assert_eq!(plan.refusals(name), ["came-later"], "{}", plan.plan);
        let order = Order {
            disks: all.to_vec(),
            approve: Some((name.to_owned(), evidence(&plan, name).unwrap())),
            ..Order::default()
        };
        stage.order(&order).unwrap()
    };
    let refused = approve("b");
    assert_ne!(refused.code, 0);
    let approved = approve("a");
    assert_eq!(approved.code, 0, "{}", approved.text);
    let selects = "disk a: `match` selects this device from now on (came-later)";
    assert!(approved.text.starts_with(selects), "{}", approved.text);
    assert_eq!(approve("b").code, 0);
    for disk in &all {
        stage.pass_until(&all, &disk.name, "ready").unwrap();
        assert_eq!(
            stage.audit(&disk.name).unwrap(),
            ["about-to format", "done format"]
        );
    }
}

/// An agent without the list of known disks has run in this VM for long; and the list is lost.
#[test]
fn tier2_without_a_list_only_disks_of_the_journal_are_known() {
    let test = "tier2_without_a_list_only_disks_of_the_journal_are_known";
    let Some(mut stage) = stage(test).unwrap() else {
        return;
    };
    let sizes = [160, 170, 180].map(unique);
    let [(_, by_size), ..] = unnamed(sizes[0], "");
    let [_, (_, by_path), _] = unnamed(0, "pci-old-2");
    let [_, _, (_, by_order)] = unnamed(sizes[2], "");
    let all = [
        declared("size", by_size),
        declared("path", by_path),
        declared("order", by_order),
    ];
    let plug = |n: usize| {
        let name = format!("d{n}");
        plug(&stage, &name, sizes[n], &format!("pci-old-{}", n + 1), None).unwrap()
    };
    let _in_use = [plug(0), plug(1)];
    for disk in &all[..2] {
        stage.pass_until(&all, &disk.name, "ready").unwrap();
    }
    let known = stage.root().join(KNOWN);
    let blank = plug(2);
    let refused = |stage: &Stage| {
        for disk in &all[..2] {
            let outcome = stage.pass_until(&all, &disk.name, "ready").unwrap();
            assert!(outcome.refusals(&disk.name).is_empty(), "{}", outcome.state);
            assert_eq!(outcome.refusals("order"), ["came-later"], "{}", outcome.state);
        }
        assert!(is_untouched(&blank).unwrap());
        let list = fs::read_to_string(&known).unwrap();
        assert!(list.contains("\"open\":false"), "{list}");
    };
    // No kubelet has run: but the journal shows that this is not the first run.
    fs::remove_file(&known).unwrap();
    refused(&stage);
    fs::write(&known, "{").unwrap();
    refused(&stage);
    fs::remove_file(&known).unwrap();
    stage.boot().unwrap();
    refused(&stage);
    // With the list that this boot has begun, also in the next one.
    stage.boot().unwrap();
    refused(&stage);
}

fn number(name: &str, default: u64) -> u64 {
    let text = env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A VM with disks of the first boot, and with entries that have waited for a disk since.
struct Guest {
    stage: Stage,
    all: Vec<DiskSettings>,
    /// Sizes of the entries.
    sizes: [u64; 2],
    _spec: Vec<LoopDisk>,
}

impl Guest {
    fn new() -> Result<Self> {
        let stage = Stage::new()?;
        let sizes = [190, 200].map(unique);
        let [size, other] = sizes;
        let [(_, present_size), _, (_, absent_order)] = unnamed(size, "");
        let [_, (_, present_path), _] = unnamed(0, "pci-spec-*");
        let [(_, absent_size), (_, absent_path), _] = unnamed(other, "pci-slot-*");
        let absent_order = DiskMatch {
            order: Some(2),
            ..absent_order
        };
        let present_size = DiskMatch {
            order: Some(1),
            ..present_size
        };
        let all = vec![
            declared("order-1", present_size),
            declared("path", present_path),
            declared("order-2", absent_order),
            declared("no-size", absent_size),
            declared("no-path", absent_path),
        ];
        let spec = vec![
            plug(&stage, "spec-1", size, "pci-order-1", None)?,
            plug(&stage, "spec-2", unique(210), "pci-spec-2", None)?,
        ];
        let guest = Self {
            stage,
            all,
            sizes,
            _spec: spec,
        };
        guest.settled()?;
        guest.stage.sh(KUBELET)?;
        Ok(guest)
    }

    /// The disks of the first boot are in place, and were formatted once.
    fn settled(&self) -> Result<()> {
        for name in ["order-1", "path"] {
            self.stage.pass_until(&self.all, name, "ready")?;
            let audit = self.stage.audit(name)?;
            ensure!(audit == ["about-to format", "done format"], "{name}: {audit:?}");
        }
        Ok(())
    }

    /// A volume that one of the entries, or two of them, could take.
    fn volume(&self, seed: u64) -> Result<LoopDisk> {
        let mut random = fastrand::Rng::with_seed(seed);
        let size = self.sizes[random.usize(..self.sizes.len())];
        let paths = ["pci-slot-1", "pci-spec-volume", "pci-other-1"];
        let path = paths[random.usize(..paths.len())];
        let serial = WAYS[random.usize(..WAYS.len())].1.filter(|_| random.bool());
        plug(&self.stage, &format!("v{seed}"), size, path, serial)
    }
}

#[test]
fn tier2_no_generated_volume_that_comes_and_goes_is_formatted() {
    let test = "tier2_no_generated_volume_that_comes_and_goes_is_formatted";
    if skip::need(TIER, test, needs(&["mkfs.ext4"])).unwrap().is_none() {
        return;
    }
    let many = number("VIRTFLEET_DISK_GENERATED", FEW_VOLUMES);
    let first = number("VIRTFLEET_DISK_SEED", 1);
    let mut guest = Guest::new().unwrap();
    let mut random = fastrand::Rng::with_seed(first);
    let mut volumes: Vec<(u64, LoopDisk)> = Vec::new();
    let mut next = first;
    while next < first + many {
        // Some are there before the run, some come while it runs, and some go then.
        for _ in 0..random.u64(0..3) {
            volumes.push((next, guest.volume(next).unwrap()));
            next += 1;
        }
        let here = &guest;
        let (coming, going) = (next..next + random.u64(0..3), random.usize(0..=volumes.len()));
        next = coming.end;
        let gone: Vec<(u64, LoopDisk)> = volumes.drain(..going).collect();
        let (came, outcome) = thread::scope(|scope| {
            let changes = scope.spawn(move || {
                for (seed, volume) in gone {
                    ensure!(is_untouched(&volume)?, "volume {seed} was written");
                    unplug(&here.stage, volume)?;
                }
                coming
                    .map(|seed| Ok((seed, here.volume(seed)?)))
                    .collect::<Result<Vec<_>>>()
            });
            let outcome = here.stage.pass(&here.all);
            (changes.join().unwrap(), outcome)
        });
        let outcome = outcome.unwrap();
        volumes.extend(came.unwrap());
        for (seed, volume) in &volumes {
            assert!(
                is_untouched(volume).unwrap(),
                "volume {seed} was written: {}",
                outcome.state
            );
        }
        for name in ["order-2", "no-size", "no-path"] {
            assert_eq!(guest.stage.audit(name).unwrap(), [""; 0], "{}", outcome.state);
        }
        if random.u8(..8) == 0 {
            guest.stage.boot().unwrap();
        }
        guest.settled().unwrap();
    }
}
