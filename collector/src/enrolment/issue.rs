//! Issues one certificate over one connection: asks for a CSR, decides, signs, records, delivers.

use std::{sync::Arc, time::Duration};

use ring::rand::{SecureRandom as _, SystemRandom};
use virtfleet_collector_core::{
    dial::DialTarget,
    enrolment::{
        CsrExchange, EnrolmentCase, EnrolmentDecision, EnrolmentReason, EnrolmentRecord, EnrolmentState,
        EnrolmentSubject, KeyFingerprint, RecordConflict, VmProof, decide, identity_uid,
    },
};
use virtfleet_runtime::tls::{AGENT_DNS_NAME, Validity, VmIdentity};
use virtfleet_wire::{
    enrolment::{EnrolmentAnswer, EnrolmentEvidence, EnrolmentRequest, IssuedCertificate, Nonce},
    ids::{MacAddr, VmKey},
};

use super::{
    EnrolmentMetrics, SigningAuthority,
    channel::{CsrAnswer, EnrolmentChannel},
    failure::EnrolmentFailure,
    records::{RecordBook, RecordError},
};
use crate::{
    ca::{Csr, SignedCertificate, read_csr},
    clock::unix_seconds,
    fleet::Fleet,
};

/// Certificates are valid from so long before their issue, because clocks of guests differ; for
/// short lifetimes from a part of the lifetime.
const CLOCK_TOLERANCE: Duration = Duration::from_hours(1);
/// Part of the lifetime that [`CLOCK_TOLERANCE`] may be.
const TOLERANCE_DIVISOR: u64 = 24;
/// Requests for a CSR over one connection: one more after another process changed a record, one
/// more to replace the key.
const MAX_REQUESTS: usize = 3;
/// Values listed in a message.
const MAX_LISTED: usize = 8;

/// Issues certificates.
#[derive(Debug)]
pub(super) struct Issuer {
    pub(super) fleet: Arc<Fleet>,
    pub(super) trust_domain: String,
    pub(super) authority: SigningAuthority,
    pub(super) records: RecordBook,
    pub(super) metrics: EnrolmentMetrics,
    pub(super) lifetime: Duration,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum IssueEnd {
    /// The agent has its certificate.
    Delivered,
    /// The agent has replaced its key: connect again.
    KeyReplaced,
}

/// A CSR that fits one request.
struct AnsweredCsr {
    csr: Csr,
    key: KeyFingerprint,
    evidence: EnrolmentEvidence,
    nonce: Nonce,
    asked_to_replace: bool,
    connection_key: KeyFingerprint,
}

impl Issuer {
    /// Issues a certificate to the agent at the other end of `channel`; `proof` says which VM it
    /// is.
    pub(super) async fn issue(
        &self,
        target: &DialTarget,
        proof: VmProof,
        channel: &mut EnrolmentChannel<'_>,
    ) -> Result<IssueEnd, EnrolmentFailure> {
        let mut asked_to_replace = false;
        for _ in 0..MAX_REQUESTS {
            let identity = self.identity(target, proof)?;
            let request = EnrolmentRequest {
                identity: identity.to_uri(),
                nonce: nonce()?,
                replace_key: asked_to_replace,
            };
            let answer = match channel.request(&request).await? {
                CsrAnswer::KeyReplaced => return Ok(IssueEnd::KeyReplaced),
                CsrAnswer::Csr(answer) => *answer,
            };
            let answered = read(answer, request.nonce, asked_to_replace, channel.key())?;
            match self.decide(target, proof, &identity, &answered).await {
                EnrolmentDecision::Sign(uid) if uid == identity.uid => {}
                // The record changed since the request.
                EnrolmentDecision::Sign(_) => continue,
                EnrolmentDecision::ReplaceKey => {
                    asked_to_replace = true;
                    continue;
                }
                EnrolmentDecision::Refuse(reason) => {
                    let subject = self.fleet.read(|index| index.enrolment_subject(target, proof));
                    return Err(explain(
                        reason,
                        target,
                        subject.as_ref(),
                        Some(&answered.evidence),
                    ));
                }
            }
            let signed = self.sign(&answered, &identity)?;
            match self.record(target, &answered, &identity, &signed).await {
                Ok(()) => {}
                Err(RecordError::Conflict(RecordConflict::Full)) => {
                    let message = "too many keys are recorded, and all of them are of VMs that exist";
                    return Err(EnrolmentFailure::new(EnrolmentReason::NotRecorded, message));
                }
                Err(RecordError::Conflict(_)) => continue,
                Err(RecordError::Failed(error)) => {
                    let message = format!("the key could not be recorded: {error}");
                    return Err(EnrolmentFailure::new(EnrolmentReason::NotRecorded, message));
                }
            }
            let issued = IssuedCertificate {
                certificate: signed.chain_pem,
                client_authorities: self.authority.current().client_roots_pem(),
            };
            channel.deliver(&issued).await?;
            return Ok(IssueEnd::Delivered);
        }
        let message = "the record of the VM changes all the time";
        Err(EnrolmentFailure::new(EnrolmentReason::NotRecorded, message))
    }

