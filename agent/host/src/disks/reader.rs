//! Reads a device in a thread of its own, so that one that does not answer costs a deadline and not the program.
//!
//! ```text
//! thread: lock ▶ exclusive open ▶ is it the device ▶ read, read, read … ▶ hands the open files over
//!           └──────────┴──────────────────┴────────────┴── one message each ──▶ caller, who waits so long for each and no longer
//! ```
//!
//! A thread that hangs in the kernel is left behind: its next message finds nobody, and it ends and closes what it holds.

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

pub(super) use super::held::Held;
use super::{
    held::{Last, open},
    identity, writes,
};
use crate::Roots;

/// What direct reads need buffers, places and lengths to be multiples of, on every device that there is.
const ALIGNMENT: usize = 4096;
/// How much is read at once.
pub(super) const CHUNK: usize = 1 << 20;

/// How much is read at once while there is time.
#[expect(clippy::cast_possible_truncation, reason = "4 MiB")]
const BLOCK: usize = regions::BLOCK_BYTES as usize;

/// How long a look may take, blkid's own deadline (a minute) aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// For the lock that another process holds, e.g. udev or a formatter that plays by the rules.
    pub lock: Duration,
    /// For one read of at most 1 MiB, or one other call to the device.
    pub read: Duration,
    /// For all reads of a sampled proof. A full one may take a second more for each 16 MiB of the disk.
    pub all: Duration,
    /// How long a proof by time reads, from its first read on.
    pub budget: Duration,
}

impl Default for Limits {
    /// A SCSI command is given up by the kernel after 30 s; a virtio one never. A healthy disk is read in a second, and one that needs more
    /// than a minute must not cost the others the boot's five.
    fn default() -> Self {
        Self {
            lock: Duration::from_secs(10),
            read: Duration::from_secs(40),
            all: Duration::from_mins(1),
            budget: Duration::from_secs(20),
        }
    }
}

/// What is in what was read.
#[derive(Debug, Default)]
pub(super) struct Bytes {
    /// How many bytes were read.
    pub(super) read: u64,
    /// Where the first one is that is not zero.
    pub(super) first: Option<u64>,
    /// SHA-256, in hex, of place, length and content of each MiB (or what is left of one) that is not all zero.
    pub(super) digest: String,
    /// The first chunk.
    pub(super) head: Vec<u8>,
    /// The last 64 KiB or less.
    pub(super) tail: Vec<u8>,
    /// The first one outside of the regions of every proof.
    pub(super) apart: Option<u64>,
    /// What [`Reader::further`] has read.
    pub(super) further: FurtherRead,
}

impl Bytes {
    /// Adds what was found in a MiB that is read apart from the regions: the digest covers both.
    pub(super) fn and_apart(&mut self, found: &Self) {
        let mut digest = Sha256::default();
        digest.update(self.digest.as_bytes());
        digest.update(found.digest.as_bytes());
        self.digest = digest.hex();
        self.first = self.first.into_iter().chain(found.first).min();
        self.apart = found.first;
    }
}

/// What the thread is to do.
pub(super) struct Order {
    pub(super) path: PathBuf,
    pub(super) id: DeviceId,
    /// Where sysfs is.
    pub(super) roots: Roots,
    /// Without it the device is only locked.
    pub(super) exclusive: bool,
}

pub(super) enum Message {
    Locked,
    Opened,
    Read(u64),
    Done(Box<(Held, Bytes)>),
    Failed(Doubt),
}

/// A thread at work.
pub(super) struct Reader {
    messages: Receiver<Message>,
    path: PathBuf,
    limits: Limits,
    /// How long the first message may take.
    first: Duration,
}

/// What keeps a device from being read.
pub(super) fn doubt(reason: String, passing: bool) -> Doubt {
    Doubt { reason, passing }
}

impl Reader {
    /// Locks and opens the device, and reads the regions.
    pub(super) fn start(order: Order, regions: Vec<Region>, limits: Limits) -> Result<Self, Doubt> {
        let path = order.path.clone();
        Self::spawn(path, limits, limits.lock, move |say| {
            let held = open(&order, say)?;
            let file = held.exclusive.as_ref().unwrap_or(&held.lock);
            let bytes = read(file, &regions, say)?;
            // The same device still, now that all is read.
            identity::check(file, &order.id)
                .and_then(|()| identity::check_path(&order.path, &order.id))
                .map_err(|error| Failure::Doubt(doubt(format!("{} {error}", order.path.display()), true)))?;
            Ok((held, bytes))
        })
    }

    /// Reads the regions of a device that is open already.
    pub(super) fn again(
        held: Held,
        path: &Path,
        regions: Vec<Region>,
        limits: Limits,
    ) -> Result<Self, Doubt> {
        Self::spawn(path.to_owned(), limits, limits.read, move |say| {
            let file = held.exclusive.as_ref().unwrap_or(&held.lock);
            let bytes = read(file, &regions, say)?;
            Ok((held, bytes))
        })
    }

    /// Reads a device that is open already further than every proof does.
    pub(super) fn further(held: Held, path: &Path, further: Further, limits: Limits) -> Result<Self, Doubt> {
        Self::spawn(path.to_owned(), limits, limits.read, move |say| {
            let file = held.exclusive.as_ref().unwrap_or(&held.lock);
            let further = read_further(file, further, say)?;
            let bytes = Bytes {
                further,
                ..Bytes::default()
            };
            Ok((held, bytes))
        })
    }

