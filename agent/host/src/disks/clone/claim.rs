//! The second comparison of a clone, right before it is erased.

use std::{path::PathBuf, time::Duration};

use virtfleet_agent_core::disks::{
    DeviceId, Use, WritesSince,
    clone::{CloneProof, CloneState, Deviation, EraseIntent, Fingerprint},
};
use virtfleet_wire::settings::ProofKind;

use super::{
    super::{
        ClaimError, Disks,
        claim::{refused, unknown},
        reader::Held,
    },
    compare::{UnfinishedErasure, image},
};

/// A disk that was just proven to be an untouched clone, or the rest of a clone whose erasure the
/// agent began. It is locked and held exclusively. [`Disks::erase_clone`] consumes it.
#[derive(Debug)]
pub struct ClaimedClone {
    pub(super) held: Held,
    pub(super) path: PathBuf,
    pub(super) id: DeviceId,
    /// The proof made now, or the proof of the erasure in progress.
    pub(super) proof: CloneProof,
    /// Digest of each block that the image contains or contained.
    pub(super) print: Fingerprint,
    pub(super) kind: ProofKind,
}

impl ClaimedClone {
    /// Why it may be erased.
    pub fn proof(&self) -> &CloneProof {
        &self.proof
    }

    /// Digests of the blocks, to be journaled before the first byte is erased.
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.print
    }
}

impl Disks<'_> {
    /// Compares the disk again under the lock and an exclusive open, checks it against the intent,
    /// and computes the digests of all blocks.
    ///
    /// What a timed proof read behind the image is not read again if the write counters show no
    /// write since. If they are inconclusive, it is read for another `budget`.
    ///
    /// # Errors
    /// The device or its content differs from the intent, or the device is in use.
    pub fn claim_clone(
        &self,
        intent: &EraseIntent,
        kind: ProofKind,
        budget: Duration,
        begun: Option<UnfinishedErasure>,
    ) -> Result<ClaimedClone, ClaimError> {
        let id = &intent.device;
        let device = self.devices()?.into_iter().find(|device| device.id == *id);
        let Some(device) = device else {
            return Err(refused(id, "it is now a different device".to_owned(), None));
        };
        let used = device.uses.iter().find(|used| !matches!(used, Use::Partition(_)));
        if device.carries_system || device.read_only || used.is_some() {
            return Err(refused(
                id,
                "it is in use, read-only, or carries the system".to_owned(),
                None,
            ));
        }
        let against = self
            .against(&device, kind, budget, begun.clone())
            .map_err(|deviation| refused(id, deviation.sentence(), None))?;
        let region = (!intent.resume).then(|| image(id.size, intent.proof.image_bytes));
        let (held, judged) = self
            .judge_clone(id, against.clone().without_time(), region, &mut |_| {})
            .map_err(unknown(id))?;
        let (held, judged) = match held.mark.since(&intent.proof.writes) {
            WritesSince::None => (held, judged),
            WritesSince::Some(what) => {
                return Err(refused(
                    id,
                    format!("since it was read for the plan, {what}"),
                    None,
                ));
            }
            WritesSince::Unknown(_) if kind == ProofKind::Timed => {
                drop(held);
                self.judge_clone(id, against, region, &mut |_| {})
                    .map_err(unknown(id))?
            }
            WritesSince::Unknown(_) => (held, judged),
        };
        self.check_unopened(id).map_err(unknown(id))?;
        let path = self.node(id);
        let (proof, print) = match (judged.state, begun, judged.print) {
            (Some(CloneState::Interrupted { proof, .. }), Some((_, print)), _) if intent.resume => {
                (proof, print)
            }
            (Some(CloneState::Untouched(proof)), _, Some(print)) => (proof, print),
            (Some(CloneState::Refused { deviations }), ..) => {
                let all: Vec<String> = deviations.iter().map(Deviation::sentence).collect();
                return Err(refused(id, all.join("; "), None));
            }
            (Some(CloneState::Unknown(doubt)), ..) => return Err(unknown(id)(doubt)),
            _ => return Err(refused(id, "it is no longer the planned clone".to_owned(), None)),
        };
        if proof.digest != intent.proof.digest || proof.image_bytes != intent.proof.image_bytes {
            return Err(refused(id, "it is not the planned clone".to_owned(), None));
        }
        Ok(ClaimedClone {
            held,
            path,
            id: id.clone(),
            proof,
            print,
            kind,
        })
    }
}
