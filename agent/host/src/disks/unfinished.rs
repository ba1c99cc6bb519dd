//! The rest of the agent's own interrupted `mkfs`: identified by the journal, and cleared.

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

/// A disk that contains only what the agent's own `mkfs` left. It is locked and held exclusively.
#[derive(Debug)]
pub struct UnfinishedDisk {
    disk: BlankDisk,
    proof: ProofKind,
    entry: Entry,
    arguments: Vec<String>,
}

impl Disks<'_> {
    /// Probes again and compares with the journal's entry.
    ///
    /// Either the disk has the planned kind and UUID and the filesystem's own checker finds it
    /// incomplete, or it has no signature. In both cases every non-zero byte must be from the
    /// interrupted run of the agent's own tool.
    ///
    /// # Errors
    /// The journal does not record a begun tool, or the disk contains other data or is in use.
    pub fn claim_unfinished(
        &self,
        intent: &FormatIntent,
        entry: &Entry,
    ) -> Result<UnfinishedDisk, ClaimError> {
        let id = &intent.device;
        let limits = Limits::default();
        let begun = entry.progress == Progress::Intended;
        if !begun || entry.name != intent.name || planned(entry, &intent.filesystem) != Some(&intent.uuid) {
            let reason = "the journal does not record it as begun and not ended".to_owned();
            return Err(refused(id, reason, None));
        }
        let proof = match &entry.evidence {
            Evidence::Blank(blank) => blank.proof,
            Evidence::Approved { proof, .. } => *proof,
            Evidence::Found | Evidence::ErasedClone { .. } => {
                return Err(refused(
                    id,
                    "the journal records it as found, not as begun".to_owned(),
                    None,
                ));
            }
        };
        let run = BegunRun::of(entry, &intent.arguments);
        let probe = || self.prove(id, proof, limits, &mut |_, _| {}).map_err(unknown(id));
        let mut probed = probe()?;
        match &probed.probe {
            Probe::Blank(_) => {}
            Probe::Unknown(doubt) => return Err(unknown(id)(doubt.clone())),
            Probe::HasData(content) if content.is_known() => {
                // The checker may need exclusive access. The lock is kept, and the content after
                // the check must equal that before it.
                drop(probed.held.exclusive.take());
                self.ours(id, intent, content)?;
                let before = probed.probe.clone();
                drop(probed);
                probed = probe()?;
                if probed.probe != before {
                    return Err(refused(id, "it changed during the check".to_owned(), None));
                }
            }
            // Checked below, as everything is.
            Probe::HasData(_) => {}
        }
        if !matches!(probed.probe, Probe::Blank(_)) {
            let content = match probed.probe {
                Probe::HasData(content) => Some(content),
                Probe::Blank(_) | Probe::Unknown(_) => None,
            };
            let (held, left) = self
                .judged(probed.held, id, run, proof, None)
                .map_err(unknown(id))?;
            if left != Left::Tool {
                return Err(refused(id, not_ours(&left), content));
            }
            probed.held = held;
            probed.probe = Probe::HasData(content.unwrap_or_default());
        }
        let disk = self.hold(id, probed.held, limits)?;
        Ok(UnfinishedDisk {
            disk,
            proof,
            entry: entry.clone(),
            arguments: intent.arguments.clone(),
        })
    }

    /// The planned filesystem, incomplete.
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
                "it contains {} with the UUID {uuid:?}, which the agent did not begin",
                content.kind
            )));
        }
        if intent.filesystem == "luks2" {
            // cryptsetup writes the header in one step. A header that blkid recognizes is either
            // usable or damaged, and cannot be proven unusable.
            return Err(refuse("it has a complete LUKS header".to_owned()));
        }
        match check::is_intact(self.commands, &intent.filesystem, &self.node(id)) {
            Ok(false) => Ok(()),
            Ok(true) => Err(refuse(format!("its {} is complete", content.kind))),
            Err(error) => Err(refuse(format!(
                "cannot find out whether its {} is complete: {error}",
                content.kind
            ))),
        }
    }

    /// Zeroes the regions of the proof, the beginning last: until then, an interrupted run is still
    /// identified by its UUID. Then proves again that the disk is blank.
    ///
    /// # Errors
    /// The disk changed, cannot be written, or is not blank afterwards.
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
        // Data that others wrote elsewhere was not searched while the tool's remains were there.
        let limits = Limits::default();
        let budget = (proof == ProofKind::Timed).then_some(limits.budget);
        let probed = self
            .prove_with(&disk.id, proof, None, budget, limits, &mut |_, _| {})
            .map_err(|doubt| changed(doubt.reason))?;
        match probed.probe {
            Probe::Blank(blank) => Ok(blank),
            Probe::HasData(content) => Err(changed(format!(
                "after the clearing it contains {:?}",
                content.kind
            ))),
            Probe::Unknown(doubt) => Err(changed(doubt.reason)),
        }
    }
}

impl Disks<'_> {
    /// Zeroes what the interrupted run left, the beginning last. Each piece is read and checked
    /// once more right before it is cleared. A foreign byte ends the run with an error.
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
                "data of a tool of that kind cannot be distinguished from other data".to_owned(),
                false,
            )),
        }
    }
}

/// Why something is not cleared.
pub(super) fn not_ours(left: &Left) -> String {
    match left {
        Left::Tool => "it is from the agent's own tool".to_owned(),
        Left::User { trace } => format!("its filesystem was used after it was created: {trace}"),
        Left::Foreign { at } => format!("the byte at {at} is not from the agent's own interrupted tool"),
    }
}

/// The journaled UUID for that kind.
fn planned<'entry>(entry: &'entry Entry, filesystem: &str) -> Option<&'entry String> {
    if filesystem == "luks2" {
        entry.luks_uuid.as_ref()
    } else {
        Some(&entry.uuid)
    }
}
