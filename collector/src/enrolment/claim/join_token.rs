//! Checks a join token's networks, and finds the VM of its user cluster (decision 0034).

use std::net::IpAddr;

use virtfleet_collector_core::{enrolment::EnrolmentReason, join_token::JoinToken};
use virtfleet_wire::{enrolment::EnrolmentEvidence, ids::VmKey};

use crate::{enrolment::failure::EnrolmentFailure, fleet::Fleet};

/// The VM of the token's user cluster that the evidence names, if the token is accepted from
/// `address`.
pub(super) fn vm_of_join_token(
    fleet: &Fleet,
    token: &JoinToken,
    evidence: &EnrolmentEvidence,
    address: IpAddr,
) -> Result<VmKey, EnrolmentFailure> {
    let refused = |reason| {
        let message = format!("{} ({})", message(reason, address), token.id);
        EnrolmentFailure::new(reason, message)
    };
    // Before the VM is looked up, so that a stolen token tells nothing.
    if !token.networks.is_empty() {
        token.check_address(address, false).map_err(refused)?;
    }
    let vm = evidence
        .smbios_uuid
        .and_then(|uuid| fleet.read(|index| index.vm_with_uuid(&token.cluster, uuid)))
        .ok_or_else(|| refused(EnrolmentReason::NoSuchVm))?;
    let is_at = fleet.read(|index| index.is_at(&vm, address));
    token.check_address(address, is_at).map_err(refused)?;
    Ok(vm)
}

/// The failure for a token that is not accepted at all.
pub(super) fn failure(reason: EnrolmentReason, address: IpAddr) -> EnrolmentFailure {
    EnrolmentFailure::new(reason, message(reason, address))
}

fn message(reason: EnrolmentReason, address: IpAddr) -> String {
    match reason {
        EnrolmentReason::TokenInvalid => {
            format!("the join token of the agent at {address} is unknown or revoked")
        }
        EnrolmentReason::TokenExpired => format!("the join token of the agent at {address} has expired"),
        EnrolmentReason::TokenAddress => format!("the join token is not accepted from {address}"),
        EnrolmentReason::NoSuchVm => format!(
            "no VM, or several, of the join token's user cluster have the SMBIOS UUID of the guest at {address}"
        ),
        other => format!("the join token of the agent at {address}: {}", other.as_str()),
    }
}