    /// Reads the write counters of a device that is open already into [`Held::mark`], after what processes have written to it is written out.
    pub(super) fn mark(
        mut held: Held,
        path: &Path,
        roots: &Roots,
        id: &DeviceId,
        limits: Limits,
    ) -> Result<Self, Doubt> {
        let (node, roots, id) = (path.to_owned(), roots.clone(), id.clone());
        Self::spawn(path.to_owned(), limits, limits.read, move |_| {
            if let Some(Last(Some(disk))) = &held.whole {
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
        let (say, messages) = sync_channel(0);
        let run = move || {
            let last = match work(&say) {
                Ok(done) => Message::Done(Box::new(done)),
                Err(Failure::Doubt(doubt)) => Message::Failed(doubt),
                Err(Failure::NobodyListens) => return,
            };
            // When nobody listens any more, what is held is let go by this.
            drop(say.send(last));
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

    /// Waits for the end. `progress` hears how many bytes are read.
    pub(super) fn wait(self, all: Duration, progress: &mut dyn FnMut(u64)) -> Result<(Held, Bytes), Doubt> {
        let begun = Instant::now();
        let mut patience = self.first;
        let mut at = "does not answer, or another process holds its lock".to_owned();
        loop {
            let left = all.saturating_sub(begun.elapsed());
            match self.messages.recv_timeout(patience.min(left)) {
                Ok(Message::Locked) => "does not open".clone_into(&mut at),
                Ok(Message::Opened) => "does not answer at its begin".clone_into(&mut at),
                Ok(Message::Read(bytes)) => {
                    at = format!("does not answer, after {bytes} bytes");
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
            patience = self.limits.read;
        }
    }
}

/// Why the thread ends early.
pub(super) enum Failure {
    NobodyListens,
    Doubt(Doubt),
}

pub(super) fn tell(say: &SyncSender<Message>, message: Message) -> Result<(), Failure> {
    say.send(message).map_err(|_| Failure::NobodyListens)
}

/// Room for a chunk, at an address that direct reads take.
pub(super) struct Aligned {
    room: Vec<u8>,
    start: usize,
}

impl Aligned {
    pub(super) fn new() -> Self {
        Self::of(CHUNK)
    }
    fn of(bytes: usize) -> Self {
        let room = vec![0; bytes + ALIGNMENT];
        let start = room.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { room, start }
    }
    pub(super) fn chunk(&mut self, length: usize) -> &mut [u8] {
        &mut self.room[self.start..self.start + length]
    }
}

/// What is read beyond the regions of every proof.
pub(super) struct Further {
    /// The size of the device.
    pub(super) size: u64,
    /// What was read already, all of it zero.
    pub(super) before: Vec<Region>,
    /// When to stop.
    pub(super) until: Instant,
}

/// What was read so.
#[derive(Debug, Default)]
pub(super) struct FurtherRead {
    /// All that was read by now.
    pub(super) regions: Vec<Region>,
    /// The first byte that is not zero; nothing was read after it.
    pub(super) first: Option<u64>,
}

/// Reads the blocks of [`regions::blocks`] until the time is over or a byte is not zero.
fn read_further(file: &File, further: Further, say: &SyncSender<Message>) -> Result<FurtherRead, Failure> {
    let mut buffer = Aligned::of(BLOCK);
    let zeros = vec![0; BLOCK];
    let mut read = FurtherRead {
        regions: further.before,
        first: None,
    };
    let mut bytes: u64 = read.regions.iter().map(|region| region.length).sum();
    for block in regions::blocks(further.size) {
        if Instant::now() >= further.until {
            break;
        }
        let length = usize::try_from(block.length).unwrap_or(BLOCK).min(BLOCK);
        let chunk = buffer.chunk(length);
        read_all(file, chunk, block.offset)?;
        if chunk != &zeros[..length] {
            let place = chunk.iter().position(|byte| *byte != 0).unwrap_or_default();
            read.first = Some(block.offset + place as u64);
            break;
        }
        read.regions.push(block);
        bytes += block.length;
        tell(say, Message::Read(bytes.min(further.size)))?;
    }
    read.regions = regions::merged(read.regions);
    Ok(read)
}

fn read(file: &File, regions: &[Region], say: &SyncSender<Message>) -> Result<Bytes, Failure> {
    let mut buffer = Aligned::new();
    let zeros = vec![0; CHUNK];
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
        tell(say, Message::Read(bytes.read))?;
    }
    bytes.digest = digest.hex();
    Ok(bytes)
}

/// The regions in pieces of at most a chunk.
pub(super) fn chunks(regions: &[Region]) -> impl DoubleEndedIterator<Item = (u64, usize)> {
    regions.iter().flat_map(|region| {
        let count = region.length.div_ceil(CHUNK as u64);
        (0..count).map(move |index| {
            let begin = index * CHUNK as u64;
            let length = (region.length - begin).min(CHUNK as u64);
            (region.offset + begin, usize::try_from(length).unwrap_or(CHUNK))
        })
    })
}

/// Fills the chunk from that place; a device that ends before is an error.
pub(super) fn read_all(file: &File, chunk: &mut [u8], offset: u64) -> Result<(), Failure> {
    let mut done = 0;
    while done < chunk.len() {
        let place = offset + done as u64;
        match file.read_at(&mut chunk[done..], place) {
            Ok(0) => {
                let reason = format!("a read at byte {place} gave nothing: the device ends before it should");
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
