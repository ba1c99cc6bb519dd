//! The look at a device: three answers, and blank only by proof. Nothing is written.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use virtfleet_agent_core::disks::{Blankness, Content, Device, DeviceId, Doubt, Probe, Region, regions};
use virtfleet_wire::settings::ProofKind;

pub use super::reader::Limits;
use super::{
    Disks,
    reader::{Bytes, CHUNK, Further, Held, Order, Reader},
    signature,
    tools::blkid::{self, Known},
};

/// What a look found, with the device still held.
pub(super) struct Looked {
    pub(super) probe: Probe,
    pub(super) held: Held,
}

impl Disks<'_> {
    /// Probes a device, with the usual [`Limits`]. `progress` gets the bytes that were read, and of how many.
    pub fn look(&self, device: &Device, proof: ProofKind, progress: &mut dyn FnMut(u64, u64)) -> Probe {
        self.look_within(device, proof, None, Limits::default(), progress)
    }

    /// Probes a device. The MiB that holds the byte at `place` is read first, where an earlier probe has found data.
    ///
    /// A device that is in use is never blank: it has what blkid(8) knows on it, or it is not known.
    pub fn look_within(
        &self,
        device: &Device,
        proof: ProofKind,
        place: Option<u64>,
        limits: Limits,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Probe {
        if device.uses.is_empty() {
            let budget = (proof == ProofKind::Timed).then_some(limits.budget);
            return match self.prove_with(&device.id, proof, place, budget, limits, progress) {
                Ok(looked) => looked.probe,
                Err(doubt) => Probe::Unknown(doubt),
            };
        }
        match self.in_use(&device.id, limits) {
            Ok(Some(content)) => Probe::HasData(content),
            Ok(None) => Probe::Unknown(Doubt {
                reason: format!("{} is in use, and blkid knows nothing on it", device.node()),
                passing: false,
            }),
            Err(doubt) => Probe::Unknown(doubt),
        }
    }

    /// Whether a new proof finds the whole disk blank now; false when not all of it was read.
    pub fn is_blank(&self, id: &DeviceId, proof: ProofKind) -> bool {
        let looked = self.prove(id, proof, Limits::default(), &mut |_, _| {});
        looked.is_ok_and(|looked| matches!(looked.probe, Probe::Blank(blank) if blank.is_whole()))
    }

    pub(super) fn node(&self, id: &DeviceId) -> PathBuf {
        self.roots.root(format!("/dev/{}", id.name))
    }

    /// Locks it, opens it exclusively and reads what every proof of the kind reads. A proof by time is not read further.
    pub(super) fn prove(
        &self,
        id: &DeviceId,
        proof: ProofKind,
        limits: Limits,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Looked, Doubt> {
        self.prove_with(id, proof, None, None, limits, progress)
    }

    /// The same; the MiB that holds the byte at `place` is read first, and when all of that is zero, more of the device for as long as `budget` says, from the first
    /// read on.
    ///
    /// Where blkid knows something, that decides, and only the first MiB is read. Else all regions of the proof are read, and blkid is asked
    /// again: who has formatted meanwhile is seen.
    pub(super) fn prove_with(
        &self,
        id: &DeviceId,
        proof: ProofKind,
        place: Option<u64>,
        budget: Option<Duration>,
        limits: Limits,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Looked, Doubt> {
        let path = self.node(id);
        let order = Order {
            path: path.clone(),
            id: id.clone(),
            roots: self.roots.clone(),
            exclusive: true,
        };
        let start = Region {
            offset: 0,
            length: id.size.min(CHUNK as u64),
        };
        let (held, bytes) = Reader::start(order, vec![start], limits)?.wait(limits.all, &mut |_| {})?;
        self.still_in_table(id)?;
        let begun = Instant::now();
        if let Some(content) = self.known(id, &bytes)? {
            let probe = Probe::HasData(content);
            return Ok(Looked { probe, held });
        }
        if !super::facts::partitions(self.roots, &id.name).is_empty() {
            let reason = format!(
                "the kernel knows partitions on {}, and blkid none",
                path.display()
            );
            return Err(Doubt {
                reason,
                passing: true,
            });
        }
        let regions = regions::regions(id.size, proof);
        let all: u64 = regions.iter().map(|region| region.length).sum();
        let whole = all == id.size;
        let count = regions.len();
        let limit = match proof {
            ProofKind::Timed | ProofKind::Sampled => limits.all,
            ProofKind::Full => limits.all + Duration::from_secs(id.size >> 24),
        };
        let target = if budget.is_some() { id.size } else { all };
        // A byte that an earlier probe has found, outside of what every proof reads.
        let apart = place.filter(|place| *place < id.size && !regions::holds(&regions, *place));
        let (held, remembered) = match apart {
            Some(place) => {
                let (held, bytes) = Reader::again(held, &path, vec![mib(id.size, place)], limits)?
                    .wait(limits.all, &mut |_| {})?;
                (held, Some(bytes))
            }
            None => (held, None),
        };
        let reader = Reader::again(held, &path, regions.clone(), limits)?;
        let (held, mut bytes) = reader.wait(limit, &mut |done| progress(done, target))?;
        if bytes.read != all || all == 0 {
            let reason = format!("{} of {all} bytes of {} were read", bytes.read, path.display());
            return Err(Doubt {
                reason,
                passing: false,
            });
        }
        let mut read = regions;
        let mut held = held;
        if let Some(found) = remembered.filter(|bytes| bytes.first.is_some()) {
            bytes.and_apart(&found);
        } else if let (None, Some(budget), false) = (bytes.first, budget, whole) {
            let until = begun + budget;
            (held, read) = self.read_on(held, id, read, until, &mut bytes, limits, &mut |done| {
                progress(done, target);
            })?;
        }
        self.still(&held, id)?;
        self.unopened(id)?;
        let writes = held.mark.clone();
        let content = |content: Content| {
            Probe::HasData(Content {
                whole,
                writes: writes.clone(),
                ..content
            })
        };
        let probe = match (self.known(id, &bytes)?, bytes.first) {
            (Some(known), _) => content(known),
            (None, Some(_)) => content(of(String::new(), &bytes)),
            (None, None) => Probe::Blank(Blankness {
                proof,
                regions: count,
                bytes: read.iter().map(|region| region.length).sum(),
                size: id.size,
                largest_unread: regions::largest_unread(id.size, &read),
                writes: writes.clone(),
            }),
        };
        Ok(Looked { probe, held })
    }

    /// Reads on after `read`, all of which is zero, until the time is over or a byte is not zero, which is added to `bytes`. Gives all that was read by then.
    #[expect(clippy::too_many_arguments, reason = "the state of one probe")]
    fn read_on(
        &self,
        held: Held,
        id: &DeviceId,
        read: Vec<Region>,
        until: Instant,
        bytes: &mut Bytes,
        limits: Limits,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(Held, Vec<Region>), Doubt> {
        let path = self.node(id);
        let limit = until.saturating_duration_since(Instant::now()) + limits.all;
        let further = Further {
            size: id.size,
            before: read,
            until,
        };
        let (held, more) = Reader::further(held, &path, further, limits)?.wait(limit, progress)?;
        let Some(place) = more.further.first else {
            return Ok((held, more.further.regions));
        };
        // It is read once more alone, so that its digest is the one of a probe that reads it first.
        let (held, found) =
            Reader::again(held, &path, vec![mib(id.size, place)], limits)?.wait(limits.all, &mut |_| {})?;
        if found.first.is_none() {
            return Err(Doubt {
                reason: format!("{} changed while it was read, at byte {place}", path.display()),
                passing: true,
            });
        }
        bytes.and_apart(&found);
        Ok((held, more.further.regions))
    }

    /// The held device is the one that was meant still.
    pub(super) fn still(&self, held: &Held, id: &DeviceId) -> Result<(), Doubt> {
        let path = self.node(id);
        super::identity::check(&held.lock, id)
            .and_then(|()| super::identity::check_path(&path, id))
            .map_err(|error| Doubt {
                reason: format!("{} {error}", path.display()),
                passing: true,
            })
    }

    /// What is known to be on the device.
    fn known(&self, id: &DeviceId, bytes: &Bytes) -> Result<Option<Content>, Doubt> {
        let mut found = match blkid::probe(self.commands, &self.node(id))? {
            Some(known) => known,
            None => match signature::own(&bytes.head, &bytes.tail) {
                Some(kind) => Known {
                    kinds: vec![kind.to_owned()],
                    ..Known::default()
                },
                None => return Ok(None),
            },
        };
        let kind = found.kinds.remove(0);
        Ok(Some(Content {
            also: found.kinds,
            uuid: found.uuid,
            label: found.label,
            ..of(kind, bytes)
        }))
    }

    /// What blkid knows on a device that is in use. It is locked only for as long as that takes, and not opened exclusively.
    fn in_use(&self, id: &DeviceId, limits: Limits) -> Result<Option<Content>, Doubt> {
        let order = Order {
            path: self.node(id),
            id: id.clone(),
            roots: self.roots.clone(),
            exclusive: false,
        };
        let (held, bytes) = Reader::start(order, Vec::new(), limits)?.wait(limits.all, &mut |_| {})?;
        let content = self.known(id, &bytes)?;
        self.still(&held, id)?;
        Ok(content.map(|content| Content {
            digest: String::new(),
            ..content
        }))
    }
}

/// The MiB that holds a byte.
fn mib(size: u64, byte: u64) -> Region {
    let offset = byte - byte % CHUNK as u64;
    Region {
        offset,
        length: (CHUNK as u64).min(size - offset),
    }
}

fn of(kind: String, bytes: &Bytes) -> Content {
    Content {
        kind,
        first_byte: bytes.first,
        apart: bytes.apart,
        digest: bytes.digest.clone(),
        ..Content::default()
    }
}
