//! Random disks, from seeds: content × offset × size × wiped parts × grown × a loop device on it ×
//! held open.
//!
//! No disk that holds a byte which the agent did not write is formatted without an approval, unless
//! the plan had said beforehand how long a run its proof could have missed, and the bytes are in
//! such a run. `VIRTFLEET_DISK_GENERATED` is the number of disks, `VIRTFLEET_DISK_SEED` the first
//! seed.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use virtfleet_tests::{
    disks::{Stage, needs},
    loops::Loop,
    process::Launch,
    scratch, skip,
};
use virtfleet_wire::settings::{DiskFilesystem, DiskMatch, DiskSettings};

const TIER: u8 = 2;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const PAGE: usize = 4096;
const SOON: Duration = Duration::from_mins(1);
/// Disks of one pass.
const BATCH: u64 = 12;
/// Disks in `make test`.
const FEW: u64 = 24;

/// What lies on a disk: offset and content of each page that is not zero.
type Pages = BTreeMap<u64, Vec<u8>>;

/// Contents by name, and how many bytes each needs.
struct Templates(Vec<(&'static str, u64, Pages)>);

impl Templates {
    fn new(folder: &Path) -> Result<Self> {
        let tool = |name: &'static str, bytes: u64, command: &str| -> Result<(&'static str, u64, Pages)> {
            let path = folder.join(name);
            File::create(&path)?.set_len(bytes)?;
            Launch::new("sh")
                .args(["-c", &format!("{command} >/dev/null 2>&1"), "sh"])
                .arg(&path)
                .text(SOON)
                .with_context(|| format!("template {name}"))?;
            let pages = pages(&path)?;
            fs::remove_file(path)?;
            Ok((name, bytes, pages))
        };
        let mut all = vec![
            tool("ext2", 40 * MIB, "mkfs.ext4 -q -t ext2 -b 1024 \"$1\"")?,
            tool("ext3", 40 * MIB, "mkfs.ext4 -q -t ext3 -b 2048 \"$1\"")?,
            tool("ext4", 400 * MIB, "mkfs.ext4 -q -b 4096 \"$1\"")?,
            tool("ext4-1k", 64 * MIB, "mkfs.ext4 -q -b 1024 \"$1\"")?,
            tool("xfs", 320 * MIB, "mkfs.xfs -q \"$1\"")?,
            tool("btrfs", 128 * MIB, "mkfs.btrfs -q \"$1\"")?,
            tool("swap", 16 * MIB, "mkswap \"$1\"")?,
            tool("gpt", 64 * MIB, "echo ',,' | sfdisk -X gpt \"$1\"")?,
            tool("mbr", 64 * MIB, "echo ',,' | sfdisk -X dos \"$1\"")?,
        ];
        for (name, bytes, command) in [
            ("vfat", 40 * MIB, "mkfs.vfat \"$1\""),
            (
                "luks",
                32 * MIB,
                "echo secret | cryptsetup luksFormat -q --pbkdf pbkdf2 --pbkdf-force-iterations 1000 \"$1\" -",
            ),
        ] {
            // Not installed everywhere.
            all.extend(tool(name, bytes, command).ok());
        }
        let mut by_hand = |name, bytes: u64, parts: &[(u64, &[u8])]| {
            let mut pages = Pages::new();
            for (offset, part) in parts {
                let page = offset / PAGE as u64 * PAGE as u64;
                let at = usize::try_from(offset - page).unwrap_or_default();
                let room = pages.entry(page).or_insert_with(|| vec![0; PAGE]);
                room[at..at + part.len()].copy_from_slice(part);
            }
            all.push((name, bytes, pages));
        };
        let md = |version: u8| [&[0xfc, 0x4e, 0x2b, 0xa9, version, 0, 0, 0][..], &[7; 200]].concat();
        by_hand("md-0.90", 64 * MIB, &[(64 * MIB - (64 << 10), &md(0))]);
        by_hand("md-1.0", 64 * MIB, &[(64 * MIB - (8 << 10), &md(1))]);
        by_hand("md-1.1", 64 * MIB, &[(0, &md(1))]);
        by_hand("md-1.2", 64 * MIB, &[(4096, &md(1))]);
        by_hand(
            "lvm",
            64 * MIB,
            &[(512, b"LABELONE\x01\0\0\0\0\0\0\0\0\0\0\0\x20\0\0\0LVM2 001")],
        );
        by_hand("ntfs", 16 * MIB, &[(0, b"\xebR\x90NTFS    "), (510, b"\x55\xaa")]);
        by_hand(
            "tar",
            MIB,
            &[
                (0, b"etc/hosts\0"),
                (257, b"ustar  \0"),
                (512, b"127.0.0.1 localhost\n"),
            ],
        );
        by_hand("byte", 4096, &[(77, b"x")]);
        let noise: Vec<u8> = (0..251).cycle().step_by(7).take(PAGE).collect();
        by_hand(
            "raw",
            2 * MIB,
            &(0..512)
                .map(|page| (page * PAGE as u64, &noise[..]))
                .collect::<Vec<_>>(),
        );
        by_hand("nothing", 4096, &[]);
        Ok(Self(all))
    }
}

/// Pages of a file that are not zero.
fn pages(path: &Path) -> Result<Pages> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut pages = Pages::new();
    let mut room = vec![0; PAGE];
    for offset in (0..size).step_by(PAGE) {
        file.read_exact_at(&mut room, offset)?;
        if room.iter().any(|byte| *byte != 0) {
            pages.insert(offset, room.clone());
        }
    }
    Ok(pages)
}

