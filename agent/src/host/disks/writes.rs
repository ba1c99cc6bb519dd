//! Reads the write counters of a disk.

use std::{
    fs::File,
    io, thread,
    time::{Duration, Instant},
};

use virtfleet_agent_core::disks::{DeviceId, WriteCounters, WriteMark};

use super::facts::{block, line, number};
use crate::host::{Roots, read_text};

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
    let folder = block(roots, &id.name);
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
    let counts = number(&folder.join("queue/iostats")) == Some(1);
    let counters = line(&folder.join("stat")).and_then(|text| WriteCounters::parse(&text));
    Ok(WriteMark {
        boot_id: boot_id(roots),
        diskseq: number(&folder.join("diskseq")),
        counters: counters.filter(|_| counts && settled),
    })
}

/// The kernel's identifier of this boot; empty when it cannot be read.
pub(super) fn boot_id(roots: &Roots) -> String {
    let text = read_text(&roots.proc("sys/kernel/random/boot_id"), 100).unwrap_or_default();
    text.trim().to_owned()
}
