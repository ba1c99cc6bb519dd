//! Runs a queue in a process of its own, which a scenario kills or puts on a small filesystem.
//!
//! ```text
//! queue-stage work FOLDER FIRST SEED  appends, reads, acknowledges and syncs until it is killed;
//!                                     FIRST is the number of the first body; prints what it did
//! queue-stage full FOLDER             fills the filesystem of the folder, and checks what is left
//! queue-stage aborted FOLDER          makes the filesystem read-only after an error, and checks
//! queue-stage idle FOLDER COUNT       opens idle queues; prints memory and open files of each
//! ```

use std::{
    fs,
    io::Write as _,
    path::Path,
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result, bail, ensure};
use virtfleet_queue::{Queue, QueueError, QueueSettings};
use virtfleet_tests::{
    process::Launch,
    queue::{body, head, number_of, settings},
};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["work", folder, first, seed] => work(Path::new(folder), first.parse()?, seed.parse()?),
        ["full", folder] => full(Path::new(folder)),
        ["aborted", folder] => aborted(Path::new(folder)),
        ["idle", folder, count] => idle(Path::new(folder), count.parse()?),
        _ => bail!("usage: queue-stage work|full|aborted|idle FOLDER …"),
    }
}

fn open(folder: &Path) -> Result<Queue> {
    let (queue, recovery) = Queue::open(folder, settings(), SystemTime::now())?;
    ensure!(recovery.dropped.is_empty(), "{recovery:?}");
    Ok(queue)
}

/// Prints one line in one write, so that a kill leaves none in part.
fn say(what: &str, number: u64) -> Result<()> {
    let line = format!("{what} {number}\n");
    std::io::stdout().write_all(line.as_bytes())?;
    Ok(())
}

fn work(folder: &Path, first: u64, seed: u64) -> Result<()> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut queue = open(folder)?;
    let mut next = first;
    loop {
        match rng.u8(..16) {
            0..=7 => {
                queue.append(head(next), &body(next), SystemTime::now())?;
                say("appended", next)?;
                next += 1;
            }
            8..=14 => {
                if let Some(record) = queue.front()? {
                    let number = number_of(&record)?;
                    say("front", number)?;
                    queue.acknowledge(record.id)?;
                    say("acknowledged", number)?;
                }
            }
            _ => {
                queue.sync()?;
                say("synced", next)?;
            }
        }
    }
}

/// Appends until the disk is full; returns the number of the next body.
fn fill(queue: &mut Queue, mut next: u64) -> Result<u64> {
    loop {
        match queue.append(head(next), &body(next), SystemTime::now()) {
            Ok(dropped) => ensure!(dropped.is_empty(), "{dropped:?}"),
            Err(QueueError::DiskFull { .. }) => return Ok(next),
            Err(error) => return Err(error.into()),
        }
        next += 1;
        ensure!(next < 100_000, "the filesystem has no end");
    }
}

/// Reads everything; it is the bodies before `end`, in order.
fn drain(queue: &mut Queue, end: u64, acknowledge: bool) -> Result<()> {
    for expected in 0..end {
        let record = queue
            .front()?
            .with_context(|| format!("body {expected} is missing"))?;
        ensure!(number_of(&record)? == expected, "not body {expected}");
        let acknowledged = queue.acknowledge(record.id);
        ensure!(acknowledged.is_ok() || !acknowledge, "{acknowledged:?}");
    }
    ensure!(queue.front()?.is_none(), "more than {end} bodies");
    Ok(())
}

fn full(folder: &Path) -> Result<()> {
    let ballast = folder.join("ballast");
    let queue_folder = folder.join("queue");
    let mut queue = open(&queue_folder)?;
    fs::write(&ballast, vec![1; 200_000])?;
    let mut next = fill(&mut queue, 0)?;
    // Each further record is refused, and nothing that was accepted is lost.
    for _ in 0..10 {
        ensure!(fill(&mut queue, next)? - next < 40, "there was room");
    }
    ensure!(queue.status().records >= next, "{:?}", queue.status());
    next = queue.status().records;
    queue.sync()?;
    drop(queue);
    let mut queue = open(&queue_folder)?;
    ensure!(queue.status().records == next, "{:?}", queue.status());
    // Another program removes its file.
    fs::remove_file(&ballast)?;
    let more = fill(&mut queue, next)?;
    ensure!(more > next, "there is no room");
    drain(&mut queue, more, true)?;
    say("records", more)
}

fn aborted(folder: &Path) -> Result<()> {
    let mut queue = open(&folder.join("queue"))?;
    for next in 0..100 {
        queue.append(head(next), &body(next), SystemTime::now())?;
    }
    queue.sync()?;
    // What ext4 does after an error of its disk.
    let remount = Launch::new("mount").args(["-o", "remount,abort"]).arg(folder);
    remount.output(Duration::from_secs(20))?;
    let refused = queue.append(head(100), &body(100), SystemTime::now());
    let refused = refused.err().context("appended to a filesystem that failed")?;
    drain(&mut queue, 100, false)?;
    println!("refused: {refused}");
    ensure!(
        matches!(refused, QueueError::ReadOnly { .. }),
        "not an error of a read-only filesystem: {refused}"
    );
    Ok(())
}

/// Resident memory of this process in KiB, and its open files.
fn usage() -> Result<(u64, usize)> {
    let status = fs::read_to_string("/proc/self/status")?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident = resident.and_then(|rest| rest.split_ascii_whitespace().next());
    let files = fs::read_dir("/proc/self/fd")?.count();
    Ok((resident.context("no VmRSS")?.parse()?, files))
}

fn idle(folder: &Path, count: usize) -> Result<()> {
    let settings = QueueSettings::new(1 << 30, Duration::from_hours(1));
    let now = SystemTime::now();
    let mut queues = Vec::with_capacity(count);
    let before = usage()?;
    for index in 0..count {
        let (mut queue, _) = Queue::open(&folder.join(format!("tenant-{index}")), settings, now)?;
        for number in 0..4 {
            queue.append(head(number), &body(number), now)?;
        }
        while let Some(record) = queue.front()? {
            queue.acknowledge(record.id)?;
        }
        queue.expire(now + Duration::from_mins(2));
        queues.push(queue);
    }
    let after = usage()?;
    println!(
        "memory {} files {}",
        (after.0.saturating_sub(before.0) << 10) / count as u64,
        after.1 - before.1
    );
    ensure!(
        queues.iter().all(|queue| queue.status().segments == 0),
        "a segment is left"
    );
    Ok(())
}
