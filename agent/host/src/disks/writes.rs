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

/// Maximum time for writes in flight to complete. Longer ones make the counters inconclusive.
const IN_FLIGHT_TIMEOUT: Duration = Duration::from_secs(2);

/// The write counters of an open disk.
///
/// Dirty pages of the disk are written out first (fsync(2) of the device), so that every write of a
/// process is counted. A request is counted when it completes, so this waits for requests in
/// flight. It may block on the device: call it in a thread that may block.
///
/// # Errors
/// The dirty pages cannot be written out.
pub(super) fn mark(roots: &Roots, id: &DeviceId, file: &File) -> io::Result<WriteMark> {
    file.sync_all()?;
    let folder = folder(roots, id);
    let disk = block(roots, id.disk());
    let begun = Instant::now();
    // `inflight` has the reads and writes in flight (Documentation/ABI/stable/sysfs-block).
    let settled = loop {
        let writes = line(&folder.join("inflight"))
            .and_then(|text| text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok());
        match writes {
            Some(0) => break true,
            None => break false,
            Some(_) if begun.elapsed() >= IN_FLIGHT_TIMEOUT => break false,
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

/// Writes to a partition: the counters of its disk minus those of all other partitions. The
/// partition's own counters do not include writes through the disk's node. `None` if the neighbors
/// are written to continuously.
fn without_neighbours(roots: &Roots, disk: &str, partition: &str) -> Option<WriteCounters> {
    const MAX_ATTEMPTS: usize = 10;
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
    for _ in 0..MAX_ATTEMPTS {
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

/// Boot id of this boot; empty if it cannot be read.
pub(super) fn boot_id(roots: &Roots) -> String {
    let text = read_text(&roots.proc("sys/kernel/random/boot_id"), 100).unwrap_or_default();
    text.trim().to_owned()
}
