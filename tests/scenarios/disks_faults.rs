//! Disks that fail while they are looked at: read errors, silence, an end that comes too early.
//! None is blank, and no look takes longer than its deadline.

use std::{
    fs::{self, File, OpenOptions},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};
use virtfleet_agent_core::disks::{Doubt, Probe};
use virtfleet_agent_host::{
    Roots,
    disks::{ClaimError, Limits},
};
use virtfleet_tests::{
    loops::{self, Loop, blankness, disks, intent},
    process::{AtEnd, Launch, Process},
    scratch, skip, wait,
};
use virtfleet_wire::settings::{DiskFilesystem, ProofKind};

const TIER: u8 = 2;
const MIB: u64 = 1 << 20;
const UUID: &str = "6ba7b812-9dad-51d1-80b4-00c04fd430c8";
/// Maximum time for a helper process to become ready or to release its lock.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// Short, so that the test is.
const LIMITS: Limits = Limits {
    lock: Duration::from_millis(500),
    read: Duration::from_millis(1500),
    all: Duration::from_secs(6),
    budget: Duration::from_secs(20),
};

fn run(test: &str, needs: Result<()>, work: impl FnOnce() -> Result<()>) -> Result<()> {
    skip::need(TIER, test, needs)?.map_or(Ok(()), |()| work())
}

fn needs_nbd() -> Result<()> {
    loops::needs()?;
    ensure!(Path::new("/dev/fuse").exists(), "there is no /dev/fuse");
    ["nbdkit", "nbdfuse"]
        .iter()
        .try_for_each(|name| skip::program(name).map(drop))
}

/// A file whose bytes a server serves that can be told to fail.
struct Faulty {
    /// Ends before what it serves from.
    server: Process,
    image: PathBuf,
    _unmount: AtEnd,
}

impl Faulty {
    /// 300 MiB, by way of those filters of nbdkit.
    fn start(folder: &Path, filters: &[&str]) -> Result<Self> {
        let place = folder.join("served");
        fs::create_dir(&place)?;
        let image = place.join("disk");
        let unmount = AtEnd::new("umount --lazy \"$1\"", [&place])?;
        let mut server = Launch::new("nbdfuse")
            .arg(&image)
            .args(["[", "nbdkit", "--exit-with-parent"])
            .args(filters.iter().filter(|word| word.starts_with('-')))
            .args(["memory", "300M"])
            .args(filters.iter().filter(|word| !word.starts_with('-')))
            .arg("]")
            .tied()
            .start(folder)?;
        server.wait_for(COMMAND_TIMEOUT, "the file is served", |_| {
            Ok(fs::metadata(&image)?)
        })?;
        Ok(Self {
            server,
            image,
            _unmount: unmount,
        })
    }
}

fn look(device: &Loop) -> Result<(Probe, Duration)> {
    look_within(device, LIMITS)
}

fn look_within(device: &Loop, limits: Limits) -> Result<(Probe, Duration)> {
    let roots = Roots::default();
    let device = device.device()?;
    let begun = Instant::now();
    let probe = disks(&roots).probe_within(&device, ProofKind::Sampled, None, limits, &mut |_, _| {});
    Ok((probe, begun.elapsed()))
}

fn doubt(probe: Probe) -> Result<Doubt> {
    match probe {
        Probe::Unknown(doubt) => Ok(doubt),
        other => bail!("{other:?}"),
    }
}

#[test]
fn tier2_a_disk_with_read_errors_is_unknown() {
    run("tier2_a_disk_with_read_errors_is_unknown", needs_nbd(), || {
        let folder = scratch::marked()?;
        let switch = folder.path().join("fail");
        let file = format!("error-pread-file={}", switch.display());
        let served = Faulty::start(folder.path(), &["--filter=error", "error-pread-rate=100%", &file])?;
        let device = Loop::attach(&served.image)?;
        let seen = device.device()?;
        let blank = blankness(&seen, ProofKind::Sampled)?;
        File::create(&switch)?;
        // What the kernel remembers of the file is read without asking the server.
        fs::write("/proc/sys/vm/drop_caches", "1")?;
        // With the limits of the product: a busy machine may deliver the error late.
        let (probe, took) = look_within(&device, Limits::default())?;
        let found = doubt(probe)?;
        println!("{} (passing: {}) after {took:?}", found.reason, found.passing);
        ensure!(found.reason.contains("read error at byte 0"), "{}", found.reason);
        let roots = Roots::default();
        let intent = intent(&seen, DiskFilesystem::Ext4, &blank, UUID);
        let refused = disks(&roots).claim_within(&intent, LIMITS).map(drop);
        ensure!(matches!(refused, Err(ClaimError::Unknown { .. })), "{refused:?}");
        fs::remove_file(&switch)?;
        blankness(&seen, ProofKind::Sampled)?;
        drop(device);
        drop(served);
        Ok(())
    })
    .unwrap();
}

