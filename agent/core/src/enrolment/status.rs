//! State of the enrolment, for report, metrics and doctor.

use super::{
    dates::CertificateDates,
    record::{DiscardedKey, KeyRecord, LastRefusal},
};

/// State of the enrolment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnrolmentStatus {
    /// File with the authorities of clients: whose collector may enrol this agent.
    pub client_ca: String,
    /// Whether there is a certificate.
    pub state: CertificateState,
    /// Why key and certificate are kept in memory only. None if they are stored.
    pub not_stored: Option<String>,
    /// The last refused certificate, until one is accepted.
    pub refusal: Option<LastRefusal>,
    /// The last key that was replaced.
    pub discarded: Option<DiscardedKey>,
}

/// Whether there is a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateState {
    /// The agent has none and answers only requests for enrolment.
    Waiting {
        /// Since when, in seconds since 1970.
        since: u64,
    },
    /// The agent serves with a certificate.
    Enrolled {
        /// Its identity, `spiffe://<trust-domain>/vmi/<namespace>/<name>/<uid>`.
        identity: String,
        /// Its dates.
        dates: CertificateDates,
    },
}

impl EnrolmentStatus {
    /// The status of a record in this state.
    pub fn of(
        record: &KeyRecord,
        state: CertificateState,
        client_ca: &str,
        not_stored: Option<String>,
    ) -> Self {
        Self {
            client_ca: client_ca.to_owned(),
            state,
            not_stored,
            refusal: record.refusal.clone(),
            discarded: record.discarded.clone(),
        }
    }

    /// True if the agent serves with a certificate.
    pub fn is_enrolled(&self) -> bool {
        matches!(self.state, CertificateState::Enrolled { .. })
    }
}
