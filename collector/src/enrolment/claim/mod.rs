//! Asks an agent for its join token or node proof where its address does not say which VM it is, or
//! what its guest shows does not prove that, and finds the VM
//! (`docs/decisions/0034-join-tokens.md`, `0035-node-proof.md`).

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
use super::{Enroller, channel::EnrolmentChannel, failure::EnrolmentFailure, issue::IssueEnd};
use crate::{clock::unix_seconds, scrape::accept::UnverifiedPeer, tokens::JoinTokenBook};

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
        let claimed = self.checked_claim(&mut channel, address, Some(tokens));
        let failure = match tokio::time::timeout(self.timeout(), claimed).await {
            Ok(Ok(Some(claimed))) => return ClaimEnd::Vm(claimed),
            Ok(Ok(None)) => return ClaimEnd::Nothing,
            Ok(Err(failure)) => failure,
            Err(_) => {
                let message = format!("the agent at {address} did not answer in time");
                EnrolmentFailure::new(EnrolmentReason::Timeout, message)
            }
        };
        self.count_refusal(failure.reason);
        ClaimEnd::Refused(failure.as_failure())
    }

    /// Issues a certificate to the agent of `target`, whose address says which VM it is. If what
    /// its guest shows does not prove that, the agent is asked for its claim over the same
    /// connection: for a node proof if it can be checked, and for a join token if `tokens` are
    /// accepted over a connection that the agent has opened.
    pub(super) async fn issue_at_address(
        &self,
        target: &DialTarget,
        channel: &mut EnrolmentChannel<'_>,
        tokens: Option<&JoinTokenBook>,
    ) -> Result<IssueEnd, EnrolmentFailure> {
        let issuer = self.issuer();
        let not_proved = match issuer.issue(target, VmProof::Address, channel).await {
            Err(failure) if failure.reason == EnrolmentReason::NotProved => failure,
            ended => return ended,
        };
        if tokens.is_none() && !self.fleet().read(|index| index.has_node_authority(&target.key)) {
            return Err(not_proved);
        }
        let claimed = self.checked_claim(channel, target.address.ip(), tokens).await?;
        let Some(claimed) = claimed.filter(|claimed| claimed.vm == target.key) else {
            return Err(not_proved);
        };
        let ended = issuer.issue(target, VmProof::Shown, channel).await?;
        if let (IssueEnd::Delivered, Some(tokens), Some(id)) = (&ended, tokens, claimed.token) {
            tokens.used(&id, unix_seconds());
        }
        Ok(ended)
    }

    /// The VM of the agent's claim; none if it has neither token nor proof. Without `tokens` its
    /// token is not used.
    async fn checked_claim(
        &self,
        channel: &mut EnrolmentChannel<'_>,
        address: IpAddr,
        tokens: Option<&JoinTokenBook>,
    ) -> Result<Option<ClaimedVm>, EnrolmentFailure> {
        let claim = match channel.claim().await {
            Ok(claim) => claim,
            // An agent that does not know this request has nothing to show.
            Err(failure) if failure.reason == EnrolmentReason::NotOffered => return Ok(None),
            Err(failure) => return Err(failure),
        };
        let EnrolmentClaim {
            token,
            node_proof,
            evidence,
        } = claim;
        let (fleet, now) = (self.fleet(), unix_seconds());
        match (token.zip(tokens), node_proof) {
            (Some((text, tokens)), _) => {
                let token = tokens
                    .check(&text, address, now)
                    .map_err(|reason| join_token::failure(reason, address))?;
                let claimed = vm_of_join_token(fleet, &token, &evidence, address);
                if let Err(failure) = &claimed {
                    tokens.refused(Some(&token.id), failure.reason, address, now);
                }
                let token = Some(token.id);
                claimed.map(|vm| Some(ClaimedVm { vm, token }))
            }
            (None, Some(proof)) => vm_of_node_proof(fleet, &proof, &evidence, channel.key(), now)
                .map(|vm| Some(ClaimedVm { vm, token: None }))
                .map_err(|refusal| {
                    let message = format!("the agent at {address}: {refusal}");
                    EnrolmentFailure::new(EnrolmentReason::NodeProof, message)
                }),
            (None, None) => Ok(None),
        }
    }
}
