//! Key, certificate and record of a running agent, and their files.

use virtfleet_agent_core::enrolment::{
    dates::CertificateDates,
    record::{DiscardedKey, KeyRecord, LastRefusal},
    status::{CertificateState, EnrolmentStatus, UnstoredKey},
};
use virtfleet_agent_state::enrolment::{EnrolmentFiles, EnrolmentFilesError};
use virtfleet_runtime::tls::{CertificateChain, ClientAuthorities, IdentityError, ServerIdentity};

use super::{
    key::{AgentKey, KeyError},
    storage::KeyStorage,
};

/// Minimum time between two writes of the same refusal, in seconds.
const REFUSAL_WRITE_INTERVAL: u64 = 60;

/// The certificate that a collector has issued.
#[derive(Debug, Clone)]
pub(super) struct IssuedIdentity {
    /// The VM that it identifies.
    pub(super) identity: String,
    pub(super) dates: CertificateDates,
    pub(super) chain: CertificateChain,
}

impl IssuedIdentity {
    /// The state of an agent that serves with it.
    pub(super) fn state(&self) -> CertificateState {
        CertificateState::Enrolled {
            identity: self.identity.clone(),
            dates: self.dates,
        }
    }
}

/// Key, certificate and record.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) key: AgentKey,
    pub(super) record: KeyRecord,
    pub(super) certificate: Option<IssuedIdentity>,
    /// Since when there is no certificate, in seconds since 1970.
    pub(super) waiting_since: u64,
    pub(super) authorities: ClientAuthorities,
    /// The identity that was requested last.
    pub(super) requested: Option<String>,
    /// Where all this is stored, or why it is not.
    pub(super) storage: KeyStorage,
}

impl Work {
    /// Work with a new key, which is stored if possible. The key before and its certificate are
    /// gone.
    pub(super) fn with_new_key(
        storage: KeyStorage,
        smbios_uuid: Option<String>,
        discarded: Option<DiscardedKey>,
        now: u64,
    ) -> Result<Self, KeyError> {
        let mut work = Self {
            key: AgentKey::generate()?,
            record: KeyRecord::of_new_key(smbios_uuid, now, discarded),
            certificate: None,
            waiting_since: now,
            authorities: ClientAuthorities::default(),
            requested: None,
            storage: storage.for_new_key(),
        };
        work.store_key();
        Ok(work)
    }

    /// Stores a key that is not stored yet.
    pub(super) fn store_key(&mut self) {
        self.storage.store_key(self.key.pkcs8(), &self.record);
    }

    pub(super) fn identity(&self) -> Option<&str> {
        Some(self.certificate.as_ref()?.identity.as_str())
    }

    /// The identity in the certificate, unless that has expired.
    pub(super) fn valid_identity(&self, now: u64) -> Option<&str> {
        let issued = self.certificate.as_ref()?;
        (now <= issued.dates.not_after).then_some(issued.identity.as_str())
    }

    /// What TLS presents.
    pub(super) fn server_identity(&self) -> Result<ServerIdentity, ServedError> {
        let chain = match &self.certificate {
            Some(issued) => issued.chain.clone(),
            None => self.key.self_signed()?,
        };
        let identity = ServerIdentity::new(chain, self.key.pkcs8(), self.authorities.clone())?;
        Ok(identity)
    }

    /// Stores the certificate and the record. If that fails, the collector issues a new certificate
    /// after a restart.
    pub(super) fn store_certificate(&self, pem: &str) {
        self.store(|files| files.write_certificate(pem, &self.record));
    }

    pub(super) fn store_record(&self) {
        self.store(|files| files.write_record(&self.record));
    }

    /// Writes files beside a stored key. Beside another key than this one they would be wrong.
    fn store(&self, write: impl FnOnce(&EnrolmentFiles) -> Result<(), EnrolmentFilesError>) {
        if let KeyStorage::Stored(files) = &self.storage
            && let Err(error) = write(files)
        {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "the enrolment cannot be stored");
        }
    }

    /// Keeps the reason of a refusal. It is stored if it is new, or after a while.
    pub(super) fn refused(&mut self, reason: &str, now: u64) {
        let refusal = LastRefusal::new(now, reason);
        let last = self.record.refusal.as_ref();
        let recent = last.is_some_and(|last| {
            last.reason == refusal.reason && now.abs_diff(last.at) < REFUSAL_WRITE_INTERVAL
        });
        if !recent {
            self.record.refusal = Some(refusal);
            self.store_record();
        }
    }

    pub(super) fn status(&self, client_ca: &str) -> EnrolmentStatus {
        let waiting = CertificateState::Waiting {
            since: self.waiting_since,
        };
        let state = self.certificate.as_ref().map_or(waiting, IssuedIdentity::state);
        let not_stored = match &self.storage {
            KeyStorage::Stored(_) => None,
            KeyStorage::Pending { reason, .. } | KeyStorage::Unusable { reason } => {
                Some(UnstoredKey::Refused(reason.clone()))
            }
            KeyStorage::Absent { reason } => Some(UnstoredKey::InMemory(reason.clone())),
        };
        EnrolmentStatus::of(&self.record, state, client_ca, not_stored)
    }
}

/// Why the key and its certificate cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServedError {
    /// The key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("the certificate {0}")]
    Identity(#[from] IdentityError),
}
