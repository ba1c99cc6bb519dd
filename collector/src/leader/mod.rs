//! Leader election among several collectors by a Lease on the infra cluster: only the leader
//! writes.
//!
//! ```text
//! Lease ◀─ read, write ─ run ─▶ Leadership (watch) ─▶ writers: WriteAccess::permit before each request
//! ```
//! In addition to the Lease, each patch has a resourceVersion, so that a request that outlives the
//! term of its sender does not overwrite later changes. The crate kube-leader-election is not used:
//! it compares the Lease's time with the local clock and requires an older kube.

mod address;
mod election;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{Api, Client, api::PostParams};
use prometheus_client::{metrics::gauge::Gauge, registry::Registry};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;

pub use self::address::{LeaderAddress, LeaderAddressError, LeaderPort};
pub use self::election::{Election, ElectionTiming, Leadership, LeaseAction, LeaseRecord};

/// Maximum concurrent requests while the Lease is held. Far above the limits of the writers.
const MAX_PERMITS: u32 = 1 << 16;
/// Maximum time for which shutdown waits for requests in flight before it releases the Lease.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

pub trait LeaseStore: Send + Sync + 'static {
    /// The version needed to replace what was read: the resourceVersion.
    type Version: Clone + Send + Sync;
    /// Reads the Lease, if it exists.
    fn read(&self) -> impl Future<Output = Result<Option<(LeaseRecord, Self::Version)>, String>> + Send;
    /// Creates the Lease, or replaces the version that was read; fails if another process wrote it
    /// meanwhile.
    fn write(
        &self,
        record: &LeaseRecord,
        over: Option<&Self::Version>,
    ) -> impl Future<Output = Result<Self::Version, String>> + Send;
}

/// Permission to write, checked before each request. Clones share it.
#[derive(Debug, Clone)]
pub struct WriteAccess {
    leadership: watch::Receiver<Leadership>,
    gate: Arc<Semaphore>,
    /// None without election.
    lease: Option<watch::Receiver<LeaseView>>,
}

/// A Lease as a candidate last read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseView {
    /// `<namespace>/<name>`.
    pub name: String,
    /// Its `spec.holderIdentity`, if that is another process, `<pod>_<random part>`, which has
    /// renewed it within its term as far as this one knows.
    pub holder: Option<String>,
}

impl LeaseView {
    /// The holder's pod: the identity begins with the host name.
    pub fn pod(&self) -> Option<&str> {
        let holder = self.holder.as_deref()?;
        Some(holder.rsplit_once('_').map_or(holder, |(pod, _)| pod))
    }

    /// The namespace of the Lease; as packaged, that of the pods.
    pub fn namespace(&self) -> &str {
        self.name.split_once('/').map_or("", |(namespace, _)| namespace)
    }
}

/// Permission for one request: while it exists, this process does not release the Lease.
#[derive(Debug)]
pub struct Permit {
    /// The request must have ended by then; none: no election.
    pub until: Option<Instant>,
    _gate: OwnedSemaphorePermit,
}

impl WriteAccess {
    /// Access without election: always `allowed`, or never (the manifest folder).
    pub fn fixed(allowed: bool) -> Self {
        let fixed = if allowed {
            Leadership::Leader { until: None }
        } else {
            Leadership::Standby
        };
        Self {
            leadership: watch::channel(fixed).1,
            gate: Arc::new(Semaphore::new(MAX_PERMITS as usize)),
            lease: None,
        }
    }

    /// The Lease, if this process takes part in an election and does not lead. None for the leader
    /// and without election: the plans of such a process are authoritative.
    pub fn standby(&self) -> Option<LeaseView> {
        let lease = self.lease.as_ref()?;
        (!self.leads()).then(|| lease.borrow().clone())
    }

    /// The Lease, if another process holds it.
    pub fn led_by_another(&self) -> Option<LeaseView> {
        self.standby().filter(|lease| lease.holder.is_some())
    }

    /// Access of a standby that saw this Lease.
    #[cfg(test)]
    pub(crate) fn standby_of(lease: LeaseView) -> Self {
        Self {
            lease: Some(watch::channel(lease).1),
            ..Self::fixed(false)
        }
    }

    /// Whether this process may write now.
    pub fn leads(&self) -> bool {
        self.leadership.borrow().holds(now(), Duration::ZERO)
    }

    /// Permission for one request that may take at least `margin`. The request must be dropped at
    /// [`Permit::until`], and then the permit.
    pub fn permit(&self, margin: Duration) -> Option<Permit> {
        let gate = Arc::clone(&self.gate).try_acquire_owned().ok()?;
        match *self.leadership.borrow() {
            leadership if !leadership.holds(now(), margin) => None,
            Leadership::Leader { until } => Some(Permit { until, _gate: gate }),
            Leadership::Standby => None,
        }
    }

