//! Reads the write counters of a disk.

use std::{
    fs::File,
    io,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use virtfleet_agent_core::disks::{DeviceId, WriteCounters, WriteMark};

use super::facts::{block, folder, line, number, partition_folder, partitions};
use crate::{Roots, read_text};

/// How long writes that are under way may take to complete. Those that take longer make the counters unusable.
const IN_FLIGHT: Duration = Duration::from_secs(2);

/// The write counters of an open disk.
///
/// Dirty pages of the disk are written out first (fsync(2) of the device), so that a write that a process has made is counted. A request is counted
/// when it completes, so requests under way are waited for. It may wait for the device: call it where that holds up nobody.
///
/// # Errors
/// When the dirty pages cannot be written out.
pub(super) fn mark(roots: &Roots, id: &DeviceId, file: &File) -> io::Result<WriteMark> {
    file.sync_all()?;
    let folder = folder(roots, id);
    let disk = block(roots, id.disk());
    let begun = Instant::now();
    // `inflight` has the reads and the writes under way (Documentation/ABI/stable/sysfs-block).
    let settled = loop {
        let writes = line(&folder.join("inflight"))
            .and_then(|text| text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok());
        match writes {
            Some(0) => break true,
            None => break false,
            Some(_) if begun.elapsed() >= IN_FLIGHT => break false,
            Some(_) => {
                #[expect(
                    clippy::disallowed_methods,
                    reason = "the reader's own thread; sysfs signals nothing"
                )]
                thread::sleep(Duration::from_millis(5));
            }
        }
    };
    let counts = number(&disk.join("queue/iostats")) == Some(1);
    let counters = match &id.partition {
        None => stat(&folder),
        Some(partition) => without_neighbours(roots, &partition.disk, &id.name),
    };
    Ok(WriteMark {
        boot_id: boot_id(roots),
        diskseq: number(&disk.join("diskseq")),
        counters: counters.filter(|_| counts && settled),
    })
}

fn stat(folder: &Path) -> Option<WriteCounters> {
    WriteCounters::parse(&line(&folder.join("stat"))?)
}

/// What was written to a partition: the counters of its disk without those of all other partitions.
/// The partition's own counters would miss what is written through the disk's node. None while the
/// neighbours are written to all the time.
fn without_neighbours(roots: &Roots, disk: &str, partition: &str) -> Option<WriteCounters> {
    const TRIES: usize = 10;
    let neighbours = || -> Option<WriteCounters> {
        let names = partitions(roots, disk).into_iter().map(|(name, _)| name);
        let mut sum = WriteCounters {
            written: 0,
            discarded: 0,
        };
        for name in names.filter(|name| name != partition) {
            let one = stat(&partition_folder(roots, disk, &name))?;
            sum.written += one.written;
            sum.discarded += one.discarded;
        }
        Some(sum)
    };
    for _ in 0..TRIES {
        let before = neighbours()?;
        let all = stat(&block(roots, disk))?;
        if neighbours()? == before {
            return Some(WriteCounters {
                written: all.written.checked_sub(before.written)?,
                discarded: all.discarded.checked_sub(before.discarded)?,
            });
        }
    }
    None
}

/// The kernel's identifier of this boot; empty when it cannot be read.
pub(super) fn boot_id(roots: &Roots) -> String {
    let text = read_text(&roots.proc("sys/kernel/random/boot_id"), 100).unwrap_or_default();
    text.trim().to_owned()
}
