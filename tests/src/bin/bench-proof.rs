//! Share of a blank disk that the proof of blankness reads within its time budget, compared with
//! dd(1) in the same run; and, for each tool, the time between the agent's last check and the first
//! byte that the tool writes.

use std::{
    fs::{self, File},
    path::Path,
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use clap::Parser;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use virtfleet_agent_core::disks::{Blankness, Probe};
use virtfleet_agent_host::{
    CommandError, CommandOutput, Commands, Roots, SystemCommands, Tool,
    disks::{Disks, Kinds, Limits},
};
use virtfleet_tests::{
    loops::{self, Loop},
    process::Launch,
};
use virtfleet_wire::settings::{DiskFilesystem, ProofKind};

/// Measure the proof of blankness.
#[derive(Debug, Parser)]
struct Arguments {
    /// Seconds for which each disk is read; the default is that of `proofSeconds`.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Disks that each tool formats.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..))]
    disks: u16,
}

const GIB: u64 = 1 << 30;
const SIZES: [(&str, u64); 2] = [("100 GiB", 100 * GIB), ("1 TiB", 1024 * GIB)];
/// Disk size in bytes; large enough for each tool.
const SMALL: u64 = GIB / 2;
const TOOLS: [DiskFilesystem; 4] = [
    DiskFilesystem::Ext4,
    DiskFilesystem::Xfs,
    DiskFilesystem::Btrfs,
    DiskFilesystem::Swap,
];

fn main() -> Result<()> {
    let Arguments { seconds, disks } = Arguments::parse();
    loops::needs()?;
    let folder = tempfile::tempdir()?;
    let budget = Duration::from_secs(seconds);
    println!("blank disks (sparse files behind loop devices), {seconds} s each");
    println!(
        "{:10} {:14} {:>10} {:>8} {:>14} {:>12} {:>10}",
        "disk", "loop device", "read", "share", "largest unread", "dd reads", "ratio"
    );
    for (words, bytes) in SIZES {
        for (kind, arguments) in [("buffered", &[][..]), ("direct I/O", &["--direct-io=on"][..])] {
            share(folder.path(), budget, (words, bytes), (kind, arguments))?;
        }
    }
    println!();
    println!("from the agent's last check to what the tool does first, {disks} disks each");
    println!(
        "{:10} {:>12} {:>12} {:>12} {:>12}",
        "tool", "open, median", "longest", "write, median", "longest"
    );
    for kind in TOOLS {
        let (mut opens, mut writes) = (Vec::new(), Vec::new());
        for _ in 0..disks {
            let [open, write] = window(folder.path(), kind)?;
            opens.push(open);
            writes.push(write);
        }
        opens.sort_unstable();
        writes.sort_unstable();
        let name = match kind {
            DiskFilesystem::Swap => "mkswap".to_owned(),
            other => format!("mkfs.{}", other.word()),
        };
        let [open, longest_open] = [opens[opens.len() / 2], opens[opens.len() - 1]];
        let [write, longest_write] = [writes[writes.len() / 2], writes[writes.len() - 1]];
        println!("{name:10} {open:>12.1?} {longest_open:>12.1?} {write:>13.1?} {longest_write:>12.1?}");
    }
    Ok(())
}

/// Prints how much of one disk the agent's proof and dd read.
fn share(
    folder: &Path,
    budget: Duration,
    (words, bytes): (&str, u64),
    (kind, arguments): (&str, &[&str]),
) -> Result<()> {
    let image = folder.join("share");
    File::create(&image)?.set_len(bytes)?;
    let Ok(disk) = Loop::attach_with(&image, arguments) else {
        println!("{words:10} {kind:14} not measured: losetup refuses {arguments:?} here");
        return Ok(());
    };
    let blank = proven(&disk, budget)?;
    let peer = dd(&disk, budget)?;
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
    let ratio = |one: u64, other: u64| one as f64 / other as f64;
    println!(
        "{words:10} {kind:14} {:>6.1} GiB {:>7.1}% {:>10.1} MiB {:>8.1} GiB {:>10.2}",
        ratio(blank.bytes, GIB),
        ratio(blank.bytes, bytes) * 100.0,
        ratio(blank.largest_unread, 1 << 20),
        ratio(peer, GIB),
        ratio(blank.bytes, peer),
    );
    drop(disk);
    fs::remove_file(image)?;
    Ok(())
}

fn proven(disk: &Loop, budget: Duration) -> Result<Blankness> {
    let limits = Limits {
        budget,
        ..Limits::default()
    };
    let device = disk.device()?;
    let roots = Roots::default();
    match loops::disks(&roots).probe_within(&device, ProofKind::Timed, None, limits, &mut |_, _| {}) {
        Probe::Blank(blank) => Ok(blank),
        other => anyhow::bail!("{} is not blank: {other:?}", device.node()),
    }
}

/// Bytes that dd reads in the same time, with the agent's block size and without the page cache.
fn dd(disk: &Loop, budget: Duration) -> Result<u64> {
    let seconds = budget.as_secs().to_string();
    let output = Launch::new("timeout")
        .args([
            "-s",
            "INT",
            &seconds,
            "dd",
            "of=/dev/null",
            "bs=4M",
            "iflag=direct",
        ])
        .arg(format!("if={}", disk.node().display()))
        .output(budget * 4)?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let bytes = text
        .lines()
        .find_map(|line| line.split_once(" bytes")?.0.trim().parse().ok());
    bytes.with_context(|| format!("dd says {text:?}"))
}

/// Records when the agent starts the tool, which is after its last check.
#[derive(Default)]
struct Noting(Mutex<Option<Instant>>);

impl Noting {
    fn started(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Commands for Noting {
    fn run(&self, tool: &Tool) -> Result<CommandOutput, CommandError> {
        SystemCommands.run(tool)
    }

    fn run_with_lock(&self, tool: &Tool, lock: &File) -> Result<CommandOutput, CommandError> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        SystemCommands.run_with_lock(tool, lock)
    }
}

/// Formats one disk. Returns the time from the last check to the tool's first open of the device,
/// and to the first byte that it writes (inotify(7)).
fn window(folder: &Path, kind: DiskFilesystem) -> Result<[Duration; 2]> {
    let disk = Loop::blank(folder, "window", SMALL)?;
    let device = disk.device()?;
    let blank = loops::blankness(&device, ProofKind::Sampled)?;
    let intent = loops::intent(&device, kind, &blank, &uuid());
    let (roots, commands) = (Roots::default(), Noting::default());
    let disks = Disks {
        roots: &roots,
        commands: &commands,
        kinds: Kinds::WithLoop,
    };
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
    inotify.add_watch(disk.node(), AddWatchFlags::IN_OPEN | AddWatchFlags::IN_MODIFY)?;
    let (events, formatted) = thread::scope(|scope| {
        let format = scope.spawn(|| -> Result<()> {
            let claimed = disks.claim(&intent)?;
            disks.format(claimed, &intent)?;
            Ok(())
        });
        let mut events = Vec::new();
        while !format.is_finished() {
            let new = inotify.read_events().unwrap_or_default();
            events.extend(new.into_iter().map(|event| (Instant::now(), event.mask)));
            thread::park_timeout(Duration::from_micros(50));
        }
        (events, format.join())
    });
    formatted.map_err(|_| anyhow::anyhow!("the format panicked"))??;
    fs::remove_file(folder.join("window"))?;
    let started = commands.started().context("no tool was started")?;
    let after = |mask: AddWatchFlags| {
        let mut later = events
            .iter()
            .filter(|(at, found)| *at >= started && found.intersects(mask));
        later.next().map(|(at, _)| at.duration_since(started))
    };
    let open = after(AddWatchFlags::IN_OPEN).context("the tool's open was not seen")?;
    let write = after(AddWatchFlags::IN_MODIFY).context("the tool's first write was not seen")?;
    Ok([open, write])
}

/// A UUID that no other disk has: mkfs.btrfs refuses a UUID that exists on this machine.
fn uuid() -> String {
    format!("6f1c1f3a-95d6-4e0b-8b43-{:012x}", fastrand::u64(..) >> 16)
}
