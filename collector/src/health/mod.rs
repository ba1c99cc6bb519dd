//! Maintains one `GuestHealth` per VM in the infra cluster: written only on change, and only by the
//! leader.
//!
//! ```text
//! fleet, LabelStatusStore ─ digests ─▶ changed VMs ─▶ status ─ differs? ─▶ HealthStore
//! ```
//! A sync compares the digests of all VMs every few seconds and computes only changed statuses. At
//! a longer interval it lists the stored objects and computes all statuses, which restores objects
//! that others deleted. A sync ends when the next one is due; the next one continues with the
//! remaining VMs, so that each VM is reached.

mod event_limit;
mod status;
mod store;
#[cfg(test)]
mod tests;
mod verdict_events;

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;
use virtfleet_collector_core::{
    labels::guard,
    view::{FleetSnapshot, VmView},
};
use virtfleet_wire::ids::VmKey;

use self::event_limit::EventLimit;
pub use self::store::{HealthStore, KubeHealth, Stored};
use crate::{
    events::{EventRecorder, NewEvent},
    fleet::{Fleet, FleetRead as _},
    labels::{LabelStatusStore, SendError, TokenBucket},
    leader::WriteAccess,
    objects::GuestHealthStatus,
};

/// Interval between two syncs: long enough for labels to follow a migration, so that both are one
/// write.
const SYNC_INTERVAL: Duration = Duration::from_secs(5);
/// Interval between two lists of the stored objects.
const RELIST_INTERVAL: Duration = Duration::from_mins(10);
/// Maximum requests per second, sent one at a time: enough for a fleet of thousands of VMs during
/// migrations, and less than half of the default limit of one user cluster.
const MAX_REQUESTS_PER_SECOND: u32 = 100;
/// A write starts only if the term as leader lasts at least this much longer.
const LEADERSHIP_MARGIN: Duration = Duration::from_secs(1);

/// Runs until `stop`.
pub async fn run<S: HealthStore>(
    fleet: Arc<Fleet>,
    statuses: Arc<LabelStatusStore>,
    store: S,
    write_access: WriteAccess,
    events: EventRecorder,
    stop: CancellationToken,
) {
    let mut writer = GuestHealthWriter {
        fleet,
        statuses,
        store,
        write_access,
        events,
        event_limit: EventLimit::default(),
        stored: None,
        digests: BTreeMap::new(),
        absent: BTreeSet::new(),
        ended_at: None,
        rate_limit: TokenBucket::new(MAX_REQUESTS_PER_SECOND, now()),
    };
    let mut ticks = tokio::time::interval(SYNC_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let synced = tokio::select! {
            () = stop.cancelled() => return,
            synced = writer.sync() => synced,
        };
        if let Err(error) = synced {
            tracing::warn!(%error, "GuestHealth objects could not be read or written; it will be retried");
        }
    }
}

enum SyncResult {
    /// The stored object has the current status.
    Written,
    /// The status could not be written; the next sync retries.
    Later,
    /// This process may not write any more.
    NotLeading,
}

struct GuestHealthWriter<S> {
    fleet: Arc<Fleet>,
    statuses: Arc<LabelStatusStore>,
    store: S,
    write_access: WriteAccess,
    events: EventRecorder,
    event_limit: EventLimit,
    /// Stored objects as last seen, and the time of the last list; none while another process
    /// leads.
    stored: Option<(Instant, BTreeMap<VmKey, Stored>)>,
    /// The digest of each VM at its last computed status.
    digests: BTreeMap<VmKey, u64>,
    /// Stored objects of VMs that did not exist in the last sync.
    absent: BTreeSet<VmKey>,
    /// The VM at which the last sync ended early.
    ended_at: Option<VmKey>,
    rate_limit: TokenBucket,
}

impl<S: HealthStore> GuestHealthWriter<S> {
    /// Ends early if this process stops leading.
    async fn sync(&mut self) -> Result<(), SendError> {
        if !self.write_access.leads() {
            self.stored = None;
            return Ok(());
        }
        let fleet = self.fleet.snapshot();
        if !fleet.synced {
            return Ok(());
        }
        if self
            .stored
            .as_ref()
            .is_none_or(|(at, _)| now() - *at >= RELIST_INTERVAL)
        {
            let listed = self.store.list().await?;
            self.stored = Some((now(), listed));
            self.digests.clear();
        }
        self.digests.retain(|key, _| fleet.vms.contains_key(key));
        self.event_limit.prune(now());
        let mut due = Vec::new();
        for (key, view) in &fleet.vms {
            let digest = digest(view, self.statuses.digest(key));
            if self.digests.get(key) != Some(&digest) {
                due.push((key, digest));
            }
        }
        // The VM at which a sync ended early, by time or by an error, is the last one of the next
        // sync.
        let first = due.partition_point(|(key, ..)| self.ended_at.as_ref().is_some_and(|last| *key <= last));
        due.rotate_left(first);
        self.ended_at = None;
        let started = now();
        for (key, digest) in due {
            match self.sync_vm(key).await {
                Ok(SyncResult::Written) => {
                    self.digests.insert(key.clone(), digest);
                }
                Ok(SyncResult::Later) => {}
                Ok(SyncResult::NotLeading) => return Ok(()),
                Err(error) => {
                    self.ended_at = Some(key.clone());
                    return Err(error);
                }
            }
            if now() - started >= SYNC_INTERVAL {
                self.ended_at = Some(key.clone());
                break;
            }
        }
        if !fleet.partial {
            self.delete_orphans(&fleet).await?;
        }
        Ok(())
    }

