//! Reads a device in a separate thread: a device that does not respond costs a deadline, not the
//! whole run.
//!
//! ```text
//! thread: lock ▶ exclusive open ▶ identity check ▶ read, read, read … ▶ returns the open files
//!         └──────┴────────────────┴────────────────┴── one message each ──▶ caller (deadlines)
//! ```
//!
//! A thread that hangs in the kernel is abandoned: its next message has no receiver, so the thread
//! ends and closes its files.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant},
};

use virtfleet_agent_core::disks::{DeviceId, Doubt, Region, regions};
use virtfleet_runtime::digest::Sha256;

pub(super) use super::{
    held::Held,
    read_failure::{Failure, doubt},
    reader_message::{Bytes, FurtherRead, Message, Order, send},
};
use super::{held::LastClose, identity, open_locked::open, writes};
use crate::Roots;

/// Alignment of buffers, offsets and lengths of direct reads; sufficient for every device.
const ALIGNMENT_BYTES: usize = 4096;
/// Bytes per read.
pub(super) const CHUNK_BYTES: usize = 1 << 20;

/// Bytes per read of a timed proof.
#[expect(clippy::cast_possible_truncation, reason = "4 MiB")]
const BLOCK_BYTES: usize = regions::BLOCK_BYTES as usize;

/// Time limits of a probe. blkid has its own deadline (a minute).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// To acquire the lock that another process may hold, e.g. udev or a cooperating formatter.
    pub lock: Duration,
    /// For one read of at most 1 MiB, or one other call to the device.
    pub read: Duration,
    /// For all reads of a sampled proof. A full proof gets one additional second per 16 MiB of the
    /// disk.
    pub all: Duration,
    /// Read time of a timed proof, from its first read on.
    pub budget: Duration,
}

impl Default for Limits {
    /// The kernel gives up a SCSI command after 30 s, a virtio one never. A healthy disk is read in
    /// a second. A disk that needs more than a minute must not use up the five minutes that all
    /// disks have at boot.
    fn default() -> Self {
        Self {
            lock: Duration::from_secs(10),
            read: Duration::from_secs(40),
            all: Duration::from_mins(1),
            budget: Duration::from_secs(20),
        }
    }
}

/// A running reader thread.
pub(super) struct Reader {
    messages: Receiver<Message>,
    path: PathBuf,
    limits: Limits,
    /// Deadline of the first message.
    first: Duration,
}

impl Reader {
    /// Locks and opens the device and reads the regions.
    pub(super) fn start(order: Order, regions: Vec<Region>, limits: Limits) -> Result<Self, Doubt> {
        let path = order.path.clone();
        Self::spawn(path, limits, limits.lock, move |sender| {
            let held = open(&order, sender)?;
            let file = held.exclusive.as_ref().unwrap_or(&held.lock);
            let bytes = read(file, &regions, sender)?;
            // The device must still be the same after all reads.
            identity::check(file, &order.id)
                .and_then(|()| identity::check_path(&order.path, &order.id))
                .map_err(|error| Failure::Doubt(doubt(format!("{} {error}", order.path.display()), true)))?;
            Ok((held, bytes))
        })
    }

    /// Reads the regions of a device that is already open.
    pub(super) fn again(
        held: Held,
        path: &Path,
        regions: Vec<Region>,
        limits: Limits,
    ) -> Result<Self, Doubt> {
        Self::spawn(path.to_owned(), limits, limits.read, move |sender| {
            let file = held.exclusive.as_ref().unwrap_or(&held.lock);
            let bytes = read(file, &regions, sender)?;
            Ok((held, bytes))
        })
    }

    /// Reads an open device beyond the regions of every proof.
    pub(super) fn further(held: Held, path: &Path, further: Further, limits: Limits) -> Result<Self, Doubt> {
        Self::spawn(path.to_owned(), limits, limits.read, move |sender| {
            let file = held.exclusive.as_ref().unwrap_or(&held.lock);
            let further = read_further(file, further, sender)?;
            let bytes = Bytes {
                further,
                ..Bytes::default()
            };
            Ok((held, bytes))
        })
    }

