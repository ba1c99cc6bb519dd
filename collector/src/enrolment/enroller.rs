//! Enrols and renews agents, within limits.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use virtfleet_collector_core::{
    dial::DialTarget,
    enrolment::{AttemptLimits, EnrolmentReason, EnrolmentState, VmProof, identity_uid},
    index::FleetIndex,
    pull_result::{Failure, FailureClass},
    way::AgentWay,
};
use virtfleet_runtime::tls::ClientTls;
use virtfleet_wire::ids::VmKey;

use super::{
    EnrolmentMetrics, SigningAuthority,
    attempts::AttemptBook,
    channel::EnrolmentChannel,
    failure::EnrolmentFailure,
    issue::{IssueEnd, Issuer, explain},
    records::RecordBook,
    unverified::UnverifiedAgent,
};
use crate::{
    clock::unix_seconds,
    fleet::Fleet,
    leader::WriteAccess,
    scrape::{
        accept::UnverifiedPeer, concurrency::TenantPool, connection::AgentConnection, peer::PeerCertificate,
    },
    tokens::JoinTokenBook,
};

/// Attempts to enrol one VM. The first pauses are short: while a guest boots, its host name may not
/// be set yet.
const ENROL_LIMITS: AttemptLimits = AttemptLimits {
    first_pause: Duration::from_secs(1),
    max_pause: Duration::from_mins(5),
    forget_after: Duration::from_mins(15),
};
/// Attempts to renew the certificate of one VM.
const RENEW_LIMITS: AttemptLimits = AttemptLimits {
    first_pause: Duration::from_secs(30),
    max_pause: Duration::from_mins(15),
    forget_after: Duration::from_hours(2),
};
/// Pause until the next attempt while the inventory or the records have not been read yet.
const NOT_READY_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy)]
pub struct EnrolmentLimits {
    /// Maximum concurrent enrolments; a tenant may use a quarter of them.
    pub concurrency: usize,
    /// Maximum time of one enrolment.
    pub timeout: Duration,
    pub lifetime: Duration,
}

/// What an [`Enroller`] works with.
#[derive(Debug)]
pub struct EnrollerParts {
    pub fleet: Arc<Fleet>,
    /// The collector's certificate, as for pulls.
    pub tls: Arc<ClientTls>,
    pub trust_domain: String,
    pub authority: SigningAuthority,
    pub records: RecordBook,
    /// Only the leader enrols.
    pub write_access: WriteAccess,
    /// Counts attempts by result.
    pub metrics: EnrolmentMetrics,
    /// Limits on time, concurrency and the certificates' lifetime.
    pub limits: EnrolmentLimits,
}

/// Enrols and renews agents.
#[derive(Debug)]
pub struct Enroller {
    issuer: Issuer,
    tls: Arc<ClientTls>,
    write_access: WriteAccess,
    limits: EnrolmentLimits,
    attempts: AttemptBook,
    renewals: AttemptBook,
    pool: Mutex<TenantPool>,
}

/// The end of an attempt to enrol.
#[derive(Debug)]
pub struct EnrolmentEnd {
    /// None: the agent has a certificate now. Else why it has none.
    pub failure: Option<Failure>,
    /// When the next attempt is allowed; none: with the next pull.
    pub retry_in: Option<Duration>,
}

impl Enroller {
    /// Enrols the VMs of `parts.fleet`.
    pub fn new(parts: EnrollerParts) -> Self {
        let limits = parts.limits;
        Self {
            tls: parts.tls,
            write_access: parts.write_access,
            limits,
            attempts: AttemptBook::default(),
            renewals: AttemptBook::default(),
            pool: Mutex::new(TenantPool::new(limits.concurrency, limits.concurrency / 4)),
            issuer: Issuer {
                fleet: parts.fleet,
                trust_domain: parts.trust_domain,
                authority: parts.authority,
                records: parts.records,
                metrics: parts.metrics,
                lifetime: limits.lifetime,
            },
        }
    }

    pub fn records(&self) -> &RecordBook {
        &self.issuer.records
    }

    pub fn authority(&self) -> &SigningAuthority {
        &self.issuer.authority
    }

    pub fn fleet(&self) -> &Arc<Fleet> {
        &self.issuer.fleet
    }

    /// Whether this process enrols and changes records.
    pub fn write_access(&self) -> &WriteAccess {
        &self.write_access
    }

    /// What issues the certificates.
    pub(super) fn issuer(&self) -> &Issuer {
        &self.issuer
    }

    /// Maximum time of one exchange.
    pub(super) fn timeout(&self) -> Duration {
        self.limits.timeout
    }

    /// Counts a claim that was refused.
    pub(super) fn count_refusal(&self, reason: EnrolmentReason) {
        self.issuer.metrics.failed(reason);
    }

    /// Allows the next attempt for a VM at once.
    pub fn forget_attempts(&self, vm: &VmKey) {
        self.attempts.forget(vm);
        self.renewals.forget(vm);
    }

