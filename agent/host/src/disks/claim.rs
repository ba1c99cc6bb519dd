//! The second look, by which a wish becomes a [`BlankDisk`].

use std::path::PathBuf;

use virtfleet_agent_core::disks::{
    Content, Device, DeviceId, Doubt, FormatIntent, Probe, Region, WriteMark, WritesSince,
    device::LEAST_BYTES, journal::Evidence,
};

use virtfleet_wire::settings::ProofKind;

use super::{
    DevicesError, Disks,
    look::Looked,
    reader::{CHUNK, Held, Limits, Reader},
};

/// Why a device may not be formatted. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// It could not be found out, or somebody else has it now.
    #[error("{name} is not formatted: {}", doubt.reason)]
    Unknown {
        /// The kernel's name of the device that was meant.
        name: String,
        /// What is not known.
        doubt: Doubt,
    },
    /// There is something on it.
    #[error("{name} is not formatted: {reason}")]
    NotAsPlanned {
        /// The kernel's name of the device that was meant.
        name: String,
        /// What is unlike the plan.
        reason: String,
        /// What is on it, when that is it.
        content: Option<Box<Content>>,
    },
    /// The disks are not known.
    #[error(transparent)]
    Devices(#[from] DevicesError),
}

/// A disk that is proven blank at this moment (or has what a person has judged, and that alone), locked and held exclusively.
///
/// It is consumed by what formats it, and lets go of the disk when dropped.
#[derive(Debug)]
pub struct BlankDisk {
    pub(super) held: Held,
    pub(super) path: PathBuf,
    pub(super) id: DeviceId,
    /// What the ends of the disk had, to be seen again right before the tool starts.
    pub(super) ends: String,
    /// The write counters before the second look's first read, to be compared right before the tool starts.
    pub(super) mark: WriteMark,
}

impl BlankDisk {
    /// The device.
    pub fn id(&self) -> &DeviceId {
        &self.id
    }
}

impl Disks<'_> {
    /// Looks again, under the lock and an exclusive open, and compares with the intent: the device (number, sequence number, size, serial) and
    /// the evidence. What comes back may be formatted by [`Disks::format`] or [`Disks::encrypt`], now.
    ///
    /// The evidence must be blankness, found again; or an approval with the digest of what was judged, found again.
    pub fn claim(&self, intent: &FormatIntent) -> Result<BlankDisk, ClaimError> {
        self.claim_within(intent, Limits::default())
    }

    /// The same with other limits.
    pub fn claim_within(&self, intent: &FormatIntent, limits: Limits) -> Result<BlankDisk, ClaimError> {
        let id = &intent.device;
        let (proof, judged, place, before) = match &intent.evidence {
            Evidence::Blank(blank) => (blank.proof, None, None, &blank.writes),
            Evidence::Approved {
                proof,
                digest,
                place,
                writes,
                ..
            } => (*proof, digest.as_deref(), *place, writes),
            Evidence::Found | Evidence::ErasedClone { .. } => {
                return Err(refused(
                    id,
                    "what was found on it is nobody's to format".to_owned(),
                    None,
                ));
            }
        };
        let looked = self.look_again(id, proof, place, before, limits)?;
        match (&looked.probe, &intent.evidence) {
            (Probe::Blank(now), Evidence::Blank(before)) => {
                // A proof by time has read more for the plan than is read again here.
                let other = (now.proof, now.regions, now.size) != (before.proof, before.regions, before.size)
                    || now.proof != ProofKind::Timed && now.bytes != before.bytes;
                if other {
                    let reason = format!(
                        "the proof read {} parts of {} bytes, and the planned one {} of {}",
                        now.regions, now.size, before.regions, before.size
                    );
                    return Err(refused(id, reason, None));
                }
            }
            // Judged as lost and blank; or judged as data, of which an unfinished mkfs of ours was cleared since.
            (Probe::Blank(_), Evidence::Approved { .. }) => {}
            (Probe::HasData(content), _) if !content.is_known() && judged == Some(&content.digest) => {}
            (Probe::HasData(content), _) => {
                return Err(refused(
                    id,
                    format!("there is {} on it", describe(content)),
                    Some(content.clone()),
                ));
            }
            (Probe::Blank(_), Evidence::Found | Evidence::ErasedClone { .. }) => {
                return Err(refused(
                    id,
                    "what was found on it is nobody's to format".to_owned(),
                    None,
                ));
            }
            (Probe::Unknown(doubt), _) => return Err(unknown(id)(doubt.clone())),
        }
        self.hold(id, looked.held, limits)
    }

    /// Checks that nothing was written to the held device since `earlier`, as far as its write counters say; the new mark is in [`Held::mark`].
    ///
    /// Where the counters cannot say, it passes: what the caller has read again decides then.
    ///
    /// # Errors
    /// When something was written, or the dirty pages cannot be written out in time.
    pub(super) fn unwritten(
        &self,
        held: Held,
        id: &DeviceId,
        earlier: &WriteMark,
        limits: Limits,
    ) -> Result<Held, Doubt> {
        let path = self.node(id);
        let reader = Reader::mark(held, &path, self.roots, id, limits)?;
        let (held, _) = reader.wait(limits.all, &mut |_| {})?;
        match held.mark.since(earlier) {
            WritesSince::Some(what) => Err(Doubt {
                reason: format!("since it was proven blank, {what}"),
                passing: true,
            }),
            WritesSince::None | WritesSince::Unknown(_) => Ok(held),
        }
    }

    /// Reads again what every proof of the kind reads, and the place that was judged. The rest is as it was read for the plan when the write counters say that
    /// nothing was written since; where they cannot say, it is read by time again.
    fn look_again(
        &self,
        id: &DeviceId,
        proof: ProofKind,
        place: Option<u64>,
        before: &WriteMark,
        limits: Limits,
    ) -> Result<Looked, ClaimError> {
        let looked = self
            .prove_with(id, proof, place, None, limits, &mut |_, _| {})
            .map_err(unknown(id))?;
        match looked.held.mark.since(before) {
            WritesSince::None => Ok(looked),
            WritesSince::Some(what) => {
                let content = match looked.probe {
                    Probe::HasData(content) => Some(content),
                    Probe::Blank(_) | Probe::Unknown(_) => None,
                };
                let on = content.as_ref().map_or(String::new(), |content| {
                    format!("; there is {} on it", describe(content))
                });
                Err(refused(
                    id,
                    format!("since it was read for the plan, {what}{on}"),
                    content,
                ))
            }
            WritesSince::Unknown(_)
                if proof == ProofKind::Timed && matches!(looked.probe, Probe::Blank(_)) =>
            {
                drop(looked);
                self.prove_with(id, proof, place, Some(limits.budget), limits, &mut |_, _| {})
                    .map_err(unknown(id))
            }
            WritesSince::Unknown(_) => Ok(looked),
        }
    }

    /// Checks that it is the disk that was meant and that nothing and nobody uses it, this process and its descendants aside.
    ///
    /// # Errors
    /// With the reason why it must not be formatted.
    pub(super) fn unused(&self, id: &DeviceId) -> Result<(), ClaimError> {
        let Some(device) = self.current(id)? else {
            return Err(refused(id, "it is not there any more".to_owned(), None));
        };
        if let Some(fault) = device.fault {
            return Err(refused(id, fault, None));
        }
        if let Some(reason) = unlike(&device, id) {
            return Err(refused(id, reason, None));
        }
        self.unopened(id).map_err(unknown(id))
    }

    /// What sysfs and procfs say now that we hold it, and what its ends have.
    pub(super) fn hold(&self, id: &DeviceId, held: Held, limits: Limits) -> Result<BlankDisk, ClaimError> {
        self.unused(id)?;
        let path = self.node(id);
        let (held, bytes) = Reader::again(held, &path, ends(id.size), limits)
            .and_then(|reader| reader.wait(limits.all, &mut |_| {}))
            .map_err(unknown(id))?;
        Ok(BlankDisk {
            mark: held.mark.clone(),
            held,
            path,
            id: id.clone(),
            ends: bytes.digest,
        })
    }
}

