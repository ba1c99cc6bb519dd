//! Keeps one `GuestHealth` a VM in the infra cluster: written on change only, by the leader only.
//!
//! ```text
//! fleet, LabelStatusStore ─ digests ─▶ whom has something changed for? ─▶ status ─ differs? ─▶ HealthStore
//! ```
//! A pass compares digests of all VMs every few seconds, and works out only those that differ; now and then it works out all,
//! and lists what is kept, so that what others removed comes back. A pass writes no longer than until the next is due: what is
//! left waits for its turn, and nobody is overtaken twice by the same.

mod status;
mod store;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;
use virtfleet_collector_core::{
    health::SILENCE_THRESHOLD_MS,
    labels::guard,
    view::{AgentStatus, FleetSnapshot, VmView},
};
use virtfleet_wire::ids::VmKey;

pub use self::store::{HealthStore, KubeHealth, Stored};
use crate::{
    fleet::{Fleet, FleetRead as _},
    labels::{LabelStatusStore, SendError, TokenBucket},
    leader::Writing,
    objects::GuestHealthStatus,
};

/// Between two passes: long enough for a label to follow a move, so that the two are one change.
const PASS: Duration = Duration::from_secs(5);
/// Between two lists of what is kept.
const RELIST: Duration = Duration::from_mins(10);
/// The most requests in a second, one at a time: as many as a fleet of thousands needs while its VMs move, and less than half
/// of what a user cluster is asked for by default.
const PER_SECOND: u32 = 100;
/// A write is begun only while the leadership lasts this much longer.
const MARGIN: Duration = Duration::from_secs(1);

/// Runs until `stop`.
pub async fn run<S: HealthStore>(
    fleet: Arc<Fleet>,
    book: Arc<LabelStatusStore>,
    store: S,
    writing: Writing,
    stop: CancellationToken,
) {
    let mut keeper = Keeper {
        fleet,
        book,
        store,
        writing,
        kept: None,
        seen: BTreeMap::new(),
        silent: BTreeMap::new(),
        absent: BTreeSet::new(),
        last: None,
        pace: TokenBucket::new(PER_SECOND, now()),
    };
    let mut ticks = tokio::time::interval(PASS);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let passed = tokio::select! {
            () = stop.cancelled() => return,
            passed = keeper.pass() => passed,
        };
        if let Err(error) = passed {
            tracing::warn!(%error, "GuestHealth objects could not be read or written; tried again");
        }
    }
}

/// What became of one VM in a pass.
enum Settled {
    /// What is kept is what there is to say.
    Written,
    /// It could not be written yet; the next pass tries again.
    Later,
    /// This process may not write any more.
    NotLeading,
}

struct Keeper<S> {
    fleet: Arc<Fleet>,
    book: Arc<LabelStatusStore>,
    store: S,
    writing: Writing,
    /// What is kept, as far as we know, and when it was listed; none while another one leads.
    kept: Option<(Instant, BTreeMap<VmKey, Stored>)>,
    /// The digest under which each VM was worked out last.
    seen: BTreeMap<VmKey, u64>,
    /// Since when each silent agent is.
    silent: BTreeMap<VmKey, Instant>,
    /// Kept for VMs that were not there in the last pass.
    absent: BTreeSet<VmKey>,
    /// With whom the last pass ended early.
    last: Option<VmKey>,
    pace: TokenBucket,
}

impl<S: HealthStore> Keeper<S> {
    /// Ends early when this process does not lead any more.
    async fn pass(&mut self) -> Result<(), SendError> {
        if !self.writing.leads() {
            self.kept = None;
            return Ok(());
        }
        let fleet = self.fleet.snapshot();
        if !fleet.synced {
            return Ok(());
        }
        if self.kept.as_ref().is_none_or(|(at, _)| now() - *at >= RELIST) {
            let listed = self.store.list().await?;
            self.kept = Some((now(), listed));
            self.seen.clear();
        }
        self.silent.retain(|key, _| fleet.vms.contains_key(key));
        self.seen.retain(|key, _| fleet.vms.contains_key(key));
        let mut due = Vec::new();
        for (key, view) in &fleet.vms {
            let silent_ms = self.silent_ms(key, view);
            let digest = digest(view, self.book.digest(key), silent_ms >= SILENCE_THRESHOLD_MS);
            if self.seen.get(key) != Some(&digest) {
                due.push((key, digest, silent_ms));
            }
        }
        // With whom a pass ended early, by time or by a fault, is the last of the next.
        let first = due.partition_point(|(key, ..)| self.last.as_ref().is_some_and(|last| *key <= last));
        due.rotate_left(first);
        self.last = None;
        let begun = now();
        for (key, digest, silent_ms) in due {
            match self.settle(key, silent_ms).await {
                Ok(Settled::Written) => {
                    self.seen.insert(key.clone(), digest);
                }
                Ok(Settled::Later) => {}
                Ok(Settled::NotLeading) => return Ok(()),
                Err(error) => {
                    self.last = Some(key.clone());
                    return Err(error);
                }
            }
            if now() - begun >= PASS {
                self.last = Some(key.clone());
                break;
            }
        }
        if !fleet.partial {
            self.sweep(&fleet).await?;
        }
        Ok(())
    }