    fn identity(&self, target: &DialTarget, proof: VmProof) -> Result<VmIdentity, EnrolmentFailure> {
        let subject = self.fleet.read(|index| index.enrolment_subject(target, proof));
        let record = self.records.get(&target.key);
        let uid = identity_uid(target, subject.as_ref(), record.as_ref())
            .map_err(|reason| explain(reason, target, subject.as_ref(), None))?;
        Ok(VmIdentity {
            trust_domain: self.trust_domain.clone(),
            namespace: target.key.namespace.clone(),
            name: target.key.name.clone(),
            uid,
        })
    }

    /// Decides with what is known now: it may have changed since the request.
    async fn decide(
        &self,
        target: &DialTarget,
        proof: VmProof,
        identity: &VmIdentity,
        answered: &AnsweredCsr,
    ) -> EnrolmentDecision {
        let decision = self.decide_now(target, proof, identity, answered);
        // An admin may have edited the record in the store, or this process may have missed a
        // change of the leader.
        if decision == EnrolmentDecision::Refuse(EnrolmentReason::SecondKey)
            && self.records.refresh(&target.key).await.is_ok()
        {
            return self.decide_now(target, proof, identity, answered);
        }
        decision
    }

    fn decide_now(
        &self,
        target: &DialTarget,
        proof: VmProof,
        identity: &VmIdentity,
        answered: &AnsweredCsr,
    ) -> EnrolmentDecision {
        let owner = self.records.owner_of(answered.key, &target.key);
        let (others_like, subject) = self.fleet.read(|index| {
            let others_like = index.others_like(&answered.evidence, &target.key);
            (others_like, index.enrolment_subject(target, proof))
        });
        decide(&EnrolmentCase {
            dialled: target,
            proof,
            others_like: &others_like,
            subject: subject.as_ref(),
            record: self.records.get(&target.key).as_ref(),
            key_owner: owner.as_ref().map(|(vm, uid)| (vm, uid)),
            allowed_names: &[identity.to_uri(), AGENT_DNS_NAME.to_owned()],
            exchange: CsrExchange {
                nonce: &answered.nonce,
                asked_to_replace: answered.asked_to_replace,
                evidence: &answered.evidence,
                csr_key: answered.key,
                challenge: answered.csr.challenge(),
                names: answered.csr.names(),
                connection_key: answered.connection_key,
            },
        })
    }

    fn sign(
        &self,
        answered: &AnsweredCsr,
        identity: &VmIdentity,
    ) -> Result<SignedCertificate, EnrolmentFailure> {
        let (now, lifetime) = (unix_seconds(), self.lifetime.as_secs());
        let tolerance = CLOCK_TOLERANCE.as_secs().min(lifetime / TOLERANCE_DIVISOR);
        let validity = Validity {
            not_before: now.saturating_sub(tolerance),
            not_after: now.saturating_add(lifetime),
        };
        self.authority
            .current()
            .sign_agent(answered.csr.key(), identity, validity)
            .map_err(|error| EnrolmentFailure::new(EnrolmentReason::NotSigned, error))
    }

    async fn record(
        &self,
        target: &DialTarget,
        answered: &AnsweredCsr,
        identity: &VmIdentity,
        signed: &SignedCertificate,
    ) -> Result<(), RecordError> {
        let known = self.records.get(&target.key);
        let renewed = known.as_ref().filter(|known| {
            known.uid == identity.uid
                && known.key_sha256 == Some(answered.key)
                && known.state == EnrolmentState::Enrolled
        });
        let new = EnrolmentRecord {
            uid: identity.uid.clone(),
            key_sha256: Some(answered.key),
            serial: Some(signed.serial.to_string()),
            not_after: signed.validity.not_after,
            enrolled_at: renewed.map_or_else(unix_seconds, |known| known.enrolled_at),
            state: EnrolmentState::Enrolled,
        };
        if renewed.is_some() {
            // The key is in the store already.
            self.records.put_soon(&target.key, known, Some(new)).await;
            return Ok(());
        }
        match self
            .records
            .put(&target.key, known.clone(), Some(new.clone()))
            .await
        {
            Err(RecordError::Conflict(RecordConflict::Full)) => {
                self.remove_records(true).await;
                self.records.put(&target.key, known, Some(new)).await
            }
            other => other,
        }
    }