/// The first and the last MiB.
pub(super) fn ends(size: u64) -> Vec<Region> {
    let length = size.min(CHUNK as u64);
    let mut ends = vec![Region { offset: 0, length }];
    if size >= 2 * length {
        // Devices end at a multiple of their blocks, which direct reads need.
        ends.push(Region {
            offset: size - length,
            length,
        });
    }
    ends
}

/// How a device is unlike the one that was meant, or must not be formatted for what it is.
fn unlike(device: &Device, id: &DeviceId) -> Option<String> {
    let now = &device.id;
    if now != id {
        return Some(format!(
            "it was {} with {} bytes, serial {} and sequence number {:?}, and is {} with {}, {} and {:?}",
            id.name,
            id.size,
            id.serial.as_deref().unwrap_or("none"),
            id.diskseq,
            now.name,
            now.size,
            now.serial.as_deref().unwrap_or("none"),
            now.diskseq,
        ));
    }
    let reason = if device.carries_system {
        "it carries the system"
    } else if device.read_only {
        "it is read-only"
    } else if now.size < LEAST_BYTES {
        "it is smaller than 64 MiB"
    } else if let Some(use_) = device.uses.first() {
        return Some(format!("it is in use: {use_:?}"));
    } else {
        return None;
    };
    Some(reason.to_owned())
}

pub(super) fn unknown(id: &DeviceId) -> impl FnOnce(Doubt) -> ClaimError {
    let name = id.name.clone();
    move |doubt| ClaimError::Unknown { name, doubt }
}

pub(super) fn refused(id: &DeviceId, reason: String, content: Option<Content>) -> ClaimError {
    ClaimError::NotAsPlanned {
        name: id.name.clone(),
        reason,
        content: content.map(Box::new),
    }
}

fn describe(content: &Content) -> String {
    let place = || {
        content
            .first_byte
            .map_or(String::new(), |byte| format!(", first at byte {byte}"))
    };
    if content.is_known() {
        content.kind.clone()
    } else {
        format!("data that nobody knows{}", place())
    }
}
