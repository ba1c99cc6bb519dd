//! Decides whether an agent gets a certificate.

use virtfleet_wire::ids::Uid;

use super::{
    CsrExchange, EnrolmentCase, EnrolmentReason, EnrolmentRecord, EnrolmentState, EnrolmentSubject, VmProof,
};
use crate::{
    dial::DialTarget,
    expected::{ExpectedIdentity, MacMatch, usable},
    view::IdentityVerdict,
    way::AgentWay,
};

/// Host names of a kernel that has no name yet. They decide nothing.
const UNSET_HOSTNAMES: [&str; 4] = ["", "(none)", "localhost", "localhost.localdomain"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnrolmentDecision {
    /// Record the key, then sign a certificate for this UID.
    Sign(Uid),
    /// The key belongs to an earlier incarnation: ask the agent to replace it.
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
    let bound = case
        .record
        .filter(|record| record.is_of(case.dialled) && record.state == EnrolmentState::Enrolled);
    match (bound.and_then(|record| record.key_sha256), case.key_owner) {
        // Only this agent has the key, whatever its guest shows.
        (Some(key), _) if key == case.exchange.csr_key => Ok(EnrolmentDecision::Sign(uid)),
        (_, Some((owner, _))) if *owner != case.dialled.key => Err(EnrolmentReason::KeyOfAnotherVm),
        (_, Some((_, incarnation))) if *incarnation != uid => {
            check_proof(case, expected)?;
            if case.exchange.asked_to_replace {
                Err(EnrolmentReason::KeyOfAnotherVm)
            } else {
                Ok(EnrolmentDecision::ReplaceKey)
            }
        }
        (Some(_), _) => Err(EnrolmentReason::SecondKey),
        (None, _) => {
            check_proof(case, expected)?;
            Ok(EnrolmentDecision::Sign(uid))
        }
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

/// Whether something positive says that the first key is that of the VM: evidence that is missing
/// is no agreement.
///
/// - A join token or a node proof was checked before.
/// - A dialled port is held by root's part of the guest. But whoever has a VM may forward its port
///   to the agent of another one. So the guest must show the SMBIOS UUID of this VM and of no
///   other, or all MAC addresses of this VM and of no other.
/// - Every process of the guest can connect from its address, and a relay can answer itself. There
///   the guest must show what only root reads: the UUID, unless it follows from the VM's name.
fn check_proof(case: &EnrolmentCase<'_>, expected: &ExpectedIdentity) -> Result<(), EnrolmentReason> {
    let evidence = case.exchange.evidence;
    let macs = usable(evidence.macs.iter().copied());
    let others = case.others_like;
    let has_all_macs_of = |vm: &ExpectedIdentity| vm.compare_macs(&macs) == MacMatch::All;
    let uuid = expected.compare_uuid(evidence.smbios_uuid);
    let fits = match uuid {
        IdentityVerdict::Confirmed => {
            others.is_empty() || has_all_macs_of(expected) && !others.iter().any(has_all_macs_of)
        }
        IdentityVerdict::Unknown => others.is_empty() && has_all_macs_of(expected),
        IdentityVerdict::Disagrees => false,
    };
    let is_proved = match (case.proof, &case.dialled.way) {
        (VmProof::Shown, _) => true,
        (VmProof::Address, AgentWay::Direct) => fits,
        (VmProof::Address, AgentWay::Relay(_) | AgentWay::Push { .. }) => {
            let is_secret = expected.uuid.is_some_and(|uuid| !uuid.is_of_name());
            fits && uuid == IdentityVerdict::Confirmed && is_secret
        }
    };
    is_proved.then_some(()).ok_or(EnrolmentReason::NotProved)
}

/// A value that either side lacks contradicts nothing.
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
