//! Others who write at the wrong moment. Whoever plays by the rules (the whole-disk lock, or an
//! exclusive open) never meets us; of whoever does not, we see what was there at our last look;
//! `make bench-proof` measures the window after it.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::Path,
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, ensure};
use nix::libc;
use virtfleet_agent_core::disks::{Device, Probe};
use virtfleet_agent_host::{
    CommandError, CommandOutput, Commands, Roots, SystemCommands, Tool,
    disks::{ClaimError, Disks, Kinds, Limits},
};
use virtfleet_tests::{
    loops::{self, Loop, blankness, disks, intent},
    process::Launch,
    scratch, skip,
};
use virtfleet_wire::settings::{DiskFilesystem, ProofKind};

const TIER: u8 = 2;
const MIB: u64 = 1 << 20;
const OURS: &str = "6ba7b810-9dad-51d1-80b4-00c04fd430c8";
const RIVALS: &str = "7ba7b810-9dad-51d1-80b4-00c04fd430c8";
const DEADLINE: Duration = Duration::from_mins(1);
/// Races between the agent and the other formatter, each with another delay.
const REPETITIONS: usize = 120;

fn run(test: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let needs = || {
        loops::needs()?;
        let programs = ["blkid", "dd", "mkfs.btrfs", "mkfs.ext4", "mkfs.xfs", "mkswap"];
        programs.iter().try_for_each(|name| skip::program(name).map(drop))
    };
    skip::need(TIER, test, needs())?.map_or(Ok(()), |()| work())
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Runs commands, and notes when a formatter was started.
#[derive(Default)]
struct Watched(Mutex<Option<Duration>>);

impl Commands for Watched {
    fn run(&self, tool: &Tool) -> Result<CommandOutput, CommandError> {
        SystemCommands.run(tool)
    }

    fn run_with_lock(&self, tool: &Tool, lock: &File) -> Result<CommandOutput, CommandError> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(now());
        SystemCommands.run_with_lock(tool, lock)
    }
}

fn uuid(device: &Device) -> Option<String> {
    let roots = Roots::default();
    match disks(&roots).probe(device, ProofKind::Sampled, &mut |_, _| {}) {
        Probe::HasData(content) => content.uuid,
        _ => None,
    }
}

#[derive(Default, Debug)]
struct Count {
    /// We refused: the other was there, or had it.
    refused: u32,
    /// We have formatted, and the other could not.
    ours: u32,
    /// The other began when we had ended.
    after_us: u32,
    /// Both have written, and ours stands: the other wrote between our last look and our tool's
    /// exclusive open.
    window: u32,
}