    /// Tries to enrol the agent of `target`, whose certificate is not used because of `rejected`.
    pub async fn enrol(&self, target: &DialTarget, rejected: Failure) -> EnrolmentEnd {
        self.attempt(target, VmProof::Address, rejected, self.exchange(target))
            .await
    }

    /// The same over a connection that the agent opened, for the VM that `proof` names. If it has a
    /// certificate then, it must connect again to show it. `tokens` are the join tokens that count
    /// if its address does not suffice.
    pub(crate) async fn enrol_over(
        &self,
        target: &DialTarget,
        proof: VmProof,
        peer: UnverifiedPeer,
        tokens: Option<&JoinTokenBook>,
    ) -> EnrolmentEnd {
        let UnverifiedPeer {
            mut transport,
            key,
            rejected,
            named: _,
        } = peer;
        let mut channel = EnrolmentChannel::new(&mut transport, key);
        let exchange = async {
            match proof {
                VmProof::Address => self.issue_at_address(target, &mut channel, tokens).await,
                VmProof::Shown => self.issuer.issue(target, proof, &mut channel).await,
            }
        };
        self.attempt(target, proof, rejected, exchange).await
    }

    async fn attempt(
        &self,
        target: &DialTarget,
        proof: VmProof,
        rejected: Failure,
        exchange: impl Future<Output = Result<IssueEnd, EnrolmentFailure>>,
    ) -> EnrolmentEnd {
        let ended = |failure, retry_in| EnrolmentEnd {
            failure: Some(failure),
            retry_in,
        };
        if !self.write_access.leads() {
            return ended(of_standby(rejected), None);
        }
        if !self.issuer.fleet.read(FleetIndex::synced) {
            return ended(rejected, Some(NOT_READY_PAUSE));
        }
        if let Err(failure) = self.ready(target, proof) {
            self.issuer.metrics.failed(failure.reason);
            let is_starting = matches!(
                failure.reason,
                EnrolmentReason::NotRecorded | EnrolmentReason::NotSigned
            );
            return ended(shown(rejected, &failure), is_starting.then_some(NOT_READY_PAUSE));
        }
        let begun = self
            .attempts
            .begin(target, &ENROL_LIMITS, Instant::now(), fastrand::f32());
        if let Err(pause) = begun {
            return ended(pause.failure.unwrap_or(rejected), Some(pause.left));
        }
        let permits = self.permits(&target.key).await;
        let started = Instant::now();
        let result = match tokio::time::timeout(self.limits.timeout, exchange).await {
            Ok(result) => result,
            Err(_) => Err(EnrolmentFailure::new(
                EnrolmentReason::Timeout,
                format!(
                    "the agent at {} was not enrolled within {:?}",
                    target.address, self.limits.timeout
                ),
            )),
        };
        drop(permits);
        match result {
            // Over a connection of the agent: it connects again with its new key.
            Ok(IssueEnd::KeyReplaced) => {
                let pause = self
                    .attempts
                    .end(&target.key, Some(rejected.clone()), Instant::now());
                ended(rejected, Some(pause))
            }
            Ok(IssueEnd::Delivered) => {
                tracing::info!(vm = %target.key, "agent enrolled");
                self.issuer.metrics.issued(false, started.elapsed().as_secs_f64());
                self.attempts.end(&target.key, None, Instant::now());
                EnrolmentEnd {
                    failure: None,
                    retry_in: None,
                }
            }
            Err(failure) => {
                self.issuer.metrics.failed(failure.reason);
                let shown = shown(rejected, &failure);
                let pause = self
                    .attempts
                    .end(&target.key, Some(shown.clone()), Instant::now());
                ended(shown, Some(pause))
            }
        }
    }

    /// Whether an attempt makes sense; nothing is sent otherwise.
    fn ready(&self, target: &DialTarget, proof: VmProof) -> Result<(), EnrolmentFailure> {
        let issuer = &self.issuer;
        issuer
            .records
            .is_current()
            .map_err(|problem| EnrolmentFailure::new(EnrolmentReason::NotRecorded, problem))?;
        let subject = issuer.fleet.read(|index| index.enrolment_subject(target, proof));
        let record = issuer.records.get(&target.key);
        identity_uid(target, subject.as_ref(), record.as_ref())
            .map(drop)
            .map_err(|reason| explain(reason, target, subject.as_ref(), None))
    }

    async fn exchange(&self, target: &DialTarget) -> Result<IssueEnd, EnrolmentFailure> {
        let tls = self.tls.deferred(Instant::now()).ok_or_else(|| {
            let message = "this collector has no certificate yet; its log has the reason";
            EnrolmentFailure::new(EnrolmentReason::NotSigned, message)
        })?;
        // After the agent has replaced its key, a new connection has the new one.
        for _ in 0..2 {
            let mut agent = UnverifiedAgent::open(target, self.limits.timeout, &tls).await?;
            let issued = self.issue_at_address(target, &mut agent.channel(), None).await?;
            match issued {
                IssueEnd::Delivered => return Ok(issued),
                IssueEnd::KeyReplaced => {}
            }
        }
        let message = format!("the agent at {} replaced its key twice", target.address);
        Err(EnrolmentFailure::new(EnrolmentReason::KeyOfAnotherVm, message))
    }

