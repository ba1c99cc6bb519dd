//! Which valid certificates of a VM are used.

use virtfleet_collector_core::{
    dial::DialTarget,
    enrolment::{EnrolmentReason, EnrolmentState},
    pull_result::{Failure, FailureClass},
};

use super::{SigningAuthority, records::RecordBook};
use crate::scrape::{
    peer::{PeerCertificate, PeerPolicy},
    transport::OpenError,
};

/// Refuses certificates that are denied, and those of a VM with another key than the recorded one.
/// A VM without record has a certificate from elsewhere, or its record is lost: it is used.
#[derive(Debug)]
pub struct RecordGuard {
    records: RecordBook,
    authority: SigningAuthority,
}

impl RecordGuard {
    /// A guard with these records, and the deny list of this authority.
    pub fn new(records: RecordBook, authority: SigningAuthority) -> Self {
        Self { records, authority }
    }
}

impl PeerPolicy for RecordGuard {
    fn check(&self, target: &DialTarget, peer: &PeerCertificate) -> Result<(), OpenError> {
        let refused = |failure| {
            Err(OpenError {
                failure,
                rejected_certificate: true,
            })
        };
        let key = &target.key;
        let records = self.records.read();
        let record = records.get(key).filter(|record| record.is_of(target));
        if record.is_some_and(|record| record.state == EnrolmentState::Revoked) {
            let message = format!("{key} is revoked: no certificate of it is used");
            return refused(Failure::of_enrolment(EnrolmentReason::Revoked, message));
        }
        let denied = |serial| self.authority.current().denies(serial);
        if let Some(serial) = peer.serial.as_ref().filter(|serial| denied(serial)) {
            let message = format!("the certificate {serial} of {key} is on the deny list");
            return refused(Failure::of_enrolment(EnrolmentReason::CertificateDenied, message));
        }
        let Some((state, recorded)) = record.and_then(|record| Some((record.state, record.key_sha256?)))
        else {
            return Ok(());
        };
        match (state, recorded == peer.key) {
            (EnrolmentState::Reset, true) => {
                let message = format!("the certificates of {key} were reset");
                refused(Failure::of_enrolment(EnrolmentReason::CertificateDenied, message))
            }
            (EnrolmentState::Enrolled, false) => {
                let message = format!(
                    "the certificate at {} is for {key} and has the key {}, and the recorded key is {recorded}",
                    target.address, peer.key
                );
                refused(Failure::new(FailureClass::WrongVm, message))
            }
            _ => Ok(()),
        }
    }
}
