//! Cost of secondary disks: formatting and mounting three blank disks of 100 GiB, compared with
//! mkfs alone in the same run; and a reconcile run without changes.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use clap::Parser;
use virtfleet_tests::{
    disks::{LoopDisk, Stage, needs},
    process::Launch,
};
use virtfleet_wire::settings::{DiskFilesystem, DiskMatch, DiskSettings};

/// Measure secondary disks.
#[derive(Debug, Parser)]
struct Arguments {
    /// `proofSeconds` of each disk; the default is the agent's.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=180))]
    proof: u32,
}

const BYTES: u64 = 100 << 30;
const KINDS: [DiskFilesystem; 3] = [DiskFilesystem::Ext4, DiskFilesystem::Xfs, DiskFilesystem::Btrfs];
const PASSES: usize = 20;
const LONGEST: Duration = Duration::from_mins(10);

fn main() -> Result<()> {
    let Arguments { proof } = Arguments::parse();
    needs(&["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"])?;
    let stage = Stage::new()?;
    let declared: Vec<DiskSettings> = KINDS.iter().map(|kind| declared(*kind, proof)).collect();

    let mut alone = Duration::ZERO;
    for kind in KINDS {
        let disk = LoopDisk::new(stage.folder(), &format!("alone-{}", kind.word()), BYTES)?;
        alone += mkfs(kind, &disk)?;
    }
    let mut loops = Vec::new();
    for kind in KINDS {
        let disk = LoopDisk::new(stage.folder(), kind.word(), BYTES)?;
        stage.serial(&disk, &format!("serial-{}", kind.word()))?;
        loops.push(disk);
    }
    let outcome = stage.pass(&declared)?;
    for kind in KINDS {
        let standing = outcome.standing(kind.word());
        anyhow::ensure!(
            standing == "ready",
            "{} is {standing}: {}",
            kind.word(),
            outcome.state
        );
    }
    let made = Duration::from_micros(outcome.us);
    let mut idle = Vec::new();
    for _ in 0..PASSES {
        let outcome = stage.pass(&declared)?;
        anyhow::ensure!(
            !outcome.changed,
            "a pass has changed something: {:?}",
            outcome.points
        );
        idle.push(Duration::from_micros(outcome.us));
    }
    let mut nothing = Vec::new();
    for _ in 0..PASSES {
        nothing.push(Duration::from_micros(stage.pass(&[])?.us));
    }
    println!("three blank disks of 100 GiB (sparse files behind loop devices), ext4, xfs and btrfs");
    println!("{:44} {:>9}   goal", "", "measured");
    let row = |what: &str, time: Duration, goal: &str| println!("{what:44} {time:>7.0?}   {goal}");
    row("mkfs of the three, alone", alone, "");
    row("from blank to mounted", made, "");
    // All disks are read at the same time, so the run has one proof.
    let goal = format!("≤ {} s: a proof of {proof} s, and 2 s", proof + 2);
    row("  beyond mkfs", made.saturating_sub(alone), &goal);
    row("no change needed, median of 20", median(&mut idle), "≤ 50 ms");
    row("nothing declared, median of 20", median(&mut nothing), "");
    Ok(())
}

fn declared(kind: DiskFilesystem, proof: u32) -> DiskSettings {
    DiskSettings {
        matching: DiskMatch {
            serial: Some(format!("serial-{}", kind.word())),
            ..DiskMatch::default()
        },
        filesystem: kind,
        mount_point: Some(format!("/srv/{}", kind.word())),
        grow: true,
        proof_seconds: Some(proof),
        ..DiskSettings::named(kind.word())
    }
}

/// Runs mkfs with the agent's arguments.
fn mkfs(kind: DiskFilesystem, disk: &LoopDisk) -> Result<Duration> {
    let arguments: &[&str] = match kind {
        DiskFilesystem::Ext4 => &["-q", "-m", "0", "-E", "nodiscard"],
        DiskFilesystem::Xfs | DiskFilesystem::Btrfs => &["-q", "-K"],
        DiskFilesystem::Swap => &[],
    };
    let program = Path::new("/usr/sbin").join(format!("mkfs.{}", kind.word()));
    let program = if program.exists() {
        program
    } else {
        Path::new("/sbin").join(format!("mkfs.{}", kind.word()))
    };
    let begun = Instant::now();
    Launch::new(program)
        .args(arguments)
        .arg(&disk.node)
        .text(LONGEST)
        .context("mkfs alone")?;
    Ok(begun.elapsed())
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