/// One generated disk.
struct Case {
    name: String,
    words: String,
    file: PathBuf,
    device: Loop,
    /// Nothing of this was written by the agent.
    foreign: Pages,
    /// A loop device on it.
    above: Option<Loop>,
    /// A process in the stage that has it open.
    holder: Option<String>,
    settings: DiskSettings,
}

impl Case {
    #[expect(
        clippy::too_many_lines,
        reason = "a draw for each property of a disk, in order"
    )]
    fn new(stage: &Stage, templates: &Templates, seed: u64) -> Result<Self> {
        let mut random = fastrand::Rng::with_seed(seed);
        let name = format!("g{seed}");
        let (kind, bytes, template) = &templates.0[random.usize(..templates.0.len())];
        let sizes = [
            70,
            100,
            255,
            257,
            300,
            512,
            700,
            1024,
            2048,
            10_240,
            102_400,
            1 << 20,
        ];
        let size = sizes[random.usize(..sizes.len())] * MIB + 4096 * random.u64(..3);
        let known = [0, 0, 1, 2, 4, 8, 16, 17, 129, 1024, 1025, 3072].map(|mib| mib * MIB);
        let offset = match random.u8(..4) {
            0 => random.u64(..size) / 4096 * 4096,
            1 => size.saturating_sub(*bytes) / 4096 * 4096,
            _ => known[random.usize(..known.len())],
        };
        let offset = if offset + bytes > size { 0 } else { offset };
        let mut foreign: Pages = template
            .range(..size.saturating_sub(offset))
            .map(|(at, page)| (at + offset, page.clone()))
            .collect();
        // Parts that somebody has zeroed, from the front, from the back, or of what lies there.
        let wiped = [0, 0, 0, 1, 4, 17, 64][random.usize(..7)] * MIB;
        let (from, to) = match random.u8(..3) {
            0 => (0, wiped),
            1 => (size.saturating_sub(wiped), size),
            _ => (offset, offset + wiped),
        };
        if wiped > 0 {
            foreign.retain(|at, _| !(from..to).contains(at));
        }
        let grown = if random.u8(..4) == 0 {
            64 * MIB * random.u64(1..5)
        } else {
            0
        };
        let file = stage.folder().join(&name);
        let image = File::create(&file)?;
        image.set_len(size + grown)?;
        for (at, page) in &foreign {
            let length = usize::try_from(size + grown - at).unwrap_or(PAGE).min(PAGE);
            image.write_all_at(&page[..length], *at)?;
        }
        let device = Loop::attach(&file)?;
        let number = fs::metadata(device.node())?.rdev();
        let number = format!(
            "{}:{}",
            nix::sys::stat::major(number),
            nix::sys::stat::minor(number)
        );
        fs::write(
            stage.root().join("run/udev/data").join(format!("b{number}")),
            format!("E:ID_SERIAL_SHORT={name}\n"),
        )?;
        let mut words = format!("{name}: {kind} at {offset} of {size}+{grown}, zeroed {from}..{to}");
        let mut above = None;
        let mut holder = None;
        match random.u8(..12) {
            0 => {
                words.push_str(", a loop device on it");
                let at = offset.to_string();
                above = Some(Loop::attach_with(device.node(), &["--offset", &at])?);
            }
            1 => {
                words.push_str(", open for writing");
                let redirection = format!("9<>{} </dev/null", device.node().display());
                holder = Some(stage.hold(&redirection)?);
            }
            _ => {}
        }
        // Large ones become btrfs, whose mkfs writes little.
        let filesystem = match random.u8(..3) {
            _ if size > 2 * GIB => DiskFilesystem::Btrfs,
            0 => DiskFilesystem::Ext4,
            1 => DiskFilesystem::Swap,
            _ => DiskFilesystem::Btrfs,
        };
        let settings = DiskSettings {
            matching: DiskMatch {
                serial: Some(name.clone()),
                ..DiskMatch::default()
            },
            filesystem,
            proof_seconds: Some(1),
            approve_above: Some("8Ti".to_owned()),
            ..DiskSettings::named(&name)
        };
        Ok(Self {
            name,
            words,
            file,
            device,
            foreign,
            above,
            holder,
            settings,
        })
    }

    /// The longest run of foreign pages, in bytes.
    fn longest(&self) -> u64 {
        let (mut longest, mut run, mut end) = (0, 0, None);
        for at in self.foreign.keys() {
            run = if end == Some(*at) {
                run + PAGE as u64
            } else {
                PAGE as u64
            };
            longest = longest.max(run);
            end = Some(at + PAGE as u64);
        }
        longest
    }

    /// The first foreign page that is not as it was.
    fn changed(&self) -> Result<Option<u64>> {
        let file = File::open(&self.file)?;
        let size = file.metadata()?.len();
        for (at, page) in &self.foreign {
            let mut now = vec![0; usize::try_from(size - at).unwrap_or(PAGE).min(PAGE)];
            file.read_exact_at(&mut now, *at)?;
            if now != page[..now.len()] {
                return Ok(Some(*at));
            }
        }
        Ok(None)
    }
}

