//! The enrolment of a running agent.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use virtfleet_agent_core::enrolment::{
    dates::CertificateDates,
    findings::duration,
    record::DiscardedKey,
    request::{RequestDecision, decide},
    status::EnrolmentStatus,
};
use virtfleet_agent_host::{ClockCalls as _, Kernel, Roots, clock};
use virtfleet_agent_state::identity::observe;
use virtfleet_runtime::tls::{
    CertificateChain, ClientAuthorities, HeldIdentity, IdentityError, ServerIdentity, VmIdentity,
    check_issued,
};
use virtfleet_wire::enrolment::{EnrolmentAnswer, EnrolmentClaim, EnrolmentRequest, IssuedCertificate};
use zeroize::Zeroizing;

use super::{
    evidence::evidence,
    key::KeyError,
    node_proof::NodeProofFile,
    refusal::{EnrolmentRefusal, REASONS},
    start::start,
    storage::KeyStorage,
    work::{IssuedIdentity, ServedError, Work},
};
use crate::push::{TokenFile, WayTracker};

/// The guest's clock.
#[derive(Debug, Clone, Copy)]
pub struct EnrolmentTime {
    /// Seconds since 1970.
    pub now: u64,
    /// The clock is synchronized with a server (adjtimex(2)).
    pub synchronised: bool,
}

impl EnrolmentTime {
    pub fn of_guest() -> Self {
        Self {
            now: clock().realtime_ns / 1_000_000_000,
            synchronised: Kernel.clock_state().is_ok_and(|state| state.synchronised),
        }
    }
}

