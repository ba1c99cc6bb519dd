//! Probes a device, with three possible answers; blank only by proof. Read-only.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use virtfleet_agent_core::disks::{Blankness, Content, Device, DeviceId, Doubt, Probe, Region, regions};
use virtfleet_wire::settings::ProofKind;

pub use super::reader::Limits;
use super::{
    Disks,
    reader::{Bytes, CHUNK_BYTES, Further, Held, Order, Reader},
    signature,
    tools::blkid::{self, Known},
};

/// Result of a probe, with the device still held.
pub(super) struct ProbedDevice {
    pub(super) probe: Probe,
    pub(super) held: Held,
}

impl Disks<'_> {
    /// Probes a device with the default [`Limits`]. `progress` receives the bytes read so far and
    /// the total.
    pub fn probe(&self, device: &Device, proof: ProofKind, progress: &mut dyn FnMut(u64, u64)) -> Probe {
        self.probe_within(device, proof, None, Limits::default(), progress)
    }

    /// Probes a device. The MiB at `place`, where an earlier probe found data, is read first.
    ///
    /// A device in use is never blank: the result is what blkid(8) finds on it, or unknown.
    pub fn probe_within(
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
                Ok(probed) => probed.probe,
                Err(doubt) => Probe::Unknown(doubt),
            };
        }
        match self.in_use(&device.id, limits) {
            Ok(Some(content)) => Probe::HasData(content),
            Ok(None) => Probe::Unknown(Doubt {
                reason: format!("{} is in use, and blkid finds nothing on it", device.node()),
                passing: false,
            }),
            Err(doubt) => Probe::Unknown(doubt),
        }
    }

    /// True if a new proof finds the whole disk blank. False if not all of it was read.
    pub fn is_blank(&self, id: &DeviceId, proof: ProofKind) -> bool {
        let probed = self.prove(id, proof, Limits::default(), &mut |_, _| {});
        probed.is_ok_and(|probed| matches!(probed.probe, Probe::Blank(blank) if blank.is_whole()))
    }

    pub(super) fn node(&self, id: &DeviceId) -> PathBuf {
        self.roots.root(format!("/dev/{}", id.name))
    }

    /// Locks the device, opens it exclusively and reads the regions of every proof of this kind. A
    /// timed proof does not read further.
    pub(super) fn prove(
        &self,
        id: &DeviceId,
        proof: ProofKind,
        limits: Limits,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<ProbedDevice, Doubt> {
        self.prove_with(id, proof, None, None, limits, progress)
    }

    /// The same, but the MiB at `place` is read first. If all regions are zero, the read continues
    /// for `budget`, measured from the first read.
    ///
    /// If blkid finds something, that is the result, and only the first MiB is read. Otherwise all
    /// regions of the proof are read and blkid runs again, to detect formatting by another process
    /// meanwhile.
    pub(super) fn prove_with(
        &self,
        id: &DeviceId,
        proof: ProofKind,
        place: Option<u64>,
        budget: Option<Duration>,
        limits: Limits,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<ProbedDevice, Doubt> {
        let path = self.node(id);
        let order = Order {
            path: path.clone(),
            id: id.clone(),
            roots: self.roots.clone(),
            exclusive: true,
        };
        let start = Region {
            offset: 0,
            length: id.size.min(CHUNK_BYTES as u64),
        };
        let (held, bytes) = Reader::start(order, vec![start], limits)?.wait(limits.all, &mut |_| {})?;
        self.still_in_table(id)?;
        let begun = Instant::now();
        if let Some(content) = self.known(id, &bytes)? {
            let probe = Probe::HasData(content);
            return Ok(ProbedDevice { probe, held });
        }
        if !super::facts::partitions(self.roots, &id.name).is_empty() {
            let reason = format!(
                "the kernel has partitions on {}, but blkid finds none",
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
        // A byte that an earlier probe found outside of the regions of every proof.
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
        self.check_identity(&held, id)?;
        self.check_unopened(id)?;
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
        Ok(ProbedDevice { probe, held })
    }

    /// Continues behind `read`, all of which is zero, until the budget is spent or a byte is not
    /// zero, which is added to `bytes`. Returns all regions read by then.
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
        // The MiB is read once more on its own, so that its digest equals that of a probe that
        // reads it first.
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

    /// Checks that the held device is still the intended one.
    pub(super) fn check_identity(&self, held: &Held, id: &DeviceId) -> Result<(), Doubt> {
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

    /// What blkid finds on a device in use. It is locked only meanwhile and is not opened
    /// exclusively.
    fn in_use(&self, id: &DeviceId, limits: Limits) -> Result<Option<Content>, Doubt> {
        let order = Order {
            path: self.node(id),
            id: id.clone(),
            roots: self.roots.clone(),
            exclusive: false,
        };
        let (held, bytes) = Reader::start(order, Vec::new(), limits)?.wait(limits.all, &mut |_| {})?;
        let content = self.known(id, &bytes)?;
        self.check_identity(&held, id)?;
        Ok(content.map(|content| Content {
            digest: String::new(),
            ..content
        }))
    }
}

/// The MiB that contains a byte.
fn mib(size: u64, byte: u64) -> Region {
    let offset = byte - byte % CHUNK_BYTES as u64;
    Region {
        offset,
        length: (CHUNK_BYTES as u64).min(size - offset),
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