    /// Writes the changes of one VM.
    async fn sync_vm(&mut self, key: &VmKey) -> Result<SyncResult, SendError> {
        let Some(detail) = self.fleet.detail(key) else {
            return Ok(SyncResult::Later);
        };
        let Some(owner) = store::owner(key, &self.fleet.read(|index| index.owners(key))) else {
            return Ok(SyncResult::Later);
        };
        let kept = self.stored.as_ref().and_then(|(_, kept)| kept.get(key));
        let cluster = detail.vm.cluster.as_ref().map(ToString::to_string);
        // A longer name is not a valid label value.
        let cluster = cluster.filter(|name| guard::check_value(name).is_ok());
        let (is_ours, before) = kept.map_or((false, GuestHealthStatus::default()), |kept| {
            let same = kept.owner.as_ref() == Some(&owner.uid) && kept.cluster == cluster;
            (same, kept.status())
        });
        let uid = kept.and_then(|kept| kept.uid.clone());
        let labels = self.statuses.get(key);
        let status = status::status(&detail, labels.as_deref(), &before, &stamp());
        if is_ours && before == status {
            return Ok(SyncResult::Written);
        }
        self.wait(if is_ours { 1 } else { 2 }).await;
        let store = &self.store;
        let write = async {
            if !is_ours {
                store.apply(key, &owner, cluster.as_deref()).await?;
            }
            match store.write_status(key, &status).await {
                // The object was deleted by others.
                Err(SendError::Gone) => {
                    store.apply(key, &owner, cluster.as_deref()).await?;
                    store.write_status(key, &status).await
                }
                other => other,
            }
        };
        let Some(written) = self.write_access.within(LEADERSHIP_MARGIN, write).await else {
            return Ok(SyncResult::NotLeading);
        };
        match written {
            Ok(()) => {
                let vm = &detail.vm;
                let event =
                    verdict_events::event(key, vm.uid.as_ref(), vm.cluster.as_ref(), &before, &status);
                if let Some(event) = event {
                    self.record(key, event);
                }
            }
            // Only this VM failed, e.g. because its namespace is being deleted: continue with the
            // others; the next sync retries.
            Err(error @ (SendError::Refused(_) | SendError::Conflict | SendError::Gone)) => {
                tracing::debug!(vm = %key, %error, "a GuestHealth was not written");
                return Ok(SyncResult::Later);
            }
            Err(error) => return Err(error),
        }
        if let Some((_, kept)) = &mut self.stored {
            // A new object has another UID, which the response of the request does not tell.
            let uid = uid.filter(|_| is_ours);
            let stored = Stored::new(Some(owner.uid), cluster, uid, &status);
            kept.insert(key.clone(), stored);
        }
        Ok(SyncResult::Written)
    }

    /// Records an Event, if the limit of the VM allows it.
    fn record(&mut self, key: &VmKey, mut event: NewEvent) {
        match self.event_limit.take(key, now()) {
            None => self.events.count_dropped(),
            Some(0) => self.events.record(event),
            Some(more) => {
                event.note = format!("{} ({more} earlier changes have no Event)", event.note);
                self.events.record(event);
            }
        }
    }

    /// Waits until the rate limit allows this many requests.
    async fn wait(&mut self, requests: u32) {
        for _ in 0..requests {
            let at = self.rate_limit.take(now());
            tokio::time::sleep_until(at.into()).await;
        }
    }

    /// Deletes stored objects of VMs that do not exist, after at least two syncs with a complete
    /// inventory. The garbage collector does the same by owner, but later.
    ///
    /// Nothing is deleted in a namespace that cannot be read completely; other namespaces are not
    /// affected.
    async fn delete_orphans(&mut self, fleet: &FleetSnapshot) -> Result<(), SendError> {
        let Some((_, kept)) = &self.stored else {
            return Ok(());
        };
        let unsure = &fleet.gaps.namespaces;
        let gone = kept
            .iter()
            .filter(|(key, _)| !fleet.vms.contains_key(*key) && !unsure.contains(&key.namespace));
        let gone: BTreeMap<VmKey, Option<String>> =
            gone.map(|(key, kept)| (key.clone(), kept.uid.clone())).collect();
        let before = std::mem::replace(&mut self.absent, gone.keys().cloned().collect());
        for (key, uid) in gone.iter().filter(|(key, _)| before.contains(*key)) {
            self.wait(1).await;
            let delete = self.store.delete(key, uid.as_deref());
            match self.write_access.within(LEADERSHIP_MARGIN, delete).await {
                None => return Ok(()),
                Some(Ok(()) | Err(SendError::Gone | SendError::Conflict)) => {
                    if let Some((_, kept)) = &mut self.stored {
                        kept.remove(key);
                    }
                }
                Some(Err(error)) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A digest that changes with the status of a GuestHealth, but not with each answer of an agent.
fn digest(view: &VmView, labels: Option<u64>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&view.uid, &view.cluster, &view.user_node, &view.infra_node).hash(&mut hasher);
    (&view.region, &view.zone, view.state, view.agent.status).hash(&mut hasher);
    let health = &view.health;
    (health.verdict, health.cause, &health.reason, health.is_undecided).hash(&mut hasher);
    (health.conditions_key, view.findings_key, labels).hash(&mut hasher);
    hasher.finish()
}

fn stamp() -> String {
    format!("{:.0}", jiff::Timestamp::now())
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
