//! What our own `mkfs` has begun and not ended: recognised by the journal, and made blank again.

use virtfleet_agent_core::disks::{
    Blankness, Content, DeviceId, FormatIntent, Probe, Region,
    journal::{Entry, Evidence, Progress},
    regions,
};
use virtfleet_wire::settings::ProofKind;

use super::{
    BlankDisk, ClaimError, Disks, FormatError,
    claim::{refused, unknown},
    reader::Limits,
    tools::check,
    zero,
};
use crate::host::read_text;

/// A disk with nothing on it but what our own `mkfs` left, locked and held exclusively.
#[derive(Debug)]
pub struct UnfinishedDisk {
    disk: BlankDisk,
    proof: ProofKind,
}

impl Disks<'_> {
    /// Looks again and compares with the journal's entry.
    ///
    /// Either the planned kind and UUID are there and the filesystem's own checker is not content; or there is no signature at all, it is still the
    /// boot in which the intent was written, and the device has the same number and sequence number.
    pub fn claim_unfinished(
        &self,
        intent: &FormatIntent,
        entry: &Entry,
    ) -> Result<UnfinishedDisk, ClaimError> {
        let id = &intent.device;
        let limits = Limits::default();
        let begun = entry.progress == Progress::Intended;
        if !begun || entry.name != intent.name || planned(entry, &intent.filesystem) != Some(&intent.uuid) {
            let reason = "the journal does not have it as begun and not ended".to_owned();
            return Err(refused(id, reason, None));
        }
        let proof = match &entry.evidence {
            Evidence::Blank(blank) => blank.proof,
            Evidence::Approved { proof, .. } => *proof,
            Evidence::Found => {
                return Err(refused(
                    id,
                    "the journal has it as found, not as begun".to_owned(),
                    None,
                ));
            }
        };
        let look = || self.prove(id, proof, limits, &mut |_, _| {}).map_err(unknown(id));
        let mut looked = look()?;
        match &looked.probe {
            Probe::Blank(_) => {}
            Probe::Unknown(doubt) => return Err(unknown(id)(doubt.clone())),
            Probe::HasData(content) if content.is_known() => {
                // The checker may want it exclusively. The lock stays; and what is found after it must be what was found before it.
                drop(looked.held.exclusive.take());
                self.ours(id, intent, content)?;
                let before = looked.probe.clone();
                drop(looked);
                looked = look()?;
                if looked.probe != before {
                    return Err(refused(id, "it changed while it was checked".to_owned(), None));
                }
            }
            Probe::HasData(content) => {
                let same_boot = !entry.boot_id.is_empty() && entry.boot_id == self.boot_id();
                let same_device = entry.device.number == id.number
                    && entry.device.diskseq.is_some()
                    && entry.device.diskseq == id.diskseq;
                if !same_boot || !same_device {
                    let reason = "there is data on it without a signature, and it cannot be proven that our mkfs left it";
                    return Err(refused(id, reason.to_owned(), Some(content.clone())));
                }
            }
        }
        let disk = self.hold(id, looked.held, limits)?;
        Ok(UnfinishedDisk { disk, proof })
    }

    /// The planned filesystem, and not whole.
    fn ours(&self, id: &DeviceId, intent: &FormatIntent, content: &Content) -> Result<(), ClaimError> {
        let kind = if intent.filesystem == "luks2" {
            "crypto_LUKS"
        } else {
            &intent.filesystem
        };
        let uuid = content.uuid.as_deref().unwrap_or_default();
        let refuse = |reason: String| refused(id, reason, Some(content.clone()));
        if content.kind != kind || !content.also.is_empty() || !uuid.eq_ignore_ascii_case(&intent.uuid) {
            return Err(refuse(format!(
                "there is {} with the UUID {uuid:?} on it, which was not begun by us",
                content.kind
            )));
        }
        if intent.filesystem == "luks2" {
            // cryptsetup writes the header in one go, and what blkid knows opens or is broken: nobody can say that no key opens it.
            return Err(refuse("its LUKS header is there".to_owned()));
        }
        match check::is_content(self.commands, &intent.filesystem, &self.node(id)) {
            Ok(false) => Ok(()),
            Ok(true) => Err(refuse(format!("its {} is whole", content.kind))),
            Err(error) => Err(refuse(format!(
                "whether its {} is whole is not known: {error}",
                content.kind
            ))),
        }
    }

    fn boot_id(&self) -> String {
        let text = read_text(&self.roots.proc("sys/kernel/random/boot_id"), 100).unwrap_or_default();
        text.trim().to_owned()
    }

    /// Writes zeros to what the proof had read, the beginning last: as long as that is not done, the next one knows it by its UUID. Then proves anew
    /// that the disk is blank.
    pub fn clear(&self, unfinished: UnfinishedDisk) -> Result<Blankness, FormatError> {
        let UnfinishedDisk { disk, proof } = unfinished;
        let path = disk.path.clone();
        let changed = |reason: String| FormatError::Changed {
            path: path.clone(),
            reason,
        };
        let parts: Vec<Region> = regions::regions(disk.id.size, proof);
        let held = zero::write(disk.held, &path, &disk.id, parts, Limits::default())
            .map_err(|doubt| changed(doubt.reason))?;
        drop(held);
        let looked = self
            .prove(&disk.id, proof, Limits::default(), &mut |_, _| {})
            .map_err(|doubt| changed(doubt.reason))?;
        match looked.probe {
            Probe::Blank(blank) => Ok(blank),
            Probe::HasData(content) => Err(changed(format!(
                "after it was cleared there is {:?} on it",
                content.kind
            ))),
            Probe::Unknown(doubt) => Err(changed(doubt.reason)),
        }
    }
}

/// The UUID that the journal has for that kind.
fn planned<'entry>(entry: &'entry Entry, filesystem: &str) -> Option<&'entry String> {
    if filesystem == "luks2" {
        entry.luks_uuid.as_ref()
    } else {
        Some(&entry.uuid)
    }
}