    /// Whether the certificate of a pulled agent is to be renewed now.
    pub(crate) fn is_renewal_due(&self, target: &DialTarget, peer: &PeerCertificate) -> bool {
        let is_old = unix_seconds() >= peer.life.renew_at(&target.key);
        // Certificates from elsewhere are renewed there.
        let is_own = || {
            let records = self.issuer.records.read();
            records.get(&target.key).is_some_and(|record| {
                record.is_of(target)
                    && record.state == EnrolmentState::Enrolled
                    && record.key_sha256 == Some(peer.key)
            })
        };
        is_old && is_own() && self.write_access.leads()
    }

    /// Renews the certificate of a pulled agent over the connection of the pull. Returns why that
    /// failed; none: it was renewed, or is tried again later.
    pub(crate) async fn renew(
        &self,
        target: &DialTarget,
        connection: &mut AgentConnection,
    ) -> Result<(), EnrolmentReason> {
        let begun = self
            .renewals
            .begin(target, &RENEW_LIMITS, Instant::now(), fastrand::f32());
        if let Err(pause) = begun {
            let reason = pause.failure.and_then(|failure| failure.enrolment);
            return reason.map_or(Ok(()), Err);
        }
        let permits = self.permits(&target.key).await;
        let started = Instant::now();
        let key = connection.peer().key;
        let proof = match target.way {
            AgentWay::Push { .. } => VmProof::Shown,
            AgentWay::Direct | AgentWay::Relay(_) => VmProof::Address,
        };
        let renewed = async {
            let mut channel = EnrolmentChannel::new(connection.transport(), key);
            match self.ready(target, proof) {
                Ok(()) => self.issuer.issue(target, proof, &mut channel).await,
                Err(failure) => Err(failure),
            }
        };
        let renewed = tokio::time::timeout(self.limits.timeout, renewed).await;
        drop(permits);
        let failure = match renewed {
            Ok(Ok(IssueEnd::Delivered)) => {
                self.issuer.metrics.issued(true, started.elapsed().as_secs_f64());
                self.renewals.end(&target.key, None, Instant::now());
                return Ok(());
            }
            // The next pull meets the new key.
            Ok(Ok(IssueEnd::KeyReplaced)) => {
                EnrolmentFailure::new(EnrolmentReason::SecondKey, "the agent replaced its key")
            }
            Ok(Err(failure)) => failure,
            Err(_) => EnrolmentFailure::new(EnrolmentReason::Timeout, "the agent did not answer in time"),
        };
        tracing::warn!(
            vm = %target.key,
            reason = failure.reason.as_str(),
            "certificate not renewed: {}",
            failure.as_failure().message()
        );
        self.issuer.metrics.failed(failure.reason);
        self.renewals
            .end(&target.key, Some(failure.as_failure()), Instant::now());
        Err(failure.reason)
    }

    async fn permits(&self, vm: &VmKey) -> impl Sized + use<> {
        let owner = self.issuer.fleet.read(|index| index.budget_owner(vm));
        let pending = {
            let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
            pool.permits(owner)
        };
        pending.acquire().await
    }

    /// Removes records and attempts of VMs that are gone. Call it now and then.
    pub async fn clean(&self) {
        let fleet = &self.issuer.fleet;
        if !fleet.read(FleetIndex::synced) || self.issuer.records.is_current().is_err() {
            return;
        }
        for attempts in [&self.attempts, &self.renewals] {
            attempts.retain(|vm| fleet.read(|index| index.has_vm(vm)));
        }
        self.issuer.remove_records(false).await;
    }
}

/// The failure that a collector shows that does not lead: it cannot know why the leader issues
/// nothing.
fn of_standby(rejected: Failure) -> Failure {
    if rejected.class != FailureClass::Tls {
        return rejected;
    }
    rejected.reworded(format_args!(
        "{}; an agent that waits for its first certificate gets it from the leader, which this collector is not",
        rejected.message()
    ))
}

/// The failure that is shown: that of the enrolment, unless it says less than the rejected
/// certificate.
fn shown(rejected: Failure, failure: &EnrolmentFailure) -> Failure {
    let says_less = match failure.reason {
        EnrolmentReason::NotOffered => true,
        EnrolmentReason::Connect
        | EnrolmentReason::Timeout
        | EnrolmentReason::Tls
        | EnrolmentReason::Http
        | EnrolmentReason::TooLarge
        | EnrolmentReason::Malformed => rejected.class == FailureClass::WrongVm,
        _ => false,
    };
    if says_less { rejected } else { failure.as_failure() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_names_the_leader_only_where_enrolment_may_be_the_cause() {
        let tls = of_standby(Failure::new(FailureClass::Tls, "UnknownIssuer"));
        assert!(tls.message().contains("UnknownIssuer; an agent"), "{tls:?}");
        assert!(tls.message().contains("from the leader"), "{tls:?}");
        let revoked = Failure::of_enrolment(EnrolmentReason::Revoked, "revoked");
        assert_eq!(of_standby(revoked).enrolment, Some(EnrolmentReason::Revoked));
    }
}
