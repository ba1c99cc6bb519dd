//! Decides whether an agent gets a certificate.

use virtfleet_wire::ids::{Uid, VmKey};

use super::{CsrExchange, EnrolmentCase, EnrolmentReason, EnrolmentRecord, EnrolmentState, EnrolmentSubject};
use crate::{
    dial::DialTarget,
    expected::{ExpectedIdentity, MacMatch, usable},
    view::IdentityVerdict,
};

/// Host names of a kernel that has no name yet. They decide nothing.
const UNSET_HOSTNAMES: [&str; 4] = ["", "(none)", "localhost", "localhost.localdomain"];

/// What to do with a CSR.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnrolmentDecision {
    /// Record the key, then sign a certificate for this UID.
    Sign(Uid),
    /// The key belongs to another VM or incarnation: ask the agent to replace it.
    ReplaceKey,
    /// No certificate.
    Refuse(EnrolmentReason),
}

/// The UID that a certificate for this VM has: the recorded one while that incarnation exists, else
/// the UID of its VirtualMachine, else of its VMI.
///
/// # Errors
/// The VM is revoked, shares its address, was replaced since `dialled`, or has no UID. Then nothing
/// needs to be sent to its agent.
pub fn identity_uid(
    dialled: &DialTarget,
    subject: Option<&EnrolmentSubject>,
    record: Option<&EnrolmentRecord>,
) -> Result<Uid, EnrolmentReason> {
    let subject = subject
        .filter(|subject| subject.target == *dialled)
        .ok_or(EnrolmentReason::NotDialled)?;
    let record = record.filter(|record| record.is_of(dialled));
    if record.is_some_and(|record| record.state == EnrolmentState::Revoked) {
        return Err(EnrolmentReason::Revoked);
    }
    if !subject.sharers.is_empty() {
        return Err(EnrolmentReason::AddressShared);
    }
    record
        .map(|record| &record.uid)
        .or(dialled.incarnation())
        .cloned()
        .ok_or(EnrolmentReason::NoUid)
}

/// Decides about one CSR.
pub fn decide(case: &EnrolmentCase<'_>) -> EnrolmentDecision {
    match checked(case) {
        Ok(decision) => decision,
        Err(reason) => EnrolmentDecision::Refuse(reason),
    }
}

fn checked(case: &EnrolmentCase<'_>) -> Result<EnrolmentDecision, EnrolmentReason> {
    let uid = identity_uid(case.dialled, case.subject, case.record)?;
    let expected = &case.subject.ok_or(EnrolmentReason::NotDialled)?.expected;
    check_csr(case)?;
    check_evidence(expected, &case.exchange)?;
    let is_own = |(vm, incarnation): (&VmKey, &Uid)| *vm == case.dialled.key && *incarnation == uid;
    if case.key_owner.is_some_and(|owner| !is_own(owner)) {
        return if case.exchange.asked_to_replace {
            Err(EnrolmentReason::KeyOfAnotherVm)
        } else {
            Ok(EnrolmentDecision::ReplaceKey)
        };
    }
    let bound = case
        .record
        .filter(|record| record.is_of(case.dialled) && record.state == EnrolmentState::Enrolled);
    match bound.and_then(|record| record.key_sha256) {
        Some(key) if key != case.exchange.csr_key => Err(EnrolmentReason::SecondKey),
        _ => Ok(EnrolmentDecision::Sign(uid)),
    }
}

fn check_csr(case: &EnrolmentCase<'_>) -> Result<(), EnrolmentReason> {
    let exchange = &case.exchange;
    if exchange.challenge != Some(exchange.nonce.as_str()) {
        Err(EnrolmentReason::NonceDiffers)
    } else if exchange.csr_key != exchange.connection_key {
        Err(EnrolmentReason::KeyNotOfConnection)
    } else if exchange
        .names
        .iter()
        .any(|name| !case.allowed_names.contains(name))
    {
        Err(EnrolmentReason::NamesDiffer)
    } else {
        Ok(())
    }
}

/// A value that either side lacks decides nothing.
fn check_evidence(expected: &ExpectedIdentity, exchange: &CsrExchange<'_>) -> Result<(), EnrolmentReason> {
    let evidence = exchange.evidence;
    let hostname = evidence.hostname.as_deref();
    let hostname = hostname.filter(|name| !UNSET_HOSTNAMES.contains(name));
    if expected.compare_uuid(evidence.smbios_uuid) == IdentityVerdict::Disagrees {
        Err(EnrolmentReason::UuidDiffers)
    } else if expected.compare_macs(&usable(evidence.macs.iter().copied())) == MacMatch::None {
        Err(EnrolmentReason::MacDiffers)
    } else if expected.compare_hostname(hostname) == IdentityVerdict::Disagrees {
        Err(EnrolmentReason::HostnameDiffers)
    } else {
        Ok(())
    }
}