#[test]
fn tier2_a_read_error_in_one_of_many_reads_is_unknown() {
    run(
        "tier2_a_read_error_in_one_of_many_reads_is_unknown",
        needs_nbd(),
        || {
            let folder = scratch::marked()?;
            let mut unknown = 0;
            // The kernel reads ahead and asks once more for what failed then: an error is met when
            // both fail.
            let served = Faulty::start(folder.path(), &["--filter=error", "error-pread-rate=10%"])?;
            let device = Loop::attach(&served.image)?;
            for _ in 0..10 {
                fs::write("/proc/sys/vm/drop_caches", "1")?;
                let (probe, _) = look(&device)?;
                match probe {
                    Probe::Unknown(found) => {
                        unknown += 1;
                        println!("{}", found.reason);
                    }
                    // No read failed in this round.
                    Probe::Blank(_) => {}
                    Probe::HasData(content) => bail!("{content:?}"),
                }
            }
            ensure!(unknown > 0, "an error in one of ten reads was never met twice");
            drop(device);
            drop(served);
            Ok(())
        },
    )
    .unwrap();
}

#[test]
fn tier2_a_disk_that_answers_slowly_or_never_is_unknown_in_time() {
    run(
        "tier2_a_disk_that_answers_slowly_or_never_is_unknown_in_time",
        needs_nbd(),
        || {
            // Each read is late; all reads together are late.
            for (name, delay, least) in [
                ("never", "rdelay=20", LIMITS.read),
                ("slow", "rdelay=150ms", LIMITS.read),
            ] {
                let folder = scratch::marked()?;
                let served = Faulty::start(folder.path(), &["--filter=delay", delay])?;
                let device = Loop::attach(&served.image)?;
                let (probe, took) = look(&device)?;
                let found = doubt(probe)?;
                println!("{name}: {} after {took:?}", found.reason);
                ensure!(found.passing && took >= least, "{took:?}");
                // blkid reads it, too, before the proof, and has a deadline of its own.
                ensure!(took < LIMITS.all + Duration::from_mins(1), "{took:?}");
                // Reads that wait come back with an error by this, and the thread that was left
                // behind ends.
                served.server.signal(nix::sys::signal::Signal::SIGKILL)?;
                drop(device);
                drop(served);
            }
            Ok(())
        },
    )
    .unwrap();
}

#[test]
fn tier2_a_disk_that_goes_away_in_between_is_unknown() {
    run(
        "tier2_a_disk_that_goes_away_in_between_is_unknown",
        needs_nbd(),
        || {
            let folder = scratch::marked()?;
            let mut served = Some(Faulty::start(folder.path(), &["--filter=delay", "rdelay=20ms"])?);
            let image = served
                .as_ref()
                .map(|served| served.image.clone())
                .unwrap_or_default();
            let device = Loop::attach(&image)?;
            let roots = Roots::default();
            let seen = device.device()?;
            let probe = disks(&roots).probe_within(
                &seen,
                ProofKind::Sampled,
                None,
                Limits::default(),
                &mut |done, all| {
                    if done > all / 4
                        && let Some(served) = served.take()
                    {
                        served.server.signal(nix::sys::signal::Signal::SIGKILL).unwrap();
                    }
                },
            );
            let found = doubt(probe)?;
            println!("{}", found.reason);
            ensure!(served.is_none());
            Ok(())
        },
    )
    .unwrap();
}

#[test]
fn tier2_a_disk_that_ends_before_it_should_is_unknown() {
    run(
        "tier2_a_disk_that_ends_before_it_should_is_unknown",
        loops::needs(),
        || {
            let folder = scratch::marked()?;
            let device = Loop::blank(folder.path(), "disk", 300 * MIB)?;
            let seen = device.device()?;
            let image = OpenOptions::new().write(true).open(folder.path().join("disk"))?;
            let roots = Roots::default();
            for (what, length) in [("before", 200 * MIB), ("to nothing", 0)] {
                image.set_len(length)?;
                let (probe, _) = look(&device)?;
                println!("cut {what}: {}", doubt(probe)?.reason);
            }
            // In the middle of a look.
            image.set_len(300 * MIB)?;
            let probe =
                disks(&roots).probe_within(&seen, ProofKind::Sampled, None, LIMITS, &mut |done, all| {
                    if done > all / 2 {
                        image.set_len(0).unwrap();
                    }
                });
            println!("cut while looking: {}", doubt(probe)?.reason);
            Ok(())
        },
    )
    .unwrap();
}

#[test]
fn tier2_a_disk_that_another_process_has_locked_is_unknown_in_time() {
    run(
        "tier2_a_disk_that_another_process_has_locked_is_unknown_in_time",
        loops::needs(),
        || {
            let folder = scratch::marked()?;
            let device = Loop::blank(folder.path(), "disk", 70 * MIB)?;
            let ready = folder.path().join("ready");
            let mut rival = Launch::new("flock")
                .args(["--exclusive", "--no-fork"])
                .arg(device.node())
                .args(["sh", "-c", "touch \"$0\"; exec sleep 600"])
                .arg(&ready)
                .tied()
                .start(folder.path())?;
            rival.wait_for(COMMAND_TIMEOUT, "the lock is taken", |_| {
                Ok(fs::metadata(&ready)?)
            })?;
            let (probe, took) = look(&device)?;
            let found = doubt(probe)?;
            println!("{} after {took:?}", found.reason);
            ensure!(found.passing && took >= LIMITS.lock && took < LIMITS.lock + wait::PROMPT);
            drop(rival);
            wait::eventually(COMMAND_TIMEOUT, "the lock is free", || {
                blankness(&device.device()?, ProofKind::Sampled)
            })?;
            Ok(())
        },
    )
    .unwrap();
}