    fn silent_ms(&mut self, key: &VmKey, view: &VmView) -> u64 {
        if view.agent.status != AgentStatus::Silent {
            self.silent.remove(key);
            return 0;
        }
        let since = *self.silent.entry(key.clone()).or_insert_with(now);
        u64::try_from((now() - since).as_millis()).unwrap_or(u64::MAX)
    }

    /// Writes what differs for one VM.
    async fn settle(&mut self, key: &VmKey, silent_ms: u64) -> Result<Settled, SendError> {
        let Some(detail) = self.fleet.detail(key) else {
            return Ok(Settled::Later);
        };
        let Some(owner) = store::owner(key, &self.fleet.owners(key)) else {
            return Ok(Settled::Later);
        };
        let kept = self.kept.as_ref().and_then(|(_, kept)| kept.get(key));
        let cluster = detail.vm.cluster.as_ref().map(ToString::to_string);
        // A longer name is none that a label may have.
        let cluster = cluster.filter(|name| guard::check_value(name).is_ok());
        let (is_ours, before) = kept.map_or((false, GuestHealthStatus::default()), |kept| {
            let same = kept.owner.as_ref() == Some(&owner.uid) && kept.cluster == cluster;
            (same, kept.status())
        });
        let uid = kept.and_then(|kept| kept.uid.clone());
        let labels = self.book.get(key);
        let status = status::status(&detail, labels.as_deref(), silent_ms, &before, &stamp());
        if is_ours && before == status {
            return Ok(Settled::Written);
        }
        self.wait(if is_ours { 1 } else { 2 }).await;
        let store = &self.store;
        let write = async {
            if !is_ours {
                store.own(key, &owner, cluster.as_deref()).await?;
            }
            match store.say(key, &status).await {
                // Somebody removed it.
                Err(SendError::Gone) => {
                    store.own(key, &owner, cluster.as_deref()).await?;
                    store.say(key, &status).await
                }
                other => other,
            }
        };
        let Some(written) = self.writing.within(MARGIN, write).await else {
            return Ok(Settled::NotLeading);
        };
        match written {
            Ok(()) => {}
            // Of this VM alone, e.g. its namespace is being deleted: the others go on, and the next pass tries it again.
            Err(error @ (SendError::Refused(_) | SendError::Conflict | SendError::Gone)) => {
                tracing::debug!(vm = %key, %error, "a GuestHealth was not written");
                return Ok(Settled::Later);
            }
            Err(error) => return Err(error),
        }
        if let Some((_, kept)) = &mut self.kept {
            // Made anew, it has another UID, which nobody told us.
            let uid = uid.filter(|_| is_ours);
            let stored = Stored::new(Some(owner.uid), cluster, uid, &status);
            kept.insert(key.clone(), stored);
        }
        Ok(Settled::Written)
    }

    /// Waits until so many more requests may be sent.
    async fn wait(&mut self, requests: u32) {
        for _ in 0..requests {
            let at = self.pace.take(now());
            tokio::time::sleep_until(at.into()).await;
        }
    }

    /// Removes what is kept for VMs that are gone, in two passes at least and with an inventory that is complete. The garbage
    /// collector does the same by owner, when it gets to it.
    ///
    /// Of a namespace that cannot be read completely nothing is removed, and the others go on.
    async fn sweep(&mut self, fleet: &FleetSnapshot) -> Result<(), SendError> {
        let Some((_, kept)) = &self.kept else {
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
            match self.writing.within(MARGIN, delete).await {
                None => return Ok(()),
                Some(Ok(()) | Err(SendError::Gone | SendError::Conflict)) => {
                    if let Some((_, kept)) = &mut self.kept {
                        kept.remove(key);
                    }
                }
                Some(Err(error)) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A number that changes with what a GuestHealth says, and not with each answer of an agent.
fn digest(view: &VmView, labels: Option<u64>, silent: bool) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&view.uid, &view.cluster, &view.user_node, &view.infra_node).hash(&mut hasher);
    (&view.region, &view.zone, view.state, view.agent.status).hash(&mut hasher);
    (view.findings_key, labels, silent).hash(&mut hasher);
    hasher.finish()
}

fn stamp() -> String {
    format!("{:.0}", jiff::Timestamp::now())
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