/// One round: the other formats after a pause while we claim and format. How long the claim took,
/// and how long both.
fn round(folder: &Path, pause: Duration, count: &mut Count) -> Result<(Duration, Duration)> {
    let device = Loop::blank(folder, "disk", 64 * MIB)?;
    let seen = device.device()?;
    let blank = blankness(&seen, ProofKind::Sampled)?;
    let intent = intent(&seen, DiskFilesystem::Ext4, &blank, OURS);
    let ended = folder.join("ended");
    fs::remove_file(&ended).ok();
    // `-F`, and no lock: the worst that there is in use.
    let script = "sleep \"$3\"; mkfs.ext4 -q -F -U \"$2\" \"$1\" && date +%s.%N > \"$4\"";
    let mut rival = Launch::new("sh")
        .args(["-c", script, "rival"])
        .arg(device.node())
        .args([RIVALS, &pause.as_secs_f64().to_string()])
        .arg(&ended)
        .tied()
        .start(folder)?;
    let watched = Watched::default();
    let roots = Roots::default();
    let disks = Disks {
        roots: &roots,
        commands: &watched,
        kinds: Kinds::WithLoop,
    };
    let begun = now();
    let claimed = disks.claim(&intent);
    let looked = now();
    let formatted = match claimed {
        Ok(disk) => disks.format(disk, &intent).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let took = (looked.saturating_sub(begun), now().saturating_sub(begun));
    rival.wait(DEADLINE)?;
    let rival_ended = fs::read_to_string(&ended)
        .ok()
        .map(|text| text.trim().parse().map(Duration::from_secs_f64))
        .transpose()?;
    let started = *watched.0.lock().unwrap_or_else(PoisonError::into_inner);
    let found = uuid(&seen);
    match (&formatted, rival_ended) {
        (Ok(()), None) => {
            ensure!(found.as_deref() == Some(OURS), "{found:?}");
            count.ours += 1;
        }
        (Ok(()) | Err(_), Some(theirs)) if found.as_deref() == Some(OURS) => {
            // The rule that must never be broken: its data was there before our last look, and we
            // have formatted.
            ensure!(
                theirs > looked,
                "formatted over what was written {:?} before the last look",
                looked.saturating_sub(theirs)
            );
            count.window += 1;
        }
        (Ok(()), Some(_)) => count.after_us += 1,
        (Err(error), theirs) => {
            ensure!(
                started.is_none() || theirs.is_some() || found.is_none(),
                "{error}: {found:?}"
            );
            if theirs.is_some() {
                ensure!(found.as_deref() == Some(RIVALS), "{found:?}");
            }
            count.refused += 1;
        }
    }
    Ok(took)
}

#[test]
fn tier2_a_formatter_without_manners_is_never_formatted_over_when_it_was_first() {
    run(
        "tier2_a_formatter_without_manners_is_never_formatted_over_when_it_was_first",
        || {
            let folder = scratch::marked()?;
            // Durations without a concurrent formatter.
            let (mut claim, mut whole) = (Duration::MAX, Duration::MAX);
            for _ in 0..4 {
                let took = round(folder.path(), Duration::from_secs(1), &mut Count::default())?;
                (claim, whole) = (claim.min(took.0), whole.min(took.1));
            }
            let mut random = fastrand::Rng::with_seed(11);
            let mut count = Count::default();
            for index in 0..REPETITIONS {
                // At any moment; and every other time around the one at which the disk is let go.
                let pause = if index % 2 == 0 {
                    whole.mul_f64(random.f64())
                } else {
                    claim.saturating_sub(Duration::from_millis(20))
                        + Duration::from_micros(random.u64(..50_000))
                };
                round(folder.path(), pause, &mut count).with_context(|| format!("after {pause:?}"))?;
            }
            println!("{REPETITIONS} races; a claim takes {claim:?}, with the format {whole:?}: {count:?}");
            ensure!(count.refused > 0 && count.ours + count.after_us > 0, "{count:?}");
            Ok(())
        },
    )
    .unwrap();
}

#[test]
fn tier2_what_is_written_between_claim_and_format_is_seen() {
    run("tier2_what_is_written_between_claim_and_format_is_seen", || {
        let folder = scratch::marked()?;
        let roots = Roots::default();
        // The ends are read again; a write anywhere else is counted.
        for place in [0, MIB - 1, 200 * MIB + 4096, 399 * MIB, 400 * MIB - 1] {
            let device = Loop::blank(folder.path(), "disk", 400 * MIB)?;
            let seen = device.device()?;
            let blank = blankness(&seen, ProofKind::Sampled)?;
            let intent = intent(&seen, DiskFilesystem::Ext4, &blank, OURS);
            let disks = disks(&roots);
            let disk = disks.claim(&intent)?;
            device.write(place, b"x")?;
            let refused = disks.format(disk, &intent);
            println!("{}", refused.err().context("it was formatted")?);
            ensure!(device.read(place, 1)? == b"x");
        }
        // Also what a process has written and the kernel has not passed on yet.
        let device = Loop::blank(folder.path(), "disk", 400 * MIB)?;
        let seen = device.device()?;
        let blank = blankness(&seen, ProofKind::Sampled)?;
        let intent = intent(&seen, DiskFilesystem::Ext4, &blank, OURS);
        let disk = disks(&roots).claim(&intent)?;
        let file = OpenOptions::new().write(true).open(device.node())?;
        file.write_all_at(b"x", 200 * MIB + 4096)?;
        let refused = disks(&roots).format(disk, &intent);
        let refused = refused.err().context("it was formatted")?.to_string();
        ensure!(refused.contains("sectors were written"), "{refused}");
        // And between the proof of the plan and the second one, when that finds the same zeros.
        drop(file);
        device.write(200 * MIB + 4096, &[0])?;
        let refused = disks(&roots).claim(&intent).map(drop);
        println!("{}", refused.err().context("it was claimed")?);
        Ok(())
    })
    .unwrap();
}

#[test]
fn tier2_of_two_claims_at_once_one_gets_it() {
    run("tier2_of_two_claims_at_once_one_gets_it", || {
        let folder = scratch::marked()?;
        let device = Loop::blank(folder.path(), "disk", 64 * MIB)?;
        let seen = device.device()?;
        let blank = blankness(&seen, ProofKind::Sampled)?;
        let intent = intent(&seen, DiskFilesystem::Ext4, &blank, OURS);
        let limits = Limits {
            lock: Duration::from_millis(300),
            ..Limits::default()
        };
        let everybody_is_done = std::sync::Barrier::new(2);
        for _ in 0..10 {
            let claim = || {
                let roots = Roots::default();
                let claimed = disks(&roots).claim_within(&intent, limits);
                // Whoever has it keeps it until the other has given up.
                everybody_is_done.wait();
                claimed.map(drop)
            };
            let results = std::thread::scope(|scope| {
                let (one, other) = (scope.spawn(claim), scope.spawn(claim));
                [one.join().unwrap(), other.join().unwrap()]
            });
            let won = results.iter().filter(|result| result.is_ok()).count();
            ensure!(won == 1, "{results:?}");
            ensure!(
                results
                    .iter()
                    .filter_map(|result| result.as_ref().err())
                    .all(|error| matches!(error, ClaimError::Unknown { doubt, .. } if doubt.passing)),
                "{results:?}"
            );
        }
        // A mount or a formatter that asks the kernel is kept out while it is claimed.
        let roots = Roots::default();
        let disk = disks(&roots).claim(&intent)?;
        let exclusive = File::options()
            .read(true)
            .custom_flags(libc::O_EXCL)
            .open(device.node());
        ensure!(exclusive.is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY)));
        let formatted = Launch::new("mkfs.ext4")
            .args(["-q", "-F"])
            .arg(device.node())
            .output(DEADLINE)?;
        ensure!(!formatted.status.success(), "mkfs.ext4 -F while it is claimed");
        drop(disk);
        Ok(())
    })
    .unwrap();
}

#[test]
fn tier2_a_device_that_was_attached_anew_is_another_one() {
    run("tier2_a_device_that_was_attached_anew_is_another_one", || {
        let folder = scratch::marked()?;
        let roots = Roots::default();
        let other = folder.path().join("other");
        File::create(&other)?.set_len(64 * MIB)?;
        let mut refused = 0;
        for _ in 0..5 {
            let device = Loop::blank(folder.path(), "disk", 64 * MIB)?;
            let seen = device.device()?;
            let blank = blankness(&seen, ProofKind::Sampled)?;
            let intent = intent(&seen, DiskFilesystem::Ext4, &blank, OURS);
            let node = device.node().to_owned();
            drop(device);
            // Somebody else's test may have taken it meanwhile: then that is the other device.
            let again = Loop::attach_at(&node, &other);
            let claimed = disks(&roots).claim(&intent).map(drop);
            let error = claimed.err().context("it was claimed")?;
            if again.is_ok() {
                refused += 1;
                ensure!(error.to_string().contains("attached again"), "{error}");
            }
        }
        ensure!(refused > 0, "its number was never free");
        ensure!(fs::read(&other)?.iter().all(|byte| *byte == 0));
        Ok(())
    })
    .unwrap();
}