    /// Takes the write counters of an open device into [`Held::mark`], after writing out the dirty
    /// pages of processes.
    pub(super) fn mark(
        mut held: Held,
        path: &Path,
        roots: &Roots,
        id: &DeviceId,
        limits: Limits,
    ) -> Result<Self, Doubt> {
        let (node, roots, id) = (path.to_owned(), roots.clone(), id.clone());
        Self::spawn(path.to_owned(), limits, limits.read, move |_| {
            if let Some(LastClose(Some(disk))) = &held.whole {
                disk.sync_all().map_err(|error| {
                    Failure::Doubt(doubt(
                        format!("cannot write out the disk of {}: {error}", node.display()),
                        false,
                    ))
                })?;
            }
            let file = held.exclusive.as_ref().unwrap_or(&held.lock);
            held.mark = writes::mark(&roots, &id, file).map_err(|error| {
                Failure::Doubt(doubt(
                    format!("cannot write out {}: {error}", node.display()),
                    false,
                ))
            })?;
            Ok((held, Bytes::default()))
        })
    }

    pub(super) fn spawn(
        path: PathBuf,
        limits: Limits,
        first: Duration,
        work: impl FnOnce(&SyncSender<Message>) -> Result<(Held, Bytes), Failure> + Send + 'static,
    ) -> Result<Self, Doubt> {
        let (sender, messages) = sync_channel(0);
        let run = move || {
            let last = match work(&sender) {
                Ok(done) => Message::Done(Box::new(done)),
                Err(Failure::Doubt(doubt)) => Message::Failed(doubt),
                Err(Failure::CallerGone) => return,
            };
            // If the caller has given up, this drops and thereby releases the device.
            drop(sender.send(last));
        };
        thread::Builder::new()
            .name("disk-read".to_owned())
            .spawn(run)
            .map_err(|error| {
                doubt(
                    format!("cannot start a thread to read {}: {error}", path.display()),
                    true,
                )
            })?;
        Ok(Self {
            messages,
            path,
            limits,
            first,
        })
    }

    /// Waits for the thread. `progress` receives the bytes read so far.
    pub(super) fn wait(self, all: Duration, progress: &mut dyn FnMut(u64)) -> Result<(Held, Bytes), Doubt> {
        let begun = Instant::now();
        let mut timeout = self.first;
        let mut at = "does not respond, or another process holds its lock".to_owned();
        loop {
            let left = all.saturating_sub(begun.elapsed());
            match self.messages.recv_timeout(timeout.min(left)) {
                Ok(Message::Locked) => "open did not return".clone_into(&mut at),
                Ok(Message::Opened) => "does not respond to the first read".clone_into(&mut at),
                Ok(Message::Read(bytes)) => {
                    at = format!("does not respond after {bytes} bytes");
                    progress(bytes);
                }
                Ok(Message::Done(done)) => return Ok(*done),
                Ok(Message::Failed(doubt)) => return Err(doubt),
                Err(RecvTimeoutError::Timeout) => {
                    let waited = begun.elapsed().as_secs_f32();
                    let path = self.path.display();
                    return Err(doubt(format!("{path} {at}; given up after {waited:.1} s"), true));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(doubt(
                        format!("the thread that reads {} has ended", self.path.display()),
                        false,
                    ));
                }
            }
            timeout = self.limits.read;
        }
    }
}

/// Buffer for a chunk, aligned for direct reads.
pub(super) struct Aligned {
    room: Vec<u8>,
    start: usize,
}

impl Aligned {
    pub(super) fn new() -> Self {
        Self::of(CHUNK_BYTES)
    }
    fn of(bytes: usize) -> Self {
        let room = vec![0; bytes + ALIGNMENT_BYTES];
        let start = room.as_ptr().align_offset(ALIGNMENT_BYTES).min(ALIGNMENT_BYTES);
        Self { room, start }
    }
    pub(super) fn chunk(&mut self, length: usize) -> &mut [u8] {
        &mut self.room[self.start..self.start + length]
    }
}

