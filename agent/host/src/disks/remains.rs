//! Reads what an interrupted tool left on a disk or in a container, and decides whether all of it
//! is from that tool ([`Remains`]).

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _},
    path::PathBuf,
    time::Duration,
};

use rustix::fs::SeekFrom;
use virtfleet_agent_core::disks::{
    DeviceId, Doubt, Left, Region, Superblock,
    clone::is_zero,
    journal::Entry,
    mkfs::{self, reference_arguments},
    regions,
    remains::Remains,
    superblock::HEAD_BYTES,
};
use virtfleet_wire::settings::ProofKind;

use super::{
    Disks, OpenContainer,
    facts::{block, number},
    ioctl,
    reader::{Aligned, Bytes, Failure, Held, Limits, Message, Reader, chunks, doubt, read_all, send},
    tools::{luks, mkfs as tool},
};
use crate::Tool;

/// Directory for references by its path in the guest: in memory, accessible only to root.
const SCRATCH: &str = "/run/virtfleet/scratch";
/// A reference needs the device's size divided by this in memory (measured with mke2fs 1.47: 5 MiB
/// for 100 GiB, 16 MiB for 1 TiB, 240 MiB for 16 TiB).
const REFERENCE_DIVISOR: u64 = 1 << 14;
/// Minimum free memory for a reference in bytes.
const MIN_REFERENCE_BYTES: u64 = 16 << 20;
/// Maximum time for the tool to create a reference (measured: 2 s for 16 TiB).
const REFERENCE_TIMEOUT: Duration = Duration::from_mins(2);
const SECTOR_BYTES: usize = 512;

/// A run of a tool that was begun and not recorded as ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct BegunRun<'a> {
    pub(super) filesystem: &'a str,
    pub(super) uuid: &'a str,
    pub(super) arguments: &'a [String],
}

impl<'a> BegunRun<'a> {
    /// The run that the entry records. `arguments` replace missing ones in an entry of an older
    /// agent.
    pub(super) fn of(entry: &'a Entry, arguments: &'a [String]) -> Self {
        Self {
            filesystem: &entry.filesystem,
            uuid: &entry.uuid,
            // The arguments of luksFormat do not describe the filesystem in the container.
            arguments: if matches!(
                entry.arguments.first().map(String::as_str),
                None | Some("luksFormat")
            ) {
                arguments
            } else {
                &entry.arguments
            },
        }
    }
}

/// Decides which bytes are from a given run.
pub(super) struct Judge {
    remains: Remains,
    pub(super) regions: Vec<Region>,
    reference: Option<Reference>,
    /// The device below a container and the container's offset on it: a sector that is zero there
    /// was never written through the container.
    below: Option<(File, u64)>,
    buffer: Aligned,
    expected: Vec<u8>,
}

impl Judge {
    /// Offset of the first byte in a piece that is not from the tool; `None` if there is none. In a
    /// container, sectors that were never written are zeroed in `piece`.
    pub(super) fn foreign(&mut self, offset: u64, piece: &mut [u8]) -> Result<Option<u64>, Failure> {
        if is_zero(piece) {
            return Ok(None);
        }
        if let Some((below, start)) = &self.below {
            let cipher = self.buffer.chunk(piece.len());
            read_all(below, cipher, start + offset)?;
            for (sector, cipher) in piece.chunks_mut(SECTOR_BYTES).zip(cipher.chunks(SECTOR_BYTES)) {
                if is_zero(cipher) {
                    sector.fill(0);
                }
            }
        }
        self.expected.clear();
        if let Some(reference) = &self.reference {
            self.expected.resize(piece.len(), 0);
            reference
                .file
                .read_exact_at(&mut self.expected, offset)
                .map_err(|error| {
                    let place = reference.path.display();
                    Failure::Doubt(doubt(format!("cannot read {place}: {error}"), true))
                })?;
        }
        Ok(self.remains.foreign(offset, piece, &self.expected))
    }
}

/// What the same tool with the same arguments writes to a file of the same size. Removed on drop.
struct Reference {
    file: File,
    path: PathBuf,
}

impl Drop for Reference {
    fn drop(&mut self) {
        fs::remove_file(&self.path).ok();
    }
}

