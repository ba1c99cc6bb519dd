//! State of the enrolment, for report, metrics and doctor.

use super::{
    dates::CertificateDates,
    record::{DiscardedKey, KeyRecord, LastRefusal},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnrolmentStatus {
    /// File with the authorities of clients: whose collector may enrol this agent.
    pub client_ca: String,
    pub state: CertificateState,
    /// Why the key is not stored. None if it is.
    pub not_stored: Option<UnstoredKey>,
    /// The last refused certificate, until one is accepted.
    pub refusal: Option<LastRefusal>,
    /// The last key that was replaced.
    pub discarded: Option<DiscardedKey>,
}

/// Why the agent's key is not stored, each with the reason as a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnstoredKey {
    /// There is no place for it, and a retry would not change that. The agent enrols with a key in
    /// memory: after a restart the VM has another key, and an admin must reset it.
    InMemory(String),
    /// It could not be stored. The agent refuses to enrol with it, and tries again at each request.
    Refused(String),
    /// The agent waits for a certificate, and there is no space for files.
    NoSpace(String),
}

impl UnstoredKey {
    pub fn reason(&self) -> &str {
        match self {
            Self::InMemory(reason) | Self::Refused(reason) | Self::NoSpace(reason) => reason,
        }
    }
}

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
        dates: CertificateDates,
    },
}

impl EnrolmentStatus {
    /// The status of a record in this state.
    pub fn of(
        record: &KeyRecord,
        state: CertificateState,
        client_ca: &str,
        not_stored: Option<UnstoredKey>,
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
