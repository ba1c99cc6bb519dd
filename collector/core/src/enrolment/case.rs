//! Input of a decision.

use virtfleet_wire::{
    enrolment::{EnrolmentEvidence, Nonce},
    ids::{Uid, VmKey},
};

use super::{EnrolmentRecord, KeyFingerprint};
use crate::{dial::DialTarget, expected::ExpectedIdentity};

/// What says which VM an agent belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VmProof {
    /// The address that was dialled, or from which the agent connected: no other VM may have it.
    Address,
    /// The agent has shown a certificate, a join token or a node proof: the address from which it
    /// connected may be that of a relay or a NAT.
    Shown,
}

/// What the inventory has of a VM at the time of the decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnrolmentSubject {
    /// Where it would be dialled now.
    pub target: DialTarget,
    /// What its guest must show.
    pub expected: ExpectedIdentity,
    /// Other VMs that would be dialled at the same address; some of them, if there are many.
    pub sharers: Vec<VmKey>,
}

#[derive(Debug, Clone)]
pub struct CsrExchange<'a> {
    pub nonce: &'a Nonce,
    /// The agent was asked to replace its key.
    pub asked_to_replace: bool,
    /// What the guest shows.
    pub evidence: &'a EnrolmentEvidence,
    /// Key of the CSR, whose signature was verified.
    pub csr_key: KeyFingerprint,
    /// The CSR's `challengePassword`.
    pub challenge: Option<&'a str>,
    pub names: &'a [String],
    /// Key with which the agent serves the connection.
    pub connection_key: KeyFingerprint,
}

/// Everything that a decision depends on.
#[derive(Debug, Clone)]
pub struct EnrolmentCase<'a> {
    /// What was dialled.
    pub dialled: &'a DialTarget,
    /// What says that it is this VM.
    pub proof: VmProof,
    /// The VM in the inventory; none if it is gone or cannot be dialled any more.
    pub subject: Option<&'a EnrolmentSubject>,
    /// The VM's record, of any incarnation.
    pub record: Option<&'a EnrolmentRecord>,
    /// The VM and incarnation for which the CSR's key is recorded, if any.
    pub key_owner: Option<(&'a VmKey, &'a Uid)>,
    /// What the guests of the other VMs must show that this guest may be as well; see
    /// [`FleetIndex::others_like`](crate::index::FleetIndex::others_like).
    pub others_like: &'a [ExpectedIdentity],
    /// Names that the certificate will have: a CSR may request these only.
    pub allowed_names: &'a [String],
    /// What was exchanged.
    pub exchange: CsrExchange<'a>,
}
