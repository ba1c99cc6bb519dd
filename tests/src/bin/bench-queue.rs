//! `make bench-queue`: the queue on disk beside a plain file with the same bytes and syncs.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use virtfleet_queue::{Queue, QueueSettings, RecordHead};
use virtfleet_tests::measure::usage::written;

/// Measure the queue on disk beside a plain file.
#[derive(Debug, Parser)]
struct Arguments {
    /// Records.
    #[arg(long, default_value_t = 20_000)]
    records: usize,
    /// Bytes of each record.
    #[arg(long, default_value_t = 20_000)]
    bytes: usize,
    /// Records between two syncs.
    #[arg(long, default_value_t = 50)]
    sync: usize,
    /// Folder on the disk to measure; a temporary one if left out.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Rounds; the fastest one of each counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// Times of one round.
struct Times {
    write: Duration,
    read: Duration,
}

impl Times {
    fn fastest(self, other: Option<Self>) -> Self {
        let other = other.unwrap_or(Self {
            write: Duration::MAX,
            read: Duration::MAX,
        });
        Self {
            write: self.write.min(other.write),
            read: self.read.min(other.read),
        }
    }
}

fn plain(folder: &Path, arguments: &Arguments, body: &[u8]) -> Result<Times> {
    let path = folder.join("plain");
    let begun = Instant::now();
    let mut file = File::create(&path)?;
    for record in 1..=arguments.records {
        file.write_all(body)?;
        if record % arguments.sync == 0 {
            file.sync_data()?;
        }
    }
    file.sync_data()?;
    let write = begun.elapsed();
    let begun = Instant::now();
    let mut file = File::open(&path)?;
    let mut buffer = vec![0; body.len()];
    for _ in 0..arguments.records {
        file.read_exact(&mut buffer)?;
    }
    let read = begun.elapsed();
    fs::remove_file(&path)?;
    Ok(Times { write, read })
}

fn queue(folder: &Path, arguments: &Arguments, body: &[u8]) -> Result<Times> {
    let folder = folder.join("queue");
    let settings = QueueSettings::new(u64::MAX >> 1, Duration::from_hours(24));
    let now = SystemTime::now();
    let head = RecordHead {
        samples: 1000,
        oldest_ms: 0,
        newest_ms: i64::MAX,
        kind: 0,
    };
    let begun = Instant::now();
    let (mut queue, _) = Queue::open(&folder, settings, now)?;
    for record in 1..=arguments.records {
        queue.append(head, body, now)?;
        if record % arguments.sync == 0 {
            queue.sync()?;
        }
    }
    queue.sync()?;
    let write = begun.elapsed();
    let begun = Instant::now();
    let mut records = 0;
    while let Some(record) = queue.front()? {
        queue.acknowledge(record.id)?;
        records += 1;
    }
    let read = begun.elapsed();
    ensure!(records == arguments.records, "{records} records");
    fs::remove_dir_all(&folder)?;
    Ok(Times { write, read })
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let temporary = tempfile::tempdir()?;
    let folder = arguments.folder.as_deref().unwrap_or(temporary.path());
    let body: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..))
        .take(arguments.bytes)
        .collect();
    let appended = (arguments.records * arguments.bytes) as u64;
    let (mut plain_times, mut queue_times) = (None, None);
    let (mut plain_bytes, mut queue_bytes) = (0, 0);
    let id = std::process::id();
    for _ in 0..arguments.rounds {
        let before = written(id)?;
        plain_times = Some(plain(folder, &arguments, &body)?.fastest(plain_times));
        let between = written(id)?;
        queue_times = Some(queue(folder, &arguments, &body)?.fastest(queue_times));
        plain_bytes += between - before;
        queue_bytes += written(id)? - between;
    }
    let (plain, queue) = plain_times.zip(queue_times).context("no rounds")?;
    let rate = |time: Duration| appended as f64 / 1e6 / time.as_secs_f64();
    println!(
        "{} records of {} bytes, a sync after each {}",
        arguments.records, arguments.bytes, arguments.sync
    );
    println!("{:<28} {:>10} {:>10} {:>8}", "MB/s", "plain", "queue", "ratio");
    for (name, plain, queue) in [
        ("append and sync", plain.write, queue.write),
        ("read and acknowledge", plain.read, queue.read),
    ] {
        let ratio = plain.as_secs_f64() / queue.as_secs_f64();
        println!(
            "{name:<28} {:>10.0} {:>10.0} {ratio:>8.2}",
            rate(plain),
            rate(queue)
        );
    }
    let all = (appended * arguments.rounds as u64) as f64;
    println!(
        "{:<28} {:>10.3} {:>10.3}",
        "disk bytes per byte appended",
        plain_bytes as f64 / all,
        queue_bytes as f64 / all
    );
    Ok(())
}