/// Why the agent cannot enrol.
#[derive(Debug, thiserror::Error)]
pub enum EnrolmentStartError {
    /// No key can be made.
    #[error("cannot make a key")]
    Key(#[from] KeyError),
    #[error("cannot serve with the key")]
    Served(#[from] ServedError),
}

/// The enrolment. Clones share it.
#[derive(Debug, Clone)]
pub struct Enrolment {
    shared: Arc<Shared>,
    token: Option<JoinToken>,
    node_proof: Option<NodeProofFile>,
}

/// The join token, and where its problems are shown.
#[derive(Debug, Clone)]
struct JoinToken {
    file: TokenFile,
    tracker: WayTracker,
}

#[derive(Debug)]
struct Shared {
    roots: Roots,
    client_ca: String,
    time: fn() -> EnrolmentTime,
    held: Arc<HeldIdentity>,
    /// Locked while files are written.
    work: Mutex<Work>,
    /// Never locked while files are written: scrapes read it.
    shown: Mutex<Shown>,
}

#[derive(Debug)]
struct Shown {
    status: EnrolmentStatus,
    refusals: BTreeMap<&'static str, u64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Enrolment {
    /// Reads key and certificate, or makes a new key. `client_ca` is the file with the authorities
    /// of clients, for reports.
    ///
    /// # Errors
    /// No key can be made or used.
    pub fn open(roots: &Roots, client_ca: &str) -> Result<Self, EnrolmentStartError> {
        Self::open_at(roots, client_ca, EnrolmentTime::of_guest)
    }

    /// The same with another clock.
    ///
    /// # Errors
    /// As [`Enrolment::open`].
    pub fn open_at(
        roots: &Roots,
        client_ca: &str,
        time: fn() -> EnrolmentTime,
    ) -> Result<Self, EnrolmentStartError> {
        let work = start(roots, time().now)?;
        let status = work.status(client_ca);
        if let Some(identity) = work.identity() {
            tracing::info!(identity, "enrolled");
        } else {
            tracing::info!(client_ca, "waiting for a collector to issue a certificate");
        }
        let shared = Arc::new(Shared {
            roots: roots.clone(),
            client_ca: client_ca.to_owned(),
            time,
            held: Arc::new(HeldIdentity::new(work.server_identity()?)),
            work: Mutex::new(work),
            shown: Mutex::new(Shown {
                status,
                refusals: REASONS.map(|reason| (reason, 0)).into(),
            }),
        });
        Ok(Self {
            shared,
            token: None,
            node_proof: None,
        })
    }

    /// Shows the join token in this file to collectors. Its problems are shown by `tracker`.
    #[must_use]
    pub fn with_token(mut self, file: Option<TokenFile>, tracker: &WayTracker) -> Self {
        self.token = file.map(|file| JoinToken {
            file,
            tracker: tracker.clone(),
        });
        // A problem is reported before a collector needs the token.
        drop(self.token());
        self
    }

    /// Shows collectors the node proof that root signs, if `wanted`.
    #[must_use]
    pub fn with_node_proof(mut self, wanted: bool) -> Self {
        self.node_proof = wanted.then(|| NodeProofFile::new(&self.shared.roots));
        self
    }

    fn token(&self) -> Option<Zeroizing<String>> {
        let JoinToken { file, tracker } = self.token.as_ref()?;
        let read = file.read();
        tracker.token_read(read.as_ref().err().map(ToString::to_string));
        read.ok()
    }

    /// Answers a collector that does not know which VM this is. It reads files, and so may block.
    /// The token is read each time; without a readable one there is none.
    pub fn claim(&self) -> EnrolmentClaim {
        let node_proof = self.node_proof.as_ref().and_then(|file| {
            let now = (self.shared.time)().now;
            file.read(lock(&self.shared.work).key.public_key(), now)
        });
        EnrolmentClaim {
            token: self.token().map(|token| token.as_str().to_owned()),
            node_proof,
            evidence: evidence(observe(&self.shared.roots)),
        }
    }

    /// What TLS presents to new connections.
    pub fn identity(&self) -> Arc<HeldIdentity> {
        Arc::clone(&self.shared.held)
    }

    pub fn status(&self) -> EnrolmentStatus {
        lock(&self.shared.shown).status.clone()
    }

    /// True if the agent serves with a certificate.
    pub fn is_enrolled(&self) -> bool {
        lock(&self.shared.shown).status.is_enrolled()
    }

    /// Number of refusals by reason, all reasons.
    pub fn refusals(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.shared.shown).refusals.clone()
    }

    /// Answers a request for a CSR. It may write files, and so may block.
    ///
    /// # Errors
    /// Why there is no CSR: the identity has another form or is that of another VM, or the key was
    /// replaced.
    pub fn request(&self, request: &EnrolmentRequest) -> Result<EnrolmentAnswer, EnrolmentRefusal> {
        let mut work = lock(&self.shared.work);
        let answer = self.sign(&mut work, request);
        self.show(&mut work, answer.as_ref().err());
        answer
    }

    fn sign(&self, work: &mut Work, request: &EnrolmentRequest) -> Result<EnrolmentAnswer, EnrolmentRefusal> {
        if VmIdentity::from_uri(&request.identity).is_none() {
            return Err(EnrolmentRefusal::Identity(
                request.identity.chars().take(200).collect(),
            ));
        }
        let now = (self.shared.time)().now;
        match decide(request, work.valid_identity(now), now) {
            RequestDecision::Refuse => Err(EnrolmentRefusal::OtherVm {
                own: work.identity().unwrap_or_default().to_owned(),
                requested: request.identity.clone(),
            }),
            RequestDecision::ReplaceKey(discarded) => {
                self.replace_key(work, discarded)?;
                Err(EnrolmentRefusal::KeyReplaced)
            }
            RequestDecision::Sign => {
                self.ensure_stored(work)?;
                let csr = work.key.csr(&request.nonce)?;
                work.requested = Some(request.identity.clone());
                let evidence = evidence(observe(&self.shared.roots));
                Ok(EnrolmentAnswer { csr, evidence })
            }
        }
    }

    /// Stores a key that could not be stored before.
    fn ensure_stored(&self, work: &mut Work) -> Result<(), EnrolmentRefusal> {
        if let KeyStorage::Unusable { .. } = work.storage {
            // Repeats what failed at the start of the agent.
            let again = start(&self.shared.roots, (self.shared.time)().now)?;
            if let KeyStorage::Unusable { reason } = again.storage {
                return Err(EnrolmentRefusal::NotStored(reason));
            }
            let identity = again.server_identity().map_err(served)?;
            *work = again;
            self.shared.held.replace(identity);
            return Err(EnrolmentRefusal::KeyReplaced);
        }
        work.store_key();
        match &work.storage {
            KeyStorage::Stored(_) | KeyStorage::Absent { .. } => Ok(()),
            KeyStorage::Pending { reason, .. } | KeyStorage::Unusable { reason } => {
                Err(EnrolmentRefusal::NotStored(reason.clone()))
            }
        }
    }

    fn replace_key(&self, work: &mut Work, discarded: DiscardedKey) -> Result<(), EnrolmentRefusal> {
        tracing::warn!(
            why = ?discarded.why,
            before = discarded.before,
            now = discarded.now,
            "the agent's key and certificate are discarded"
        );
        let storage = work.storage.clone();
        let uuid = work.record.smbios_uuid.clone();
        let new = Work::with_new_key(storage, uuid, Some(discarded), (self.shared.time)().now)?;
        let identity = new.server_identity().map_err(served)?;
        *work = new;
        self.shared.held.replace(identity);
        Ok(())
    }

    /// Accepts an issued certificate: verifies it, stores it, and serves with it. It writes files,
    /// and so may block.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn accept(&self, issued: &IssuedCertificate) -> Result<(), EnrolmentRefusal> {
        let mut work = lock(&self.shared.work);
        let accepted = self.verify_and_serve(&mut work, issued);
        self.show(&mut work, accepted.as_ref().err());
        accepted
    }

