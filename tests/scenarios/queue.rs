//! The queue on disk: killed at random moments, on a full filesystem, and on one that fails.
//!
//! `VIRTFLEET_QUEUE_KILLS` says how many kills there are.

use std::{collections::BTreeSet, env, path::Path, thread, time::Duration};

use anyhow::{Context as _, Result, ensure};
use virtfleet_queue::Queue;
use virtfleet_tests::{
    bins,
    loops::{self, Loop},
    process::Launch,
    queue::{number_of, settings},
    scratch, skip, wait,
};

const TIER: u8 = 2;
/// How many kills there are, unless the environment variable gives a number.
const USUAL_KILLS: u64 = 40;
const SOON: Duration = Duration::from_mins(1);

/// What all processes together reported.
#[derive(Default)]
struct Reported {
    /// Number of the next body.
    next: u64,
    acknowledged: BTreeSet<u64>,
    /// Returned as the oldest record, and perhaps acknowledged.
    maybe: Option<u64>,
}

impl Reported {
    /// Takes in the output of one process. Each front is the oldest record that is not
    /// acknowledged. A kill may cut the last line off, which then counts as not reported.
    fn read(&mut self, log: &str) -> Result<()> {
        let lines = log.split_inclusive('\n');
        for line in lines.filter(|line| line.ends_with('\n')) {
            let (what, number) = line.trim_end().split_once(' ').with_context(|| line.to_owned())?;
            let number: u64 = number.parse().with_context(|| line.to_owned())?;
            match what {
                "appended" => self.next = number + 1,
                "front" => {
                    ensure!(
                        self.oldest()?.contains(&number),
                        "{number} instead of {:?}",
                        self.oldest()
                    );
                    self.settle(number);
                    self.maybe = Some(number);
                }
                "acknowledged" => {
                    self.acknowledged.insert(number);
                    self.maybe = None;
                }
                "synced" => {}
                _ => anyhow::bail!("unexpected output: {line}"),
            }
        }
        Ok(())
    }

    /// What the oldest record may be: the acknowledgement before a kill may have been in time.
    fn oldest(&self) -> Result<Vec<u64>> {
        let first = self.acknowledged.last().map_or(0, |last| last + 1);
        ensure!(
            self.acknowledged.len() as u64 == first,
            "a gap in {:?}",
            self.acknowledged
        );
        Ok(match self.maybe {
            Some(maybe) => vec![maybe, maybe + 1],
            None => vec![first],
        })
    }

    /// The oldest record is this one: that decides about the one before.
    fn settle(&mut self, oldest: u64) {
        if let Some(maybe) = self.maybe.take()
            && maybe < oldest
        {
            self.acknowledged.insert(maybe);
        }
    }
}

/// Kills a process that works on the queue, at a random moment; checks what the next one finds.
fn kill_often(folder: &Path, logs: &Path, kills: u64) -> Result<u64> {
    let mut rng = fastrand::Rng::with_seed(22);
    let mut reported = Reported::default();
    for round in 0..kills {
        let process = Launch::new(bins::queue_stage()?)
            .arg("work")
            .arg(folder)
            .args([reported.next.to_string(), round.to_string()])
            .start(logs)?;
        wait::until(SOON, "output", || !process.log().is_empty())?;
        thread::park_timeout(Duration::from_micros(rng.u64(..40_000)));
        process.signal(nix::sys::signal::Signal::SIGKILL)?;
        let mut process = process;
        let status = process.wait(SOON)?;
        ensure!(status.code().is_none(), "{status}:\n{}", process.log());
        reported
            .read(&process.log())
            .with_context(|| format!("round {round}"))?;

        let (mut queue, recovery) = Queue::open(folder, settings(), std::time::SystemTime::now())?;
        ensure!(
            recovery.dropped.is_empty() && recovery.corrupt_bytes == 0,
            "{recovery:?}"
        );
        let oldest = match queue.front()? {
            Some(record) => number_of(&record)?,
            // The record whose append was not reported, if it was written, is counted from here on.
            None => reported
                .oldest()?
                .into_iter()
                .max()
                .unwrap_or_default()
                .max(reported.next),
        };
        ensure!(
            reported.oldest()?.contains(&oldest) || oldest == reported.next,
            "round {round}: {oldest} instead of {:?}",
            reported.oldest()
        );
        reported.settle(oldest);
        let found = queue.status().records;
        let expected = reported.next - oldest.min(reported.next);
        ensure!(
            found == expected || found == expected + 1,
            "round {round}: {found} records, {expected} were reported"
        );
        reported.next = oldest + found;
    }
    // Every record is there, in order.
    let (mut queue, _) = Queue::open(folder, settings(), std::time::SystemTime::now())?;
    let first = reported.oldest()?;
    let mut next = None;
    while let Some(record) = queue.front()? {
        let number = number_of(&record)?;
        ensure!(
            next.map_or(first.contains(&number), |next| next == number),
            "{number} after {next:?}"
        );
        next = Some(number + 1);
        queue.acknowledge(record.id)?;
    }
    ensure!(next.is_none_or(|next| next == reported.next), "ends at {next:?}");
    Ok(reported.next)
}

