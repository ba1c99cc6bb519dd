//! Compares a disk with the root disk to decide whether it is a clone. Read-only.

use std::{
    cell::Cell,
    fs::File,
    sync::mpsc::{SyncSender, sync_channel},
    time::{Duration, Instant},
};

use virtfleet_agent_core::disks::{
    Device, DeviceId, Doubt, Region, Use,
    clone::{self, CloneState, Deviation, EraseRecord, Fingerprint, FirstBoot, NotProven, Sector, Source},
    regions,
};
use virtfleet_wire::settings::ProofKind;

use super::{
    super::{
        Disks,
        reader::{Bytes, CHUNK_BYTES, Failure, Held, Limits, Message, Order, Reader, chunks, doubt},
    },
    first_boot::first_boot,
    open::{Open, open_root},
    root::{RootDisk, root_disk},
};
use crate::JOURNAL_DIRECTORY;

/// Maximum size of an image. It bounds the duration of a comparison.
const MAX_IMAGE_BYTES: u64 = 64 << 30;

/// An erasure that the journal records as started and not as finished.
pub type UnfinishedErasure = (EraseRecord, Fingerprint);

/// Parameters of a comparison besides the device.
#[derive(Clone)]
pub(super) struct ComparisonParameters {
    root: RootDisk,
    first_boot: FirstBoot,
    proof: ProofKind,
    /// How long to read behind the image after the regions of every proof. `None` if that was read
    /// for the plan and nothing was written since.
    budget: Option<Duration>,
    clone_block: u32,
    begun: Option<UnfinishedErasure>,
}

impl ComparisonParameters {
    /// The same, without reading behind the image.
    pub(super) fn without_time(self) -> Self {
        Self { budget: None, ..self }
    }
}

#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// `None` if nothing of the image is left on the disk.
    pub(super) state: Option<CloneState>,
    /// The requested digests.
    pub(super) print: Option<Fingerprint>,
}