#[derive(Default, Debug)]
struct Count {
    disks: u64,
    formatted: u64,
    refused: u64,
    taken: u64,
    /// Formatted over bytes in a hole that the plan had named.
    in_holes: u64,
}

fn round(stage: &Stage, templates: &Templates, seeds: std::ops::Range<u64>, count: &mut Count) -> Result<()> {
    let cases: Vec<Case> = seeds
        .map(|seed| Case::new(stage, templates, seed))
        .collect::<Result<_>>()?;
    let all: Vec<DiskSettings> = cases.iter().map(|case| case.settings.clone()).collect();
    let plan = stage.plan(&all)?.plan;
    let planned = |name: &str| -> Value {
        let mut disks = plan["disks"].as_array().into_iter().flatten();
        disks
            .find(|disk| disk["name"] == name)
            .cloned()
            .unwrap_or_default()
    };
    stage.pass(&all)?;
    for case in &cases {
        count.disks += 1;
        let formatted = stage
            .audit(&case.name)?
            .iter()
            .any(|line| line == "about-to format");
        let plan = planned(&case.name);
        if !formatted {
            if let Some(at) = case.changed()? {
                bail!("{}: not formatted, and changed at {at}: {plan}", case.words);
            }
            match plan["refusals"].as_array().map(Vec::len) {
                Some(0) | None => count.taken += 1,
                Some(_) => count.refused += 1,
            }
            continue;
        }
        count.formatted += 1;
        ensure!(
            case.above.is_none() && case.holder.is_none(),
            "{}: formatted while it is in use: {plan}",
            case.words
        );
        if case.foreign.is_empty() {
            continue;
        }
        let notes = plan["notes"].to_string();
        let hole: u64 = notes
            .split_once("could have been missed is ")
            .and_then(|(_, rest)| rest.split_once('(')?.1.split_once(" bytes")?.0.parse().ok())
            .with_context(|| {
                format!(
                    "{}: formatted, and the plan had named no hole: {plan}",
                    case.words
                )
            })?;
        ensure!(
            hole >= case.longest(),
            "{}: formatted over {} bytes, and the plan had named a hole of {hole}",
            case.words,
            case.longest()
        );
        println!("in a hole of {hole} bytes: {}", case.words);
        count.in_holes += 1;
    }
    let holders: Vec<&str> = cases.iter().filter_map(|case| case.holder.as_deref()).collect();
    if !holders.is_empty() {
        stage.let_go(&holders)?;
    }
    for case in cases {
        drop(case.above);
        drop(case.device);
        fs::remove_file(case.file)?;
    }
    Ok(())
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

#[test]
fn tier2_no_generated_disk_with_foreign_bytes_is_formatted_unannounced() {
    let test = "tier2_no_generated_disk_with_foreign_bytes_is_formatted_unannounced";
    let needs = needs(&["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "mkswap", "sfdisk"]);
    if skip::need(TIER, test, needs).unwrap().is_none() {
        return;
    }
    let folder = scratch::marked().unwrap();
    let templates = Templates::new(folder.path()).unwrap();
    let many = number("VIRTFLEET_DISK_GENERATED", FEW);
    let first = number("VIRTFLEET_DISK_SEED", 1);
    let begun = Instant::now();
    let mut count = Count::default();
    let mut stage = Stage::new().unwrap();
    for from in (first..first + many).step_by(usize::try_from(BATCH).unwrap()) {
        // A journal of thousands of disks is not what is tested.
        if (from - first) % (BATCH * 20) == BATCH * 19 {
            stage = Stage::new().unwrap();
        }
        round(
            &stage,
            &templates,
            from..(from + BATCH).min(first + many),
            &mut count,
        )
        .unwrap();
    }
    println!("{count:?} in {:?}", begun.elapsed());
    assert!(count.formatted > 0 && count.refused > 0, "{count:?}");
}
