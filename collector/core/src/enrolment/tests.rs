//! Tests of the decision: a table of cases, and properties of random histories.

mod properties;
mod table;

use virtfleet_wire::{
    enrolment::{EnrolmentEvidence, Nonce},
    ids::{MacAddr, Uid, VmKey},
};

use super::{
    CsrExchange, EnrolmentCase, EnrolmentDecision, EnrolmentRecord, EnrolmentState, EnrolmentSubject,
    KeyFingerprint, VmProof, decide,
};
use crate::{dial::DialTarget, expected::ExpectedIdentity, store::tests::key, way::AgentWay};

const UUID: &str = "5d307ca9-b3ef-428c-8861-06e72d69f223";

fn fingerprint(number: u8) -> KeyFingerprint {
    KeyFingerprint::from_bytes([number; 32])
}

fn uid(text: &str) -> Uid {
    text.parse().unwrap()
}

fn mac(number: u8) -> MacAddr {
    format!("02:00:00:00:00:{number:02x}").parse().unwrap()
}

fn target() -> DialTarget {
    DialTarget {
        way: AgentWay::Direct,
        key: key("ns", "a"),
        uid: Some(uid("vmi-1")),
        vm_uid: Some(uid("vm-1")),
        address: "10.0.0.1:10911".parse().unwrap(),
    }
}

fn record(uid_text: &str, key_number: u8) -> EnrolmentRecord {
    EnrolmentRecord {
        uid: uid(uid_text),
        key_sha256: Some(fingerprint(key_number)),
        serial: Some("4a".to_owned()),
        not_after: 1000,
        enrolled_at: 1,
        state: EnrolmentState::Enrolled,
    }
}

/// A case of an honest VM that enrols for the first time; tests change it.
#[derive(Clone)]
struct Case {
    dialled: DialTarget,
    proof: VmProof,
    others_like: Vec<ExpectedIdentity>,
    subject: Option<EnrolmentSubject>,
    record: Option<EnrolmentRecord>,
    key_owner: Option<(VmKey, Uid)>,
    asked_to_replace: bool,
    evidence: EnrolmentEvidence,
    csr_key: KeyFingerprint,
    challenge: Option<String>,
    names: Vec<String>,
    connection_key: KeyFingerprint,
}

impl Case {
    fn honest() -> Self {
        Self {
            dialled: target(),
            proof: VmProof::Address,
            others_like: Vec::new(),
            subject: Some(EnrolmentSubject {
                target: target(),
                expected: ExpectedIdentity {
                    uuid: Some(UUID.parse().unwrap()),
                    hostname: "a".to_owned(),
                    macs: [mac(1), mac(2)].into(),
                },
                sharers: Vec::new(),
            }),
            record: None,
            key_owner: None,
            asked_to_replace: false,
            evidence: EnrolmentEvidence {
                smbios_uuid: Some(UUID.parse().unwrap()),
                hostname: Some("A.example.org".to_owned()),
                macs: vec![mac(1), mac(9)],
                boot_id: None,
            },
            csr_key: fingerprint(1),
            challenge: Some(nonce().as_str().to_owned()),
            names: vec!["spiffe://d/vmi/ns/a/vm-1".to_owned()],
            connection_key: fingerprint(1),
        }
    }

    fn decide(&self) -> EnrolmentDecision {
        let allowed = ["spiffe://d/vmi/ns/a/vm-1", "agent.virtfleet.internal"].map(str::to_owned);
        decide(&EnrolmentCase {
            dialled: &self.dialled,
            proof: self.proof,
            others_like: &self.others_like,
            subject: self.subject.as_ref(),
            record: self.record.as_ref(),
            key_owner: self.key_owner.as_ref().map(|(vm, uid)| (vm, uid)),
            allowed_names: &allowed,
            exchange: CsrExchange {
                nonce: &nonce(),
                asked_to_replace: self.asked_to_replace,
                evidence: &self.evidence,
                csr_key: self.csr_key,
                challenge: self.challenge.as_deref(),
                names: &self.names,
                connection_key: self.connection_key,
            },
        })
    }
}

fn nonce() -> Nonce {
    Nonce::from_bytes([7; 32])
}