    /// Notifies of every change of the leader and of every renewal.
    pub fn changes(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    /// Waits until this process leads. False if it never will: there is no election any more.
    ///
    /// Not [`watch::Receiver::wait_for`] with [`WriteAccess::leads`]: that would lock the channel a
    /// second time under the lock that `wait_for` holds, and an update between both blocks all
    /// threads for good.
    pub async fn until_leads(&self) -> bool {
        let mut leadership = self.changes();
        loop {
            let held = *leadership.borrow_and_update();
            if held.holds(now(), Duration::ZERO) {
                return true;
            }
            if leadership.changed().await.is_err() {
                return false;
            }
        }
    }

    /// Waits until this process does not lead any more, also if its term ends without a renewal.
    pub async fn until_lost(&self) {
        let mut leadership = self.changes();
        loop {
            let held = *leadership.borrow_and_update();
            match held {
                Leadership::Standby => return,
                Leadership::Leader { until: None } => {
                    if leadership.changed().await.is_err() {
                        std::future::pending::<()>().await;
                    }
                }
                // A renewal extends the term.
                Leadership::Leader { until: Some(until) } => tokio::select! {
                    biased;
                    () = tokio::time::sleep_until(until.into()) => return,
                    reported = leadership.changed() => if reported.is_err() { return },
                },
            }
        }
    }

    /// Runs `request` while this process leads, if it leads for at least `margin`. None if the
    /// request was not started or was cancelled.
    pub async fn within<T>(&self, margin: Duration, request: impl Future<Output = T>) -> Option<T> {
        let permit = self.permit(margin)?;
        let out = tokio::select! {
            biased;
            () = self.until_lost() => None,
            out = request => Some(out),
        };
        drop(permit);
        out
    }
}

/// Takes part in the election until `stop`; then waits for requests in flight and releases the
/// Lease.
pub struct Candidate<S> {
    store: S,
    election: Election,
    timing: ElectionTiming,
    tell: watch::Sender<Leadership>,
    lease: watch::Sender<LeaseView>,
    gate: Arc<Semaphore>,
    gauge: Gauge,
    name: String,
}

impl<S: LeaseStore> Candidate<S> {
    /// A candidate for the Lease `name`, and the write access that it controls.
    pub fn new(
        store: S,
        name: String,
        identity: String,
        timing: ElectionTiming,
        gauge: Gauge,
    ) -> (Self, WriteAccess) {
        let (tell, leadership) = watch::channel(Leadership::Standby);
        let gate = Arc::new(Semaphore::new(MAX_PERMITS as usize));
        let (lease, seen) = watch::channel(LeaseView {
            name: name.clone(),
            holder: None,
        });
        let write_access = WriteAccess {
            leadership,
            gate: Arc::clone(&gate),
            lease: Some(seen),
        };
        let candidate = Self {
            store,
            election: Election::new(identity, timing),
            timing,
            tell,
            lease,
            gate,
            gauge,
            name,
        };
        (candidate, write_access)
    }

    /// Runs the election until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let began = now();
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                // A hanging attempt must not delay the end of the own term.
                tried = tokio::time::timeout(self.timing.renew / 2, attempt(&self.store, &mut self.election)) => {
                    let problem = match tried {
                        Ok(Ok(())) => None,
                        Ok(Err(error)) => Some(error),
                        Err(_) => Some(format!("no answer within {:?}", self.timing.renew / 2)),
                    };
                    if let Some(problem) = problem {
                        tracing::warn!(lease = self.name, problem, "the Lease could not be read or written; it will be retried");
                    }
                }
            }
            self.publish();
            let mut pause = began + self.timing.retry.mul_f32(0.9 + 0.2 * fastrand::f32());
            if let Leadership::Leader { until: Some(until) } = self.election.leadership(now()) {
                pause = pause.min(until);
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = tokio::time::sleep_until(pause.into()) => self.publish(),
            }
        }
        self.end().await;
    }

    fn publish(&self) {
        let leadership = self.election.leadership(now());
        let before = self.tell.send_replace(leadership);
        let holder = self.election.other_leader(now()).map(str::to_owned);
        self.lease
            .send_if_modified(|seen| std::mem::replace(&mut seen.holder, holder.clone()) != holder);
        let leads = leadership != Leadership::Standby;
        self.gauge.set(i64::from(leads));
        if leads != (before != Leadership::Standby) {
            let holder = self.election.holder().unwrap_or("none");
            tracing::info!(lease = self.name, leads, holder, "the leader changed");
        }
    }

    async fn end(mut self) {
        let record = self.election.release(stamp());
        self.publish();
        let Some(record) = record else { return };
        let drained = tokio::time::timeout(DRAIN_TIMEOUT, self.gate.acquire_many(MAX_PERMITS)).await;
        if drained.is_err() {
            tracing::warn!(
                lease = self.name,
                "requests are still in flight; the Lease is not released and expires"
            );
            return;
        }
        let give_up = async {
            let found = self.store.read().await?;
            let ours = |found: &LeaseRecord| found.holder.as_deref() == Some(self.election.identity());
            match found {
                Some((found, version)) if ours(&found) => {
                    self.store.write(&record, Some(&version)).await.map(drop)
                }
                _ => Ok(()),
            }
        };
        match tokio::time::timeout(DRAIN_TIMEOUT, give_up).await {
            Ok(Ok(())) => tracing::info!(lease = self.name, "the Lease was released"),
            Ok(Err(error)) => tracing::warn!(
                lease = self.name,
                error,
                "the Lease could not be released; it expires"
            ),
            Err(_) => tracing::warn!(
                lease = self.name,
                "the Lease could not be released in time; it expires"
            ),
        }
    }
}

