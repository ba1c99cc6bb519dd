//! Asks an agent that has connected from an address of no VM for its join token or node proof, and
//! finds the VM that it says it is (`docs/decisions/0034-join-tokens.md`, `0035-node-proof.md`).

use std::net::IpAddr;

use virtfleet_collector_core::{
    enrolment::EnrolmentReason,
    join_token::{JoinToken, JoinTokenId},
    pull_result::Failure,
};
use virtfleet_wire::{
    enrolment::{EnrolmentClaim, EnrolmentEvidence},
    ids::VmKey,
};

use super::{Enroller, channel::EnrolmentChannel, failure::EnrolmentFailure, node_proof::vm_of_node_proof};
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
        let found = match (token, node_proof) {
            (Some(text), _) => tokens
                .check(&text, address, unix_seconds())
                .map_err(|reason| EnrolmentFailure::new(reason, token_message(reason, address)))
                .and_then(|token| {
                    let claimed = self.claimed(&token, &evidence, address);
                    if let Err(failure) = &claimed {
                        tokens.refused(Some(&token.id), failure.reason, address, unix_seconds());
                    }
                    let token = Some(token.id);
                    claimed.map(|vm| ClaimedVm { vm, token })
                }),
            (None, Some(proof)) => {
                vm_of_node_proof(self.fleet(), &proof, &evidence, peer.key, unix_seconds())
                    .map(|vm| ClaimedVm { vm, token: None })
                    .map_err(|refusal| {
                        let message = format!("the agent at {address}: {refusal}");
                        EnrolmentFailure::new(EnrolmentReason::NodeProof, message)
                    })
            }
            (None, None) => return ClaimEnd::Nothing,
        };
        match found {
            Ok(claimed) => ClaimEnd::Vm(claimed),
            Err(failure) => self.refuse(&failure),
        }
    }

    /// The VM of the token's user cluster that the evidence names, if the token is accepted from
    /// this address.
    fn claimed(
        &self,
        token: &JoinToken,
        evidence: &EnrolmentEvidence,
        address: IpAddr,
    ) -> Result<VmKey, EnrolmentFailure> {
        let refused = |reason| {
            EnrolmentFailure::new(
                reason,
                format!("{} ({})", token_message(reason, address), token.id),
            )
        };
        // Before the VM is looked up, so that a stolen token tells nothing.
        if !token.networks.is_empty() {
            token.check_address(address, false).map_err(refused)?;
        }
        let fleet = self.fleet();
        let vm = evidence
            .smbios_uuid
            .and_then(|uuid| fleet.vm_with_uuid(&token.cluster, uuid))
            .ok_or_else(|| refused(EnrolmentReason::NoSuchVm))?;
        token
            .check_address(address, fleet.is_at(&vm, address))
            .map_err(refused)?;
        Ok(vm)
    }

    fn refuse(&self, failure: &EnrolmentFailure) -> ClaimEnd {
        self.count_refusal(failure.reason);
        ClaimEnd::Refused(failure.as_failure())
    }
}

fn token_message(reason: EnrolmentReason, address: IpAddr) -> String {
    match reason {
        EnrolmentReason::TokenInvalid => {
            format!("the join token of the agent at {address} is unknown, or was revoked")
        }
        EnrolmentReason::TokenExpired => format!("the join token of the agent at {address} has expired"),
        EnrolmentReason::TokenAddress => format!("the join token is not accepted from {address}"),
        EnrolmentReason::NoSuchVm => format!(
            "no VM, or several, of the join token's user cluster have the SMBIOS UUID of the guest at {address}"
        ),
        other => format!("the join token of the agent at {address}: {}", other.as_str()),
    }
}
