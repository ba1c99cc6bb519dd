//! Blank disks: proven at every size, formatted, and found to be what was meant; and what a killed
//! `mkfs` left is made blank again.

use std::{
    fs::OpenOptions,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use nix::libc;
use virtfleet_agent_core::disks::{
    Content, FormatIntent, Probe,
    journal::{Entry, Evidence, FORMAT, Progress},
};
use virtfleet_agent_host::{
    Roots, SystemCommands,
    disks::{
        ClaimError,
        tools::{btrfs, check, ext4, xfs},
    },
};
use virtfleet_tests::{
    loops::{self, Loop, blankness, disks, intent},
    process::Launch,
    scratch, skip,
};
use virtfleet_wire::settings::{DiskFilesystem, ProofKind};

const TIER: u8 = 2;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// A UUID that no filesystem has.
const OTHER: &str = "7ba7b811-9dad-51d1-80b4-00c04fd430c8";
const ALL: [DiskFilesystem; 4] = [
    DiskFilesystem::Ext4,
    DiskFilesystem::Xfs,
    DiskFilesystem::Btrfs,
    DiskFilesystem::Swap,
];

fn needs() -> Result<()> {
    loops::needs()?;
    let programs = [
        "blkid",
        "btrfs",
        "dd",
        "dumpe2fs",
        "e2fsck",
        "mkfs.btrfs",
        "mkfs.ext4",
        "mkfs.xfs",
        "mkswap",
        "xfs_repair",
    ];
    programs.iter().try_for_each(|name| skip::program(name).map(drop))
}

fn run(test: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    skip::need(TIER, test, needs())?.map_or(Ok(()), |()| work())
}

#[test]
fn tier2_a_blank_disk_is_blank_at_every_size() {
    run("tier2_a_blank_disk_is_blank_at_every_size", || {
        let folder = scratch::marked()?;
        let sampled = |size: u64| (size, ProofKind::Sampled);
        let cases = [
            sampled(64 * MIB),
            sampled(64 * MIB + 512),
            sampled(256 * MIB),
            sampled(256 * MIB + 512),
            sampled(257 * MIB),
            sampled(300 * MIB),
            sampled(3 * GIB),
            sampled(3 * GIB + 1536),
            (3 * GIB, ProofKind::Full),
            sampled(100 * GIB),
            sampled(2048 * GIB),
        ];
        for (size, proof) in cases {
            let device = Loop::blank(folder.path(), "disk", size)?;
            let prove = || -> Result<()> {
                let begun = Instant::now();
                let blank = blankness(&device.device()?, proof)?;
                println!(
                    "{:>8} MiB {proof:?}: {} parts, {:.1} MiB read in {:?}",
                    size / MIB,
                    blank.regions,
                    blank.bytes as f64 / MIB as f64,
                    begun.elapsed()
                );
                ensure!(blank.proof == proof && blank.bytes > 0);
                if proof == ProofKind::Full || size <= 256 * MIB {
                    ensure!(blank.bytes == size, "{} of {size}", blank.bytes);
                }
                Ok(())
            };
            prove().with_context(|| format!("{size} bytes"))?;
        }
        // The same amount by dd, for comparison.
        let device = Loop::blank(folder.path(), "disk", 100 * GIB)?;
        let begun = Instant::now();
        blankness(&device.device()?, ProofKind::Sampled)?;
        let proof = begun.elapsed();
        let begun = Instant::now();
        let output = format!("if={}", device.node().display());
        Launch::new("dd")
            .args([
                output.as_str(),
                "of=/dev/null",
                "bs=1M",
                "count=4096",
                "iflag=direct",
            ])
            .text(Duration::from_secs(250))?;
        let dd = begun.elapsed();
        println!(
            "100 GiB: the sampled proof takes {proof:?}; dd of 4 GiB {dd:?}, so all of it {:?}",
            dd * 25
        );
        Ok(())
    })
    .unwrap();
}

/// The claimed and formatted disk.
fn format(device: &Loop, filesystem: DiskFilesystem, uuid: &str) -> Result<FormatIntent> {
    let roots = Roots::default();
    let seen = device.device()?;
    let blank = blankness(&seen, ProofKind::Sampled)?;
    let intent = intent(&seen, filesystem, &blank, uuid);
    let disks = disks(&roots);
    let disk = disks.claim(&intent)?;
    disks.format(disk, &intent)?;
    Ok(intent)
}

fn content(device: &Loop) -> Result<Content> {
    let roots = Roots::default();
    match disks(&roots).probe(&device.device()?, ProofKind::Sampled, &mut |_, _| {}) {
        Probe::HasData(content) => Ok(content),
        other => anyhow::bail!("{other:?}"),
    }
}

#[test]
fn tier2_what_is_formatted_is_what_was_meant_and_is_never_formatted_again() {
    run(
        "tier2_what_is_formatted_is_what_was_meant_and_is_never_formatted_again",
        || {
            let folder = scratch::marked()?;
            let uuid: &str = &loops::uuid();
            let roots = Roots::default();
            let size = 400 * MIB;
            for filesystem in ALL {
                let word = filesystem.word();
                let device = Loop::blank(folder.path(), word, size)?;
                let intent = format(&device, filesystem, uuid).context(word)?;
                let found = content(&device)?;
                ensure!(
                    found.kind == word && found.uuid.as_deref() == Some(uuid) && found.also.is_empty(),
                    "{found:?}"
                );
                ensure!(
                    check::is_intact(&SystemCommands, word, device.node())?,
                    "{word}: its checker is not content"
                );
                let bytes = match filesystem {
                    DiskFilesystem::Ext4 => ext4::size(&SystemCommands, device.node())?,
                    DiskFilesystem::Xfs => xfs::size(&SystemCommands, device.node())?,
                    DiskFilesystem::Btrfs => btrfs::size(&SystemCommands, device.node())?,
                    DiskFilesystem::Swap => size,
                };
                ensure!(
                    bytes > size * 9 / 10 && bytes <= size,
                    "{word}: {bytes} of {size}"
                );
                let refused = disks(&roots).claim(&intent);
                ensure!(
                    matches!(refused, Err(ClaimError::NotAsPlanned { content: Some(_), .. })),
                    "{refused:?}"
                );
                println!("{word}: {}", refused.map(drop).unwrap_err());
            }
            Ok(())
        },
    )
    .unwrap();
}

#[test]
fn tier2_an_intent_for_something_else_is_refused() {
    run("tier2_an_intent_for_something_else_is_refused", || {
        let folder = scratch::marked()?;
        let uuid: &str = &loops::uuid();
        let roots = Roots::default();
        let device = Loop::blank(folder.path(), "disk", 70 * MIB)?;
        let seen = device.device()?;
        let blank = blankness(&seen, ProofKind::Sampled)?;
        let right = intent(&seen, DiskFilesystem::Ext4, &blank, uuid);
        let wrong = |change: &dyn Fn(&mut FormatIntent)| {
            let mut intent = right.clone();
            change(&mut intent);
            let refused = disks(&roots).claim(&intent).map(drop);
            refused
                .err()
                .context("it was claimed")
                .map(|error| error.to_string())
        };
        println!("{}", wrong(&|intent| intent.device.number.minor += 1)?);
        println!("{}", wrong(&|intent| intent.device.diskseq = Some(1))?);
        println!("{}", wrong(&|intent| intent.device.size += 512)?);
        println!(
            "{}",
            wrong(&|intent| intent.device.serial = Some("other".to_owned()))?
        );
        println!("{}", wrong(&|intent| intent.device.name = "none".to_owned())?);
        println!(
            "{}",
            wrong(&|intent| {
                intent.evidence = Evidence::Blank(virtfleet_agent_core::disks::Blankness {
                    bytes: 1,
                    ..blank.clone()
                });
            })?
        );
        // An approval of other bytes than are there.
        device.write(5 * MIB, b"x")?;
        let approved = |digest: &str| Evidence::Approved {
            place: None,
            writes: virtfleet_agent_core::disks::WriteMark::default(),
            hash: String::new(),
            proof: ProofKind::Sampled,
            digest: Some(digest.to_owned()),
        };
        println!("{}", wrong(&|intent| intent.evidence = approved("00"))?);
        let judged = content(&device)?.digest;
        let mut intent = right.clone();
        intent.evidence = approved(&judged);
        drop(disks(&roots).claim(&intent)?);
        device.write(6 * MIB, b"y")?;
        println!("{}", wrong(&|intent| intent.evidence = approved(&judged))?);
        device.write(6 * MIB, &[0])?;
        let disk = disks(&roots).claim(&intent)?;
        disks(&roots).format(disk, &intent)?;
        ensure!(content(&device)?.uuid.as_deref() == Some(uuid));
        Ok(())
    })
    .unwrap();
}

#[test]
fn tier2_a_device_in_use_is_never_blank() {
    run("tier2_a_device_in_use_is_never_blank", || {
        let folder = scratch::marked()?;
        let uuid: &str = &loops::uuid();
        let roots = Roots::default();
        let device = Loop::blank(folder.path(), "disk", 70 * MIB)?;
        let seen = device.device()?;
        let blank = blankness(&seen, ProofKind::Sampled)?;
        let intent = intent(&seen, DiskFilesystem::Ext4, &blank, uuid);
        let held = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_EXCL)
            .open(device.node())?;
        let probe = disks(&roots).probe(&seen, ProofKind::Sampled, &mut |_, _| {});
        ensure!(
            matches!(&probe, Probe::Unknown(doubt) if doubt.passing),
            "{probe:?}"
        );
        let refused = disks(&roots).claim(&intent);
        ensure!(matches!(refused, Err(ClaimError::Unknown { .. })), "{refused:?}");
        drop(held);
        drop(disks(&roots).claim(&intent)?);
        Ok(())
    })
    .unwrap();
}

