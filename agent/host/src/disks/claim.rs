//! The second probe, which turns a [`FormatIntent`] into a [`BlankDisk`].

use std::path::PathBuf;

use virtfleet_agent_core::disks::{
    Content, Device, DeviceId, Doubt, FormatIntent, Probe, Region, WriteMark, WritesSince,
    device::MIN_DISK_BYTES, journal::Evidence,
};

use virtfleet_wire::settings::ProofKind;

use super::{
    DevicesError, Disks,
    probe::ProbedDevice,
    reader::{CHUNK_BYTES, Held, Limits, Reader},
};

/// Why a device may not be formatted. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// The content is unknown, or another process uses the disk.
    #[error("{name} is not formatted: {}", doubt.reason)]
    Unknown {
        /// The kernel's name of the intended device.
        name: String,
        doubt: Doubt,
    },
    /// The disk is not as planned, e.g. it contains data.
    #[error("{name} is not formatted: {reason}")]
    NotAsPlanned {
        /// The kernel's name of the intended device.
        name: String,
        reason: String,
        /// The content, if it is the reason.
        content: Option<Box<Content>>,
    },
    /// The list of disks cannot be read.
    #[error(transparent)]
    Devices(#[from] DevicesError),
}

/// A disk that was just proven blank, or that contains exactly what an admin approved for
/// formatting. It is locked and held exclusively.
///
/// Formatting consumes it; dropping it releases the disk.
#[derive(Debug)]
pub struct BlankDisk {
    pub(super) held: Held,
    pub(super) path: PathBuf,
    pub(super) id: DeviceId,
    /// Digest of both ends of the disk, compared again right before the tool starts.
    pub(super) ends: String,
    /// Write counters from before the second probe's first read, compared right before the tool
    /// starts.
    pub(super) mark: WriteMark,
}

impl BlankDisk {
    /// The claimed device.
    pub fn id(&self) -> &DeviceId {
        &self.id
    }
}

impl Disks<'_> {
    /// Probes again under the lock and an exclusive open, and compares the device (number, sequence
    /// number, size, serial) and the evidence with the intent. The result may be formatted at once
    /// by [`Disks::format`] or [`Disks::encrypt`].
    ///
    /// The evidence must be a blank disk, found blank again, or an approval whose digest matches
    /// the content again.
    ///
    /// # Errors
    /// The device is in use, is not the intended one, or its content differs from the evidence.
    pub fn claim(&self, intent: &FormatIntent) -> Result<BlankDisk, ClaimError> {
        self.claim_within(intent, Limits::default())
    }

    /// Like [`Self::claim`], with other limits.
    ///
    /// # Errors
    /// As [`Self::claim`].
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
                    "it contains data and is not approved for formatting".to_owned(),
                    None,
                ));
            }
        };
        let probed = self.probe_again(id, proof, place, before, limits)?;
        match (&probed.probe, &intent.evidence) {
            (Probe::Blank(now), Evidence::Blank(before)) => {
                // A timed proof read more for the plan than is read again here.
                let other = (now.proof, now.regions, now.size) != (before.proof, before.regions, before.size)
                    || now.proof != ProofKind::Timed && now.bytes != before.bytes;
                if other {
                    let reason = format!(
                        "the proof read {} regions of {} bytes, the planned one {} regions of {} bytes",
                        now.regions, now.size, before.regions, before.size
                    );
                    return Err(refused(id, reason, None));
                }
            }
            // Approved as lost and blank; or approved with data from which an unfinished mkfs of
            // the agent was cleared since.
            (Probe::Blank(_), Evidence::Approved { .. }) => {}
            (Probe::HasData(content), _) if !content.is_known() && judged == Some(&content.digest) => {}
            (Probe::HasData(content), _) => {
                return Err(refused(
                    id,
                    format!("it contains {}", describe(content)),
                    Some(content.clone()),
                ));
            }
            (Probe::Blank(_), Evidence::Found | Evidence::ErasedClone { .. }) => {
                return Err(refused(
                    id,
                    "it contains data and is not approved for formatting".to_owned(),
                    None,
                ));
            }
            (Probe::Unknown(doubt), _) => return Err(unknown(id)(doubt.clone())),
        }
        self.hold(id, probed.held, limits)
    }

    /// Checks by the write counters that nothing was written to the held device since `earlier`.
    /// The new mark is in [`Held::mark`].
    ///
    /// If the counters are inconclusive, the check passes; the caller's second read decides then.
    ///
    /// # Errors
    /// Something was written, or the dirty pages cannot be written out in time.
    pub(super) fn check_unwritten(
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

    /// Reads again the regions of every proof of this kind and the approved place. The rest counts
    /// as read for the plan if the write counters show no write since. If they are inconclusive, a
    /// timed read is repeated.
    fn probe_again(
        &self,
        id: &DeviceId,
        proof: ProofKind,
        place: Option<u64>,
        before: &WriteMark,
        limits: Limits,
    ) -> Result<ProbedDevice, ClaimError> {
        let probed = self
            .prove_with(id, proof, place, None, limits, &mut |_, _| {})
            .map_err(unknown(id))?;
        match probed.held.mark.since(before) {
            WritesSince::None => Ok(probed),
            WritesSince::Some(what) => {
                let content = match probed.probe {
                    Probe::HasData(content) => Some(content),
                    Probe::Blank(_) | Probe::Unknown(_) => None,
                };
                let on = content.as_ref().map_or(String::new(), |content| {
                    format!("; it contains {}", describe(content))
                });
                Err(refused(
                    id,
                    format!("since it was read for the plan, {what}{on}"),
                    content,
                ))
            }
            WritesSince::Unknown(_)
                if proof == ProofKind::Timed && matches!(probed.probe, Probe::Blank(_)) =>
            {
                drop(probed);
                self.prove_with(id, proof, place, Some(limits.budget), limits, &mut |_, _| {})
                    .map_err(unknown(id))
            }
            WritesSince::Unknown(_) => Ok(probed),
        }
    }

    /// Checks that this is the intended disk and that no process uses it, except this process and
    /// its descendants.
    ///
    /// # Errors
    /// Why the disk must not be formatted.
    pub(super) fn check_unused(&self, id: &DeviceId) -> Result<(), ClaimError> {
        let Some(device) = self.current(id)? else {
            return Err(refused(id, "the device is gone".to_owned(), None));
        };
        if let Some(fault) = device.fault {
            return Err(refused(id, fault, None));
        }
        if let Some(reason) = unlike(&device, id) {
            return Err(refused(id, reason, None));
        }
        self.check_unopened(id).map_err(unknown(id))
    }

    /// Reads sysfs, procfs and the ends of the disk again while the disk is held.
    pub(super) fn hold(&self, id: &DeviceId, held: Held, limits: Limits) -> Result<BlankDisk, ClaimError> {
        self.check_unused(id)?;
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
    let length = size.min(CHUNK_BYTES as u64);
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

/// How a device differs from the intended one, or why it must never be formatted.
fn unlike(device: &Device, id: &DeviceId) -> Option<String> {
    let now = &device.id;
    if now != id {
        return Some(format!(
            "it was {} with {} bytes, serial {} and sequence number {:?}; now it is {} with {}, {} and {:?}",
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
    } else if now.size < MIN_DISK_BYTES {
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
        format!("data of unknown kind{}", place())
    }
}