impl Disks<'_> {
    /// Who wrote the content of a disk whose journal entry has a tool as begun but not ended.
    ///
    /// # Errors
    /// The disk cannot be read, or no reference can be created. The origin is unknown then.
    pub fn left(
        &self,
        id: &DeviceId,
        entry: &Entry,
        arguments: &[String],
        proof: ProofKind,
    ) -> Result<Left, Doubt> {
        let limits = Limits::default();
        let order = super::reader::Order {
            path: self.node(id),
            id: id.clone(),
            roots: self.roots.clone(),
            exclusive: true,
        };
        let (held, _) = Reader::start(order, Vec::new(), limits)?.wait(limits.all, &mut |_| {})?;
        let run = BegunRun::of(entry, arguments);
        Ok(self.judged(held, id, run, proof, None)?.1)
    }

    /// The same for an open container in which the filesystem was begun or nothing was written yet.
    ///
    /// # Errors
    /// As [`Self::left`].
    pub fn left_in(
        &self,
        container: &OpenContainer,
        entry: &Entry,
        arguments: &[String],
    ) -> Result<Left, Doubt> {
        let limits = Limits::default();
        let id = self.container_id(container);
        let order = super::reader::Order {
            path: self.node(&id),
            id: id.clone(),
            roots: self.roots.clone(),
            exclusive: true,
        };
        let (held, _) = Reader::start(order, Vec::new(), limits)?.wait(limits.all, &mut |_| {})?;
        let run = BegunRun::of(entry, arguments);
        Ok(self
            .judged(held, &id, run, ProofKind::Sampled, Some(container))?
            .1)
    }

    /// Reads the regions of the proof and the regions that the tool writes.
    pub(super) fn judged(
        &self,
        held: Held,
        id: &DeviceId,
        run: BegunRun<'_>,
        proof: ProofKind,
        container: Option<&OpenContainer>,
    ) -> Result<(Held, Left), Doubt> {
        let limits = Limits::default();
        let path = self.node(id);
        let start = Region {
            offset: 0,
            length: id.size.min(1 << 20),
        };
        let (held, bytes) = Reader::again(held, &path, vec![start], limits)?.wait(limits.all, &mut |_| {})?;
        let beginning = bytes.head.get(..HEAD_BYTES).unwrap_or(&bytes.head);
        if let Some(superblock) = Superblock::parse(beginning)
            && superblock.uuid.as_deref() == Some(run.uuid)
            && let Some(trace) = superblock.used
        {
            return Ok((held, Left::User { trace }));
        }
        let Some(mut judge) = self.judge(id, run, proof, beginning, container)? else {
            // Bytes of this kind of tool cannot be told from others.
            let at = bytes.first.unwrap_or_default();
            return Ok((held, Left::Foreign { at }));
        };
        let all: u64 = judge.regions.iter().map(|region| region.length).sum();
        let reader = Reader::spawn(path, limits, limits.read, move |sender| {
            let mut buffer = Aligned::new();
            let mut bytes = Bytes::default();
            let file = held.exclusive.as_ref().unwrap_or(&held.lock);
            for (offset, length) in chunks(&judge.regions.clone()) {
                let chunk = buffer.chunk(length);
                read_all(file, chunk, offset)?;
                bytes.read += length as u64;
                if let Some(at) = judge.foreign(offset, chunk)? {
                    bytes.first = Some(at);
                    break;
                }
                send(sender, Message::Read(bytes.read))?;
            }
            Ok((held, bytes))
        })?;
        let limit = limits.all + Duration::from_secs(all >> 24);
        let (held, bytes) = reader.wait(limit, &mut |_| {})?;
        self.check_identity(&held, id)?;
        let left = bytes.first.map_or(Left::Tool, |at| Left::Foreign { at });
        Ok((held, left))
    }

    /// How to identify the bytes of that run; `None` if that is impossible. `head` is the first 128
    /// KiB of the device.
    pub(super) fn judge(
        &self,
        id: &DeviceId,
        run: BegunRun<'_>,
        proof: ProofKind,
        head: &[u8],
        container: Option<&OpenContainer>,
    ) -> Result<Option<Judge>, Doubt> {
        let label = mkfs::label_in(run.arguments);
        let Some(mut remains) = Remains::new(run.filesystem, run.uuid, label, id.size) else {
            return Ok(None);
        };
        let mut parts = regions::regions(id.size, proof);
        parts.extend(remains.places(head));
        let mut reference = None;
        if remains.needs_reference() {
            let made = self.reference(id, run)?;
            let mut head = vec![0; HEAD_BYTES.min(usize::try_from(id.size).unwrap_or(HEAD_BYTES))];
            let at =
                |error: std::io::Error| doubt(format!("cannot read {}: {error}", made.path.display()), true);
            made.file.read_exact_at(&mut head, 0).map_err(at)?;
            if !remains.read_reference(&head) {
                return Ok(None);
            }
            parts.extend(written(&made.file).map_err(at)?);
            reference = Some(made);
        }
        let below = container.map(|container| self.below(container)).transpose()?;
        Ok(Some(Judge {
            regions: remains.widened(parts),
            remains,
            reference,
            below,
            buffer: Aligned::new(),
            expected: Vec::new(),
        }))
    }

    /// The device below a container and the offset of its data.
    fn below(&self, container: &OpenContainer) -> Result<(File, u64), Doubt> {
        let [below] = &container.below[..] else {
            return Err(doubt(
                format!("{} is on several devices", container.mapping),
                false,
            ));
        };
        let path = self.roots.root("/dev").join(below);
        let start = luks::data_offset(self.commands, &path)
            .map_err(|error| doubt(error.to_string(), true))?
            .ok_or_else(|| doubt(format!("the data offset on {} is unknown", path.display()), false))?;
        // Flush writes through the container to the device below before that is read.
        let mapped = File::open(self.mapping_node(&container.mapping));
        mapped
            .and_then(|mapped| mapped.sync_all())
            .and_then(|()| {
                OpenOptions::new()
                    .read(true)
                    .custom_flags(ioctl::DIRECT)
                    .open(&path)
            })
            .map(|file| (file, start))
            .map_err(|error| doubt(format!("cannot read {}: {error}", path.display()), true))
    }

    /// Runs the tool on a sparse file of the device's size.
    fn reference(&self, id: &DeviceId, run: BegunRun<'_>) -> Result<Reference, Doubt> {
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            doubt(
                format!("no reference of {} to compare with: {what}: {error}", id.name),
                true,
            )
        };
        let folder = self.roots.root(SCRATCH);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .map_err(|error| failed("create its directory", &error))?;
        let room = rustix::fs::statvfs(&folder).map_err(|error| failed("free memory", &error))?;
        let free = room.f_bavail.saturating_mul(room.f_frsize);
        let needed = MIN_REFERENCE_BYTES + id.size / REFERENCE_DIVISOR;
        if free < needed {
            let text = format!("{free} bytes are free in {SCRATCH}, and {needed} are needed");
            return Err(failed("memory", &text));
        }
        let (file, path) = tempfile::Builder::new()
            .prefix(".virtfleet-")
            .tempfile_in(&folder)
            .and_then(|file| file.keep().map_err(|error| error.error))
            .map_err(|error| failed("create a file", &error))?;
        let reference = Reference { file, path };
        reference
            .file
            .set_len(id.size)
            .map_err(|error| failed("create a file of that size", &error))?;
        let program = tool::program(run.filesystem).ok_or_else(|| failed("no such tool", &run.filesystem))?;
        let queue = block(self.roots, id.disk()).join("queue");
        let bytes = |name: &str| number(&queue.join(name)).unwrap_or(512).to_string();
        // env(1), because the command runner clears the environment. mke2fs(8), ENVIRONMENT: a file
        // has no sector size of its own.
        let tool = Tool::new("env")
            .arg(format!("MKE2FS_DEVICE_SECTSIZE={}", bytes("logical_block_size")))
            .arg(format!(
                "MKE2FS_DEVICE_PHYS_SECTSIZE={}",
                bytes("physical_block_size")
            ))
            .arg(program)
            .args(reference_arguments(run.filesystem, run.arguments))
            .arg(&reference.path)
            .deadline(REFERENCE_TIMEOUT);
        self.commands
            .check(&tool)
            .map_err(|error| failed("the tool", &error))?;
        Ok(reference)
    }
}

/// The data parts of a sparse file.
fn written(file: &File) -> std::io::Result<Vec<Region>> {
    let mut parts = Vec::new();
    let mut at = 0;
    loop {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            // lseek(2): no data beyond this offset.
            Err(rustix::io::Errno::NXIO) => return Ok(parts),
            Err(error) => return Err(error.into()),
        };
        at = rustix::fs::seek(file, SeekFrom::Hole(start))?;
        parts.push(Region {
            offset: start,
            length: at.saturating_sub(start),
        });
    }
}