fn entry(intent: &FormatIntent) -> Result<Entry> {
    Ok(Entry {
        format: FORMAT,
        name: intent.name.clone(),
        key: intent.key.clone(),
        progress: Progress::Intended,
        device: intent.device.clone(),
        boot_id: std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?
            .trim()
            .to_owned(),
        filesystem: intent.filesystem.clone(),
        uuid: intent.uuid.clone(),
        luks_uuid: None,
        evidence: intent.evidence.clone(),
        at_ns: 0,
        arguments: intent.arguments.clone(),
        others_wrote: false,
        binds: Vec::new(),
    })
}

/// Breaks a filesystem so that its superblock stays and its checker is not content.
fn cripple(node: &Path, filesystem: DiskFilesystem) -> Result<()> {
    let device = OpenOptions::new().write(true).open(node)?;
    let zeros = vec![0; 3 << 20];
    let place = match filesystem {
        DiskFilesystem::Ext4 => 4096,
        DiskFilesystem::Xfs => 8192,
        _ => 128 << 10,
    };
    device.write_all_at(&zeros, place)?;
    if filesystem == DiskFilesystem::Btrfs {
        device.write_all_at(&vec![0; 50 << 20], 4 << 20)?;
    }
    device.sync_all()?;
    Ok(())
}

