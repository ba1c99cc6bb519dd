//! The look at a device: three answers, and blank only by proof. Nothing is written.

use std::{path::PathBuf, time::Duration};

use virtfleet_agent_core::disks::{Blankness, Content, Device, DeviceId, Doubt, Probe, Region, regions};
use virtfleet_wire::settings::ProofKind;

pub use super::reader::Limits;
use super::{
    Disks,
    reader::{Bytes, CHUNK, Held, Order, Reader},
    signature,
    tools::blkid::{self, Known},
};

/// What a look found, with the device still held.
pub(super) struct Looked {
    pub(super) probe: Probe,
    pub(super) held: Held,
}

impl Disks<'_> {
    /// Looks at a device, with the usual [`Limits`]. `progress` hears how many bytes are read, and of how many.
    pub fn look(&self, device: &Device, proof: ProofKind, progress: &mut dyn FnMut(u64, u64)) -> Probe {
        self.look_within(device, proof, Limits::default(), progress)
    }

    /// Looks at a device.
    ///
    /// A device that somebody uses is never blank: it has what blkid(8) knows on it, or it is not known.
    pub fn look_within(
        &self,
        device: &Device,
        proof: ProofKind,
        limits: Limits,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Probe {
        if device.uses.is_empty() {
            return match self.prove(&device.id, proof, limits, progress) {
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

    /// Locks it, opens it exclusively and looks at it.
    ///
    /// Where blkid knows something, that decides, and only the first MiB is read. Else all regions of the proof are read, and blkid is asked
    /// again: who has formatted meanwhile is seen.
    pub(super) fn prove(
        &self,
        id: &DeviceId,
        proof: ProofKind,
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
        let all = regions.iter().map(|region| region.length).sum();
        let count = regions.len();
        let largest_unread = regions::largest_unread(id.size, &regions);
        let limit = match proof {
            ProofKind::Sampled => limits.all,
            ProofKind::Full => limits.all + Duration::from_secs(id.size >> 24),
        };
        let reader = Reader::again(held, &path, regions, limits)?;
        let (held, bytes) = reader.wait(limit, &mut |done| progress(done, all))?;
        if bytes.read != all || all == 0 {
            let reason = format!("{} of {all} bytes of {} were read", bytes.read, path.display());
            return Err(Doubt {
                reason,
                passing: false,
            });
        }
        self.still(&held, id)?;
        self.unopened(id)?;
        let probe = match (self.known(id, &bytes)?, bytes.first) {
            (Some(content), _) => Probe::HasData(content),
            (None, Some(_)) => Probe::HasData(of(String::new(), &bytes)),
            (None, None) => Probe::Blank(Blankness {
                proof,
                regions: count,
                bytes: all,
                size: id.size,
                largest_unread,
                writes: held.mark.clone(),
            }),
        };
        Ok(Looked { probe, held })
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

fn of(kind: String, bytes: &Bytes) -> Content {
    Content {
        kind,
        first_byte: bytes.first,
        digest: bytes.digest.clone(),
        ..Content::default()
    }
}
