//! What our own `mkfs` has begun and not ended: recognised by the journal, and made blank again.

use virtfleet_agent_core::disks::{
    Blankness, Content, DeviceId, Doubt, FormatIntent, Left, Probe, Region,
    journal::{Entry, Evidence, Progress},
    superblock::HEAD_BYTES,
};
use virtfleet_wire::settings::ProofKind;

use super::{
    BlankDisk, ClaimError, Disks, FormatError, OpenContainer,
    claim::{refused, unknown},
    reader::{Held, Limits, Reader, doubt},
    remains::BegunRun,
    tools::check,
    zero,
};

/// A disk with nothing on it but what our own `mkfs` left, locked and held exclusively.
#[derive(Debug)]
pub struct UnfinishedDisk {
    disk: BlankDisk,
    proof: ProofKind,
    entry: Entry,
    arguments: Vec<String>,
}

impl Disks<'_> {
    /// Looks again and compares with the journal's entry.
    ///
    /// Either the planned kind and UUID are there and the filesystem's own checker finds it incomplete,
    /// or there is no signature at all. In both cases every byte that is not zero must be from the
    /// interrupted run of our own tool.
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
            Evidence::Found | Evidence::ErasedClone { .. } => {
                return Err(refused(
                    id,
                    "the journal has it as found, not as begun".to_owned(),
                    None,
                ));
            }
        };
        let run = BegunRun::of(entry, &intent.arguments);
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
            // Judged below, as everything is.
            Probe::HasData(_) => {}
        }
        if !matches!(looked.probe, Probe::Blank(_)) {
            let content = match looked.probe {
                Probe::HasData(content) => Some(content),
                Probe::Blank(_) | Probe::Unknown(_) => None,
            };
            let (held, left) = self
                .judged(looked.held, id, run, proof, None)
                .map_err(unknown(id))?;
            if left != Left::Tool {
                return Err(refused(id, not_ours(&left), content));
            }
            looked.held = held;
            looked.probe = Probe::HasData(content.unwrap_or_default());
        }
        let disk = self.hold(id, looked.held, limits)?;
        Ok(UnfinishedDisk {
            disk,
            proof,
            entry: entry.clone(),
            arguments: intent.arguments.clone(),
        })
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

    /// Writes zeros to what the proof had read, the beginning last: as long as that is not done, the next one knows it by its UUID. Then proves anew
    /// that the disk is blank.
    pub fn clear(&self, unfinished: UnfinishedDisk) -> Result<Blankness, FormatError> {
        let UnfinishedDisk {
            disk,
            proof,
            entry,
            arguments,
        } = unfinished;
        let path = disk.path.clone();
        let changed = |reason: String| FormatError::Changed {
            path: path.clone(),
            reason,
        };
        let run = BegunRun::of(&entry, &arguments);
        let held = self
            .clear_judged(disk.held, &disk.id, run, proof, None)
            .map_err(|doubt| changed(doubt.reason))?;
        drop(held);
        // What others have written elsewhere was not searched for while the tool's remains were there.
        let limits = Limits::default();
        let budget = (proof == ProofKind::Timed).then_some(limits.budget);
        let looked = self
            .prove_with(&disk.id, proof, None, budget, limits, &mut |_, _| {})
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

impl Disks<'_> {
    /// Writes zeros to what the interrupted run left, the beginning last. Each piece is read and
    /// judged once more right before it is cleared; a foreign byte ends it with an error.
    pub(super) fn clear_judged(
        &self,
        held: Held,
        id: &DeviceId,
        run: BegunRun<'_>,
        proof: ProofKind,
        container: Option<&OpenContainer>,
    ) -> Result<Held, Doubt> {
        let limits = Limits::default();
        let path = self.node(id);
        let start = Region {
            offset: 0,
            length: id.size.min(1 << 20),
        };
        let (held, bytes) = Reader::again(held, &path, vec![start], limits)?.wait(limits.all, &mut |_| {})?;
        let beginning = bytes.head.get(..HEAD_BYTES).unwrap_or(&bytes.head);
        match self.judge(id, run, proof, beginning, container)? {
            Some(judge) => zero::write(held, &path, id, judge, limits),
            None => Err(doubt(
                "what a tool of that kind left cannot be told from other data".to_owned(),
                false,
            )),
        }
    }
}

/// Why something is not cleared.
pub(super) fn not_ours(left: &Left) -> String {
    match left {
        Left::Tool => "it is from our own tool".to_owned(),
        Left::User { trace } => format!("its filesystem was used since it was made: {trace}"),
        Left::Foreign { at } => format!("the byte at {at} is not from our own interrupted tool"),
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