    fn verify_and_serve(&self, work: &mut Work, issued: &IssuedCertificate) -> Result<(), EnrolmentRefusal> {
        let unusable = |what| {
            move |error: IdentityError| EnrolmentRefusal::Unusable {
                what,
                reason: error.to_string(),
            }
        };
        let identity = work.requested.clone().ok_or(EnrolmentRefusal::NotRequested)?;
        let chain = CertificateChain::from_pem(issued.certificate.as_bytes());
        let chain = chain.map_err(unusable("the certificate"))?;
        let validity = check_issued(&chain, work.key.public_key(), &identity)?;
        let dates = CertificateDates {
            not_before: validity.not_before,
            not_after: validity.not_after,
        };
        let time = (self.shared.time)();
        if !dates.is_accepted(time.now, time.synchronised) {
            return Err(EnrolmentRefusal::Expired {
                ago: duration(time.now.saturating_sub(dates.not_after)),
            });
        }
        if time.now > dates.not_after {
            let ago = duration(time.now - dates.not_after);
            tracing::warn!(
                ago,
                "the new certificate has expired by the guest's clock; set the clock"
            );
        }
        let authorities = ClientAuthorities::from_pem(issued.client_authorities.as_bytes());
        let authorities = authorities.map_err(unusable("an authority of clients"))?;
        let served = ServerIdentity::new(chain.clone(), work.key.pkcs8(), authorities.clone());
        let served = served.map_err(unusable("the certificate"))?;
        let renewed = work.identity() == Some(&identity);
        tracing::info!(identity, renewed, "enrolled");
        work.authorities = authorities;
        work.certificate = Some(IssuedIdentity {
            identity,
            dates,
            chain,
        });
        work.record
            .client_authorities
            .clone_from(&issued.client_authorities);
        work.record.refusal = None;
        work.store_certificate(&issued.certificate);
        self.shared.held.replace(served);
        Ok(())
    }

    /// Publishes the state after a request.
    fn show(&self, work: &mut Work, refusal: Option<&EnrolmentRefusal>) {
        let reason = refusal.and_then(EnrolmentRefusal::word);
        if let (Some(refusal), Some(reason)) = (refusal, reason) {
            let text = refusal.to_string();
            tracing::warn!(reason, "enrolment refused: {text}");
            work.refused(&text, (self.shared.time)().now);
        }
        let mut shown = lock(&self.shared.shown);
        shown.status = work.status(&self.shared.client_ca);
        if let Some(count) = reason.and_then(|reason| shown.refusals.get_mut(reason)) {
            *count += 1;
        }
    }
}

fn served(error: ServedError) -> EnrolmentRefusal {
    match error {
        ServedError::Key(error) => error.into(),
        ServedError::Identity(error) => EnrolmentRefusal::Unusable {
            what: "the certificate",
            reason: error.to_string(),
        },
    }
}
