//! Asks an agent that has connected from an address of no VM for its join token or node proof, and
//! finds the VM that it says it is (`docs/decisions/0034-join-tokens.md`, `0035-node-proof.md`).

mod join_token;
mod node_proof;

use std::net::IpAddr;

use virtfleet_collector_core::{
    dial::DialTarget,
    enrolment::{EnrolmentReason, VmProof},
    join_token::JoinTokenId,
    pull_result::Failure,
};
use virtfleet_wire::{enrolment::EnrolmentClaim, ids::VmKey};

use self::{join_token::vm_of_join_token, node_proof::vm_of_node_proof};
use super::{Enroller, channel::EnrolmentChannel, failure::EnrolmentFailure};
use crate::{clock::unix_seconds, scrape::accept::UnverifiedPeer, tokens::JoinTokenBook};

/// The end of a claim.
#[derive(Debug)]
pub(crate) enum ClaimEnd {
    /// The token or the proof allows this VM to enrol. Everything else is checked as for every
    /// enrolment.
    Vm(ClaimedVm),
    /// The agent has neither, or does not know this request.
    Nothing,
    /// The token, the proof or the claim is refused.
    Refused(Failure),
}

/// The VM that an agent says it is, and its token; none with a node proof.
#[derive(Debug)]
pub(crate) struct ClaimedVm {
    pub(crate) vm: VmKey,
    pub(crate) token: Option<JoinTokenId>,
}

impl Enroller {
    /// Asks the agent that connected from `address` for its claim, and checks the token or, without
    /// one, the node proof.
    pub(crate) async fn claim(
        &self,
        peer: &mut UnverifiedPeer,
        address: IpAddr,
        tokens: &JoinTokenBook,
    ) -> ClaimEnd {
        let mut channel = EnrolmentChannel::new(&mut peer.transport, peer.key);
        let claim = match tokio::time::timeout(self.timeout(), channel.claim()).await {
            Ok(Ok(claim)) => claim,
            Ok(Err(failure)) if failure.reason == EnrolmentReason::NotOffered => return ClaimEnd::Nothing,
            Ok(Err(failure)) => return self.refuse(&failure),
            Err(_) => {
                let message = format!("the agent at {address} did not answer in time");
                return self.refuse(&EnrolmentFailure::new(EnrolmentReason::Timeout, message));
            }
        };
        let EnrolmentClaim {
            token,
            node_proof,
            evidence,
        } = claim;
        let (fleet, now) = (self.fleet(), unix_seconds());
        let found = match (token, node_proof) {
            (Some(text), _) => tokens
                .check(&text, address, now)
                .map_err(|reason| join_token::failure(reason, address))
                .and_then(|token| {
                    let claimed = vm_of_join_token(fleet, &token, &evidence, address);
                    if let Err(failure) = &claimed {
                        tokens.refused(Some(&token.id), failure.reason, address, now);
                    }
                    let token = Some(token.id);
                    claimed.map(|vm| ClaimedVm { vm, token })
                }),
            (None, Some(proof)) => vm_of_node_proof(fleet, &proof, &evidence, peer.key, now)
                .map(|vm| ClaimedVm { vm, token: None })
                .map_err(|refusal| {
                    let message = format!("the agent at {address}: {refusal}");
                    EnrolmentFailure::new(EnrolmentReason::NodeProof, message)
                }),
            (None, None) => return ClaimEnd::Nothing,
        };
        match found {
            Ok(claimed) => ClaimEnd::Vm(claimed),
            Err(failure) => self.refuse(&failure),
        }
    }

    /// What says that the agent behind a relay is that of `target`: a node proof, if it shows one
    /// for this VM. The relay could answer itself, so its address says nothing alone.
    pub(super) async fn proof_over_relay(
        &self,
        target: &DialTarget,
        channel: &mut EnrolmentChannel<'_>,
    ) -> Result<VmProof, EnrolmentFailure> {
        let claim = match channel.claim().await {
            Ok(claim) => claim,
            // The request for a CSR gets the same answer.
            Err(failure) if failure.reason == EnrolmentReason::NotOffered => return Ok(VmProof::Address),
            Err(failure) => return Err(failure),
        };
        let (key, now) = (channel.key(), unix_seconds());
        let proved = claim
            .node_proof
            .and_then(|proof| vm_of_node_proof(self.fleet(), &proof, &claim.evidence, key, now).ok());
        Ok(if proved.as_ref() == Some(&target.key) {
            VmProof::Shown
        } else {
            VmProof::Address
        })
    }

    fn refuse(&self, failure: &EnrolmentFailure) -> ClaimEnd {
        self.count_refusal(failure.reason);
        ClaimEnd::Refused(failure.as_failure())
    }
}