#[test]
fn tier2_what_our_own_mkfs_left_is_cleared_and_nothing_else_is() {
    run(
        "tier2_what_our_own_mkfs_left_is_cleared_and_nothing_else_is",
        || {
            let folder = scratch::marked()?;
            let uuid: &str = &loops::uuid();
            let roots = Roots::default();
            let disks = disks(&roots);
            for filesystem in [DiskFilesystem::Ext4, DiskFilesystem::Xfs, DiskFilesystem::Btrfs] {
                let word = filesystem.word();
                let device = Loop::blank(folder.path(), word, 400 * MIB)?;
                let intent = format(&device, filesystem, uuid)?;
                let entry = entry(&intent)?;
                // Whole.
                let refused = disks.claim_unfinished(&intent, &entry);
                println!(
                    "{}",
                    refused
                        .map(drop)
                        .err()
                        .context("a whole filesystem was taken as unfinished")?
                );
                cripple(device.node(), filesystem)?;
                // Not begun by us; or mounted since.
                for (progress, planned, journaled) in [
                    (Progress::Used, uuid, uuid),
                    (Progress::Formatted, uuid, uuid),
                    (Progress::Intended, uuid, OTHER),
                    (Progress::Intended, OTHER, OTHER),
                ] {
                    let (mut intent, mut entry) = (intent.clone(), entry.clone());
                    planned.clone_into(&mut intent.uuid);
                    journaled.clone_into(&mut entry.uuid);
                    entry.progress = progress;
                    let refused = disks.claim_unfinished(&intent, &entry);
                    println!(
                        "{}",
                        refused
                            .map(drop)
                            .err()
                            .context("somebody else's was taken as ours")?
                    );
                }
                // Ours, and not whole: blank again, and formatted.
                let unfinished = disks.claim_unfinished(&intent, &entry)?;
                let blank = disks.clear(unfinished)?;
                let Evidence::Blank(before) = &intent.evidence else {
                    bail!("{:?}", intent.evidence)
                };
                ensure!((blank.regions, blank.bytes) == (before.regions, before.bytes));
                // The proof of before the clearing is worth nothing any more.
                let refused = disks.claim(&intent).map(drop).err().context("it was claimed")?;
                ensure!(refused.to_string().contains("sectors were written"), "{refused}");
                let intent = FormatIntent {
                    evidence: Evidence::Blank(blank),
                    ..intent
                };
                let disk = disks.claim(&intent)?;
                disks.format(disk, &intent)?;
                ensure!(content(&device)?.uuid.as_deref() == Some(uuid));
            }
            // Bytes without a signature are not ours, whatever the journal says of boot and device.
            let device = Loop::blank(folder.path(), "disk", 70 * MIB)?;
            let seen = device.device()?;
            let blank = blankness(&seen, ProofKind::Sampled)?;
            let intent = intent(&seen, DiskFilesystem::Ext4, &blank, uuid);
            device.write(20 * MIB, &[7; 4096])?;
            let begun = entry(&intent)?;
            let refused = disks.claim_unfinished(&intent, &begun);
            let refused = refused.map(drop).err().context("it was taken as ours")?;
            ensure!(refused.to_string().contains("the byte at 20971520"), "{refused}");
            ensure!(device.read(20 * MIB, 4096)? == [7; 4096]);
            // Nothing at all is what a tool leaves that was killed before its first write.
            device.write(20 * MIB, &[0; 4096])?;
            let unfinished = disks.claim_unfinished(&intent, &begun)?;
            let evidence = Evidence::Blank(disks.clear(unfinished)?);
            drop(disks.claim(&FormatIntent { evidence, ..intent })?);
            Ok(())
        },
    )
    .unwrap();
}