async fn attempt<S: LeaseStore>(store: &S, election: &mut Election) -> Result<(), String> {
    let found = store.read().await?;
    let (record, version) = found.unzip();
    match election.read(record, now(), stamp()) {
        LeaseAction::Wait => Ok(()),
        LeaseAction::Write(record) => {
            let sent = now();
            store.write(&record, version.as_ref()).await?;
            election.written(record, sent, now());
            Ok(())
        }
    }
}

/// Registers the gauge `leader`: whether this process leads.
pub fn register(registry: &mut Registry) -> Gauge {
    let gauge = Gauge::default();
    registry.register(
        "leader",
        "Whether this collector leads and may write",
        gauge.clone(),
    );
    gauge
}

/// Host name (in a pod: its name) and a random part, so that a restarted container has a new
/// identity.
pub fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    let host = if host.is_empty() { "collector" } else { host };
    format!("{host}_{:016x}", fastrand::u64(..))
}

/// The namespace of this pod; none outside a pod.
pub fn own_namespace() -> Option<String> {
    let text = std::fs::read_to_string("/var/run/secrets/kubernetes.io/serviceaccount/namespace").ok()?;
    Some(text.trim().to_owned()).filter(|name| !name.is_empty())
}

/// The namespace of the Lease: from the settings, else of the pod, else of the kubeconfig's
/// context.
pub fn namespace(setting: Option<&str>, client: &Client) -> String {
    setting
        .map(str::to_owned)
        .or_else(own_namespace)
        .unwrap_or_else(|| client.default_namespace().to_owned())
}

/// Storage in a `coordination.k8s.io` Lease.
pub struct KubeLease {
    api: Api<Lease>,
    name: String,
}

impl KubeLease {
    /// The Lease `name` in `namespace`; it need not exist.
    pub fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
        }
    }
}

impl LeaseStore for KubeLease {
    /// The whole object, so that other writers' metadata is kept.
    type Version = Lease;

    async fn read(&self) -> Result<Option<(LeaseRecord, Lease)>, String> {
        let found = self.api.get_opt(&self.name).await;
        let found = found.map_err(|error| format!("reading the Lease {}: {error}", self.name))?;
        Ok(found.map(|lease| (record(&lease), lease)))
    }

    async fn write(&self, record: &LeaseRecord, over: Option<&Lease>) -> Result<Lease, String> {
        let mut lease = over.cloned().unwrap_or_default();
        let before = lease.spec.take().unwrap_or_default();
        let renewed = record
            .renewed
            .as_deref()
            .and_then(|text| text.parse::<Timestamp>().ok());
        let same = before.holder_identity == record.holder;
        let acquired = if same {
            before.acquire_time.clone()
        } else {
            renewed.map(MicroTime)
        };
        lease.spec = Some(LeaseSpec {
            holder_identity: record.holder.clone(),
            lease_duration_seconds: record.seconds,
            renew_time: renewed.map(MicroTime),
            acquire_time: acquired,
            lease_transitions: Some(record.transitions),
            ..before
        });
        let params = PostParams::default();
        let written = if over.is_some() {
            self.api.replace(&self.name, &params, &lease).await
        } else {
            lease.metadata.name = Some(self.name.clone());
            self.api.create(&params, &lease).await
        };
        written.map_err(|error| format!("writing the Lease {}: {error}", self.name))
    }
}

fn record(lease: &Lease) -> LeaseRecord {
    let spec = lease.spec.clone().unwrap_or_default();
    LeaseRecord {
        holder: spec.holder_identity,
        seconds: spec.lease_duration_seconds,
        renewed: spec.renew_time.map(|time| format!("{:.6}", time.0)),
        transitions: spec.lease_transitions.unwrap_or_default(),
    }
}

fn stamp() -> String {
    format!("{:.6}", Timestamp::now())
}

/// Time of tokio's clock, which tests can pause.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[cfg(test)]
mod tests;
