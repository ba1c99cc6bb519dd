//! The state with which the agent starts, from the files of earlier runs.

use virtfleet_agent_core::enrolment::{
    dates::CertificateDates,
    record::{DiscardReason, DiscardedKey, KeyRecord},
    status::{CertificateState, EnrolmentStatus, UnstoredKey},
};
use virtfleet_agent_host::Roots;
use virtfleet_agent_state::{
    enrolment::{EnrolmentFiles, StoredEnrolment},
    identity::observe,
};
use virtfleet_runtime::tls::{CertificateChain, ClientAuthorities, VmIdentity, check_issued};

use super::{
    key::{AgentKey, KeyError},
    storage::KeyStorage,
    work::{IssuedIdentity, Work},
};

/// Reads key and certificate of earlier runs. A key that belongs to another machine, or cannot be
/// used, is replaced. `now` is in seconds since 1970.
pub(super) fn start(roots: &Roots, now: u64) -> Result<Work, KeyError> {
    let present = present_uuid(roots);
    let files = EnrolmentFiles::new(roots);
    let stored = match files.prepare().and_then(|()| files.read()) {
        Ok(stored) => stored,
        Err(error) => return Work::with_new_key(KeyStorage::failed(&error), present, None, now),
    };
    let Some(stored) = stored else {
        return Work::with_new_key(KeyStorage::empty(files), present, None, now);
    };
    let discarded = match stored.record.foreign_to(present.as_deref(), now) {
        Some(discarded) => discarded,
        None => match continued(stored, files.clone(), now) {
            Ok(mut work) => {
                if work.record.smbios_uuid.is_none() && present.is_some() {
                    work.record.smbios_uuid = present;
                    work.store_record();
                }
                return Ok(work);
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(
                    error,
                    %files,
                    "the stored key cannot be used"
                );
                DiscardedKey {
                    at: now,
                    why: DiscardReason::Unusable,
                    before: String::new(),
                    now: present.clone().unwrap_or_default(),
                }
            }
        },
    };
    tracing::warn!(
        why = ?discarded.why,
        before = discarded.before,
        now = discarded.now,
        "the agent's key and certificate are discarded"
    );
    Work::with_new_key(KeyStorage::Stored(files), present, Some(discarded), now)
}

fn present_uuid(roots: &Roots) -> Option<String> {
    observe(roots).identity.smbios_uuid.map(|uuid| uuid.value)
}

/// Continues with a stored key, and with its certificate if that can still be served.
fn continued(stored: StoredEnrolment, files: EnrolmentFiles, now: u64) -> Result<Work, KeyError> {
    let key = AgentKey::from_pkcs8(stored.key)?;
    let (certificate, waiting_since) =
        match certificate(&stored.record, stored.certificate.as_deref(), &key, now) {
            Ok(issued) => (Some(issued), now),
            Err(Unserved { reason, since }) => {
                if !reason.is_empty() {
                    tracing::warn!(reason, "the stored certificate is not used");
                }
                (None, since)
            }
        };
    let authorities = ClientAuthorities::from_pem(stored.record.client_authorities.as_bytes());
    let authorities = authorities.unwrap_or_else(|error| {
        let error = &error as &dyn std::error::Error;
        tracing::error!(error, "the stored authorities of clients are not used");
        ClientAuthorities::default()
    });
    Ok(Work {
        key,
        record: stored.record,
        certificate,
        waiting_since,
        authorities,
        requested: None,
        storage: KeyStorage::Stored(files),
    })
}

/// Why there is no certificate to serve with.
struct Unserved {
    /// Empty if none is stored.
    reason: String,
    /// Since when, in seconds since 1970.
    since: u64,
}

/// The stored certificate, if it is for this key and has not expired long ago.
fn certificate(
    record: &KeyRecord,
    pem: Option<&str>,
    key: &AgentKey,
    now: u64,
) -> Result<IssuedIdentity, Unserved> {
    let unserved = |reason: String| Unserved {
        reason,
        since: record.key_made_at,
    };
    let pem = pem.ok_or_else(|| unserved(String::new()))?;
    let chain = CertificateChain::from_pem(pem.as_bytes());
    let chain = chain.map_err(|error| unserved(format!("the certificate {error}")))?;
    let identity = chain
        .names()
        .into_iter()
        .find(|name| VmIdentity::from_uri(name).is_some());
    let identity = identity.ok_or_else(|| unserved("the certificate has no identity of a VM".to_owned()))?;
    let validity =
        check_issued(&chain, key.public_key(), &identity).map_err(|error| unserved(error.to_string()))?;
    let dates = CertificateDates {
        not_before: validity.not_before,
        not_after: validity.not_after,
    };
    if !dates.is_served_at_start(now) {
        return Err(Unserved {
            reason: "the certificate has expired".to_owned(),
            since: dates.not_after,
        });
    }
    Ok(IssuedIdentity {
        identity,
        dates,
        chain,
    })
}

/// The status that the files show, for processes other than the running agent. It changes nothing.
/// None if no agent has started with enrolment yet.
///
/// # Errors
/// A file cannot be read.
pub fn stored_status(roots: &Roots, client_ca: &str, now: u64) -> Result<Option<EnrolmentStatus>, String> {
    let files = EnrolmentFiles::new(roots);
    let Some(stored) = files.read().map_err(|error| error.to_string())? else {
        return Ok(None);
    };
    let key = AgentKey::from_pkcs8(stored.key).map_err(|error| error.to_string())?;
    let state = match certificate(&stored.record, stored.certificate.as_deref(), &key, now) {
        Ok(issued) => issued.state(),
        Err(Unserved { since, .. }) => CertificateState::Waiting { since },
    };
    let waits = matches!(state, CertificateState::Waiting { .. });
    let not_stored = waits
        .then(|| files.shortage())
        .flatten()
        .map(UnstoredKey::NoSpace);
    Ok(Some(EnrolmentStatus::of(
        &stored.record,
        state,
        client_ca,
        not_stored,
    )))
}