/// What to read beyond the regions of every proof.
pub(super) struct Further {
    /// Size of the device in bytes.
    pub(super) size: u64,
    /// Regions that were already read, all zero.
    pub(super) before: Vec<Region>,
    /// Time to stop.
    pub(super) until: Instant,
}

/// Reads the blocks of [`regions::blocks`] until the time is over or a byte is not zero.
fn read_further(file: &File, further: Further, sender: &SyncSender<Message>) -> Result<FurtherRead, Failure> {
    let mut buffer = Aligned::of(BLOCK_BYTES);
    let zeros = vec![0; BLOCK_BYTES];
    let mut read = FurtherRead {
        regions: further.before,
        first: None,
    };
    let mut bytes: u64 = read.regions.iter().map(|region| region.length).sum();
    for block in regions::blocks(further.size) {
        if Instant::now() >= further.until {
            break;
        }
        let length = usize::try_from(block.length)
            .unwrap_or(BLOCK_BYTES)
            .min(BLOCK_BYTES);
        let chunk = buffer.chunk(length);
        read_all(file, chunk, block.offset)?;
        if chunk != &zeros[..length] {
            let place = chunk.iter().position(|byte| *byte != 0).unwrap_or_default();
            read.first = Some(block.offset + place as u64);
            break;
        }
        read.regions.push(block);
        bytes += block.length;
        send(sender, Message::Read(bytes.min(further.size)))?;
    }
    read.regions = regions::merged(read.regions);
    Ok(read)
}

fn read(file: &File, regions: &[Region], sender: &SyncSender<Message>) -> Result<Bytes, Failure> {
    let mut buffer = Aligned::new();
    let zeros = vec![0; CHUNK_BYTES];
    let mut digest = Sha256::default();
    let mut bytes = Bytes::default();
    for (offset, length) in chunks(regions) {
        let chunk = buffer.chunk(length);
        read_all(file, chunk, offset)?;
        if chunk != &zeros[..length] {
            let place = chunk.iter().position(|byte| *byte != 0).unwrap_or_default();
            bytes.first.get_or_insert(offset + place as u64);
            digest.update(&offset.to_le_bytes());
            digest.update(&(length as u64).to_le_bytes());
            digest.update(chunk);
        }
        if bytes.read == 0 {
            bytes.head = chunk.to_vec();
        }
        bytes.tail = chunk[length.saturating_sub(64 << 10)..].to_vec();
        bytes.read += length as u64;
        send(sender, Message::Read(bytes.read))?;
    }
    bytes.digest = digest.hex();
    Ok(bytes)
}

/// Splits the regions into pieces of at most a chunk.
pub(super) fn chunks(regions: &[Region]) -> impl DoubleEndedIterator<Item = (u64, usize)> {
    regions.iter().flat_map(|region| {
        let count = region.length.div_ceil(CHUNK_BYTES as u64);
        (0..count).map(move |index| {
            let begin = index * CHUNK_BYTES as u64;
            let length = (region.length - begin).min(CHUNK_BYTES as u64);
            (
                region.offset + begin,
                usize::try_from(length).unwrap_or(CHUNK_BYTES),
            )
        })
    })
}

/// Fills the chunk from that offset. A device that ends before is an error.
pub(super) fn read_all(file: &File, chunk: &mut [u8], offset: u64) -> Result<(), Failure> {
    let mut done = 0;
    while done < chunk.len() {
        let place = offset + done as u64;
        match file.read_at(&mut chunk[done..], place) {
            Ok(0) => {
                let reason =
                    format!("a read at byte {place} returned no data: the device is shorter than expected");
                return Err(Failure::Doubt(doubt(reason, false)));
            }
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                return Err(Failure::Doubt(doubt(
                    format!("read error at byte {place}: {error}"),
                    false,
                )));
            }
        }
    }
    Ok(())
}