impl Disks<'_> {
    /// Compares a disk with the OS image on the root disk. `budget`: how long a
    /// [`ProofKind::Timed`] proof reads behind the image. `begun`: the journal's record of an
    /// erasure of this disk. `progress` receives the bytes read so far from both disks. `None` if
    /// nothing of the image is left on the disk; then the ordinary proof decides.
    pub fn probe_clone(
        &self,
        device: &Device,
        proof: ProofKind,
        budget: Duration,
        begun: Option<UnfinishedErasure>,
        progress: &mut dyn FnMut(u64),
    ) -> Option<CloneState> {
        let used = device.uses.iter().find(|used| !matches!(used, Use::Partition(_)));
        if let Some(used) = used {
            // The plan refuses a disk in use before any other check.
            return Some(CloneState::Unknown(doubt(
                format!("{} is in use: {used:?}", device.node()),
                true,
            )));
        }
        match self.against(device, proof, budget, begun) {
            Err(deviation) => Some(CloneState::Refused {
                deviations: vec![deviation],
            }),
            Ok(against) => match self.judge_clone(&device.id, against, None, progress) {
                Ok((_, compare)) => compare.state,
                Err(doubt) => Some(CloneState::Unknown(doubt)),
            },
        }
    }

    /// The root disk and its first boot, or why there is no reference to compare with.
    pub(super) fn against(
        &self,
        device: &Device,
        proof: ProofKind,
        budget: Duration,
        begun: Option<UnfinishedErasure>,
    ) -> Result<ComparisonParameters, Deviation> {
        let missing = |field: &str, here: String, why: &str| Deviation {
            place: "root disk".to_owned(),
            field: field.to_owned(),
            here,
            root: String::new(),
            why: why.to_owned(),
        };
        let root = root_disk(self)
            .map_err(|reason| missing("disk", reason, "the clone cannot be compared without it"))?;
        let first_boot = first_boot(self.roots).ok_or_else(|| {
            missing(
                "first boot",
                "unknown".to_owned(),
                "no creation time of /var/log/journal/<machine-id>, /var/lib/cloud/instances or the SSH host keys",
            )
        })?;
        if root.name == device.id.name {
            return Err(missing("disk", device.node(), "it is the root disk itself"));
        }
        Ok(ComparisonParameters {
            root,
            first_boot,
            proof,
            budget: (proof == ProofKind::Timed).then_some(budget),
            clone_block: device.logical_block,
            begun: begun.filter(|(record, _)| record.fits(&device.id)),
        })
    }

    /// Locks the disk, opens it exclusively and compares it; the disk is held when this returns.
    ///
    /// With `image`, the digests of its blocks are computed first. A write between the two steps is
    /// found by the comparison, or by the check of the digests before a block is erased.
    pub(super) fn judge_clone(
        &self,
        id: &DeviceId,
        against: ComparisonParameters,
        image: Option<Region>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(Held, Comparison), Doubt> {
        let limits = Limits::default();
        let path = self.node(id);
        let order = Order {
            path: path.clone(),
            id: id.clone(),
            exclusive: true,
            roots: self.roots.clone(),
        };
        let (held, _) = Reader::start(order, Vec::new(), limits)?.wait(limits.all, &mut |_| {})?;
        let (give, take) = sync_channel(1);
        let (size, node) = (id.size, path.clone());
        let image_timeout = image_timeout(size) + against.budget.unwrap_or_default();
        let mark = held.mark.clone();
        let reader = Reader::spawn(path, limits, limits.read, move |sender| {
            let file = held.exclusive.as_ref().unwrap_or(&held.lock);
            let failed = |reason| Failure::Doubt(doubt(format!("{}: {reason}", node.display()), true));
            let print = image
                .map(|image| fingerprint(file, size, image, sender))
                .transpose()
                .map_err(failed)?;
            let mut state = compare(file, size, &against, sender).map_err(failed)?;
            if let Some(CloneState::Untouched(proof) | CloneState::Interrupted { proof, .. }) = &mut state {
                proof.writes = mark;
            }
            give.send(Comparison { state, print }).ok();
            Ok((held, Bytes::default()))
        })?;
        let (held, _) = reader.wait(image_timeout, progress)?;
        self.check_identity(&held, id)?;
        Ok((held, take.try_recv().unwrap_or_default()))
    }
}

fn fingerprint(
    file: &File,
    size: u64,
    image: Region,
    sender: &SyncSender<Message>,
) -> Result<Fingerprint, String> {
    let read = Cell::new(0);
    let mut here = Open::new(file, size, sender, &read);
    let mut print = Fingerprint::default();
    for (offset, length) in chunks(&[image]) {
        print.push(&here.read(offset, length)?)?;
    }
    Ok(print)
}

/// Maximum time to read and write a whole image: one second per 16 MiB, in addition to the usual
/// minute.
pub(super) fn image_timeout(size: u64) -> Duration {
    Limits::default().all + Duration::from_secs(size.min(MAX_IMAGE_BYTES) >> 24)
}