    /// Removes records of VMs that are gone: those whose certificates have expired, or all.
    pub(super) async fn remove_records(&self, also_valid: bool) {
        let removable = {
            let records = self.records.read();
            let is_gone = |vm: &VmKey| !self.fleet.read(|index| index.has_vm(vm));
            records.removable(unix_seconds(), also_valid, is_gone)
        };
        for vm in removable {
            let record = self.records.get(&vm);
            self.records.put_soon(&vm, record, None).await;
        }
    }
}

fn read(
    answer: EnrolmentAnswer,
    nonce: Nonce,
    asked_to_replace: bool,
    connection_key: KeyFingerprint,
) -> Result<AnsweredCsr, EnrolmentFailure> {
    let csr =
        read_csr(&answer.csr).map_err(|error| EnrolmentFailure::new(EnrolmentReason::Malformed, error))?;
    let key = csr
        .key_sha256()
        .parse()
        .map_err(|error| EnrolmentFailure::new(EnrolmentReason::Malformed, error))?;
    Ok(AnsweredCsr {
        csr,
        key,
        evidence: answer.evidence,
        nonce,
        asked_to_replace,
        connection_key,
    })
}

fn nonce() -> Result<Nonce, EnrolmentFailure> {
    let mut bytes = [0; 32];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| EnrolmentFailure::new(EnrolmentReason::NotSigned, "the system has no random numbers"))?;
    Ok(Nonce::from_bytes(bytes))
}

/// The refusal with the values that differ.
pub(super) fn explain(
    reason: EnrolmentReason,
    target: &DialTarget,
    subject: Option<&EnrolmentSubject>,
    evidence: Option<&EnrolmentEvidence>,
) -> EnrolmentFailure {
    let (key, address) = (&target.key, target.address);
    let expected = subject.map(|subject| &subject.expected);
    let message = match reason {
        EnrolmentReason::NotDialled => {
            format!("{key} was dialled at {address}, and is gone or has changed since")
        }
        EnrolmentReason::NoUid => format!("neither the VirtualMachine nor the VMI of {key} has a UID"),
        EnrolmentReason::AddressShared => {
            let sharers = subject.map(|subject| list(&subject.sharers)).unwrap_or_default();
            format!("{address} is the address of {key} and of {sharers}")
        }
        EnrolmentReason::UuidDiffers => format!(
            "the guest at {address} has the SMBIOS UUID {}, and the VMI of {key} has {}",
            text(evidence.and_then(|evidence| evidence.smbios_uuid)),
            text(expected.and_then(|expected| expected.uuid)),
        ),
        EnrolmentReason::MacDiffers => format!(
            "the guest at {address} has the MAC addresses {}, and the VMI of {key} has {}",
            evidence.map(|evidence| list(&evidence.macs)).unwrap_or_default(),
            expected
                .map(|expected| list(&expected.macs.iter().copied().collect::<Vec<MacAddr>>()))
                .unwrap_or_default(),
        ),
        EnrolmentReason::HostnameDiffers => format!(
            "the guest at {address} has the host name {:?}, and the VMI of {key} has {:?}",
            evidence
                .and_then(|evidence| evidence.hostname.as_deref())
                .unwrap_or_default(),
            expected.map_or("", |expected| expected.hostname.as_str()),
        ),
        EnrolmentReason::NotProved => {
            let shown = text(evidence.and_then(|evidence| evidence.smbios_uuid));
            format!("the guest at {address} shows nothing that only {key} has; its SMBIOS UUID is {shown}")
        }
        EnrolmentReason::NonceDiffers => {
            format!("the CSR from {address} does not have the nonce that was sent")
        }
        EnrolmentReason::KeyNotOfConnection => {
            format!("the CSR from {address} is for another key than the one that serves the connection")
        }
        EnrolmentReason::NamesDiffer => {
            format!("the CSR from {address} asks for other names than those of {key}")
        }
        EnrolmentReason::SecondKey => format!("{address} has another key than the one recorded for {key}"),
        EnrolmentReason::KeyOfAnotherVm => {
            format!("{address} has the key of another VM or of an earlier {key}")
        }
        EnrolmentReason::Revoked => format!("{key} is revoked"),
        other => format!("{key} at {address}: {}", other.as_str()),
    };
    EnrolmentFailure::new(reason, message)
}

fn text(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}

fn list(values: &[impl ToString]) -> String {
    let mut listed: Vec<String> = values.iter().take(MAX_LISTED).map(ToString::to_string).collect();
    if values.len() > MAX_LISTED {
        listed.push("…".to_owned());
    }
    listed.join(", ")
}