#[test]
fn tier2_a_killed_process_loses_nothing_and_repeats_nothing() {
    let kills = env::var("VIRTFLEET_QUEUE_KILLS").map_or(USUAL_KILLS, |kills| kills.parse().unwrap());
    let folder = scratch::folder().unwrap();
    let records = kill_often(&folder.path().join("queue"), folder.path(), kills).unwrap();
    println!("{kills} kills, {records} records");
    assert!(records > kills, "{records}");
}

/// Runs the stage on a filesystem in a mount namespace of its own; returns its output.
fn on_filesystem(folder: &Path, mount: &str, verb: &str) -> Result<String> {
    let mount_point = folder.join("mount");
    std::fs::create_dir_all(&mount_point)?;
    let script = format!("{mount} \"$0\" && exec \"$1\" {verb} \"$0\"");
    Launch::new("unshare")
        .args(["--mount", "--propagation", "private", "--", "sh", "-c", &script])
        .arg(&mount_point)
        .arg(bins::queue_stage()?)
        .text(SOON)
}

#[test]
fn tier2_a_full_filesystem_refuses_the_newest_record() {
    let test = "tier2_a_full_filesystem_refuses_the_newest_record";
    if skip::need(TIER, test, skip::root().and_then(|()| loops::needs()))
        .unwrap()
        .is_none()
    {
        return;
    }
    let folder = scratch::folder().unwrap();
    let tmpfs = on_filesystem(folder.path(), "mount -t tmpfs -o size=1m tmpfs", "full").unwrap();
    assert!(tmpfs.contains("records "), "{tmpfs}");
    let disk = ext4(folder.path()).unwrap();
    let mount = format!("mount {}", disk.node().display());
    let ext4 = on_filesystem(folder.path(), &mount, "full").unwrap();
    assert!(ext4.contains("records "), "{ext4}");
}

fn ext4(folder: &Path) -> Result<Loop> {
    let disk = Loop::blank(folder, "ext4", 8 << 20)?;
    Launch::new("mkfs.ext4").arg("-q").arg(disk.node()).text(SOON)?;
    Ok(disk)
}

#[test]
fn tier2_a_filesystem_that_failed_can_be_read() {
    let test = "tier2_a_filesystem_that_failed_can_be_read";
    if skip::need(TIER, test, skip::root().and_then(|()| loops::needs()))
        .unwrap()
        .is_none()
    {
        return;
    }
    let folder = scratch::folder().unwrap();
    let disk = ext4(folder.path()).unwrap();
    let mount = format!("mount {}", disk.node().display());
    let output = on_filesystem(folder.path(), &mount, "aborted").unwrap();
    assert!(output.contains("read-only"), "{output}");
}

#[test]
fn tier2_an_idle_queue_costs_little() {
    let folder = scratch::folder().unwrap();
    let stage = Launch::new(bins::queue_stage().unwrap())
        .arg("idle")
        .arg(folder.path());
    let output = stage.arg("500").text(SOON).unwrap();
    let words: Vec<u64> = output
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    println!("{output}");
    assert!(words[0] <= 4096, "bytes of memory for each queue: {output}");
    assert!(words[1] <= 501, "open files: {output}");
}