fn compare(
    file: &File,
    size: u64,
    against: &ComparisonParameters,
    sender: &SyncSender<Message>,
) -> Result<Option<CloneState>, String> {
    let read = Cell::new(0);
    let mut here = Open::new(file, size, sender, &read);
    if let Some((record, print)) = &against.begun {
        match left(&mut here, print)? {
            Ok(0) => return Ok(None),
            Ok(left) => {
                let mut proof = record.proof.clone();
                if let Err(deviation) = behind(&mut here, &mut proof, against)? {
                    return Ok(Some(CloneState::Refused {
                        deviations: vec![deviation],
                    }));
                }
                return Ok(Some(CloneState::Interrupted { proof, left }));
            }
            // Not compared again: a write since then could be where a comparison does not read.
            Err(offset) => {
                return Ok(Some(CloneState::Refused {
                    deviations: vec![Deviation {
                        place: "an interrupted erasure".to_owned(),
                        field: format!("the block at byte {offset}"),
                        here: "neither zero nor as recorded".to_owned(),
                        root: String::new(),
                        why: format!(
                            "something was written to the disk after the erasure began. If the volume was replaced since, remove \
                             {}/{}.erasing",
                            JOURNAL_DIRECTORY, record.name
                        ),
                    }],
                }));
            }
        }
    }
    let root_file = open_root(&against.root)?;
    let mut there = Open::new(&root_file, against.root.size, sender, &read);
    let sector = Sector {
        clone: against.clone_block,
        root: against.root.logical_block,
        root_name: &against.root.name,
    };
    let mut proof = match clone::judge(&mut here, &mut there, sector, &against.first_boot) {
        Ok(proof) => proof,
        Err(NotProven::Deviates(deviations)) => return Ok(Some(CloneState::Refused { deviations })),
        Err(NotProven::Unreadable(reason)) => return Err(reason),
    };
    Ok(Some(match behind(&mut here, &mut proof, against)? {
        Ok(()) => CloneState::Untouched(proof),
        Err(deviation) => CloneState::Refused {
            deviations: vec![deviation],
        },
    }))
}

/// Remaining bytes of the recorded image, or the offset of the first block that was not recorded.
fn left(here: &mut Open<'_>, print: &Fingerprint) -> Result<Result<u64, u64>, String> {
    let end = print.bytes().min(here.size());
    let mut left = 0;
    let mut at = 0;
    while at < end {
        let length = (end - at).min(CHUNK_BYTES as u64);
        let bytes = here.read(at, usize::try_from(length).unwrap_or(CHUNK_BYTES))?;
        match print.check(at, &bytes) {
            Ok(more) => left += more,
            Err(foreign) => return Ok(Err(foreign.offset)),
        }
        at += length;
    }
    Ok(Ok(left))
}

/// Checks that the disk is zero behind the image: the regions of every proof first, then, until the
/// budget is spent, the rest in the order of a timed proof.
fn behind(
    here: &mut Open<'_>,
    proof: &mut clone::CloneProof,
    against: &ComparisonParameters,
) -> Result<Result<(), Deviation>, String> {
    let since = Instant::now();
    let size = here.size();
    let begin = proof.image_bytes.min(size);
    proof.behind = size - begin;
    let cut = |region: Region| {
        let offset = region.offset.max(begin);
        let length = (region.offset + region.length).saturating_sub(offset);
        (length > 0).then_some(Region { offset, length })
    };
    let always: Vec<Region> = regions::regions(size, against.proof)
        .into_iter()
        .filter_map(cut)
        .collect();
    let mut read = Vec::new();
    let in_time = |_: &Region| against.budget.is_some_and(|budget| since.elapsed() < budget);
    for region in always
        .into_iter()
        .chain(regions::blocks(size).filter_map(cut).take_while(in_time))
    {
        for (offset, length) in chunks(&[region]) {
            let bytes = here.read(offset, length)?;
            if !clone::is_zero(&bytes)
                && let Some(place) = bytes.iter().position(|byte| *byte != 0)
            {
                return Ok(Err(Deviation {
                    place: "behind the image".to_owned(),
                    field: format!("byte {}", offset + place as u64),
                    here: format!("{:#04x}", bytes[place]),
                    root: String::new(),
                    why: "behind the image a clone has only zeros".to_owned(),
                }));
            }
        }
        read.push(region);
    }
    read = regions::merged(read);
    proof.behind_read = read.iter().map(|region| region.length).sum();
    // The image counts as read: it was compared with the root disk's.
    read.push(Region {
        offset: 0,
        length: begin,
    });
    proof.largest_unread = regions::largest_unread(size, &regions::merged(read));
    Ok(Ok(()))
}

/// The whole image, in whole fingerprint blocks if the device has them.
pub(super) fn image(size: u64, image_bytes: u64) -> Region {
    Region {
        offset: 0,
        length: image_bytes.next_multiple_of(clone::BLOCK as u64).min(size),
    }
}
