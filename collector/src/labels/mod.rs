//! Writes what the label planner decides to the Nodes of user clusters.
//!
//! ```text
//! changed VMs ─▶ run ─┬▶ lane of cluster a: queue ─▶ look: plan, evidence, patch ─▶ API server of a
//!    new leader ──────┘  lane of cluster b: …                    └─▶ LabelBook, Events, metrics
//! ```
//! A patch is sent only by the leader, only of metadata, and only to the very Node and version that was planned for. Each
//! user cluster has its own lane, so that a slow or dead one delays nobody.

mod book;
mod confirm;
mod contest;
mod evidence;
mod lane;
mod metrics;
mod pace;
mod queue;
mod road;
mod shared;
mod tell;
#[cfg(test)]
mod tests;
mod writer;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;
use virtfleet_wire::ids::{ClusterName, VmKey};

use self::lane::{Inbox, Lane};
pub(crate) use self::pace::Bucket;
pub use self::{
    book::{Drift, LabelBook, LabelStatus, Tally},
    confirm::Confirm,
    metrics::{LabelMetrics, drift_series},
    shared::{Planner, SenderSettings, Shared},
    writer::{Aimed, Clients, FIELD_MANAGER, Fresh, KubeNodes, NodeWriter, SendError},
};
use crate::{
    events::Events,
    fleet::{Fleet, FleetRead as _},
    leader::Writing,
};

impl<W: NodeWriter> Shared<W> {
    /// Everything that [`run`] needs.
    #[expect(clippy::too_many_arguments, reason = "the parts of the program, each once")]
    pub fn new(
        fleet: Arc<Fleet>,
        writer: W,
        writing: Writing,
        book: Arc<LabelBook>,
        events: Events,
        metrics: LabelMetrics,
        settings: SenderSettings,
        plan: Planner,
    ) -> Arc<Self> {
        Arc::new(Self {
            fleet,
            writer,
            writing,
            book,
            events,
            metrics,
            settings,
            plan,
            once: metrics::Once::default(),
            missed: AtomicBool::new(false),
        })
    }
}

/// Keeps the labels of all Nodes true until `stop`. `changes` names the VMs whose labels may have to change. Nothing is
/// planned before the inventory was read completely.
pub async fn run<W: NodeWriter>(
    shared: Arc<Shared<W>>,
    mut changes: mpsc::Receiver<Vec<VmKey>>,
    stop: CancellationToken,
) {
    let mut lanes = Lanes {
        all: HashMap::new(),
        of: HashMap::new(),
        running: JoinSet::new(),
        shared: Arc::clone(&shared),
    };
    let mut revisions = shared.fleet.revisions();
    let mut leadership = shared.writing.changes();
    let mut synced = false;
    let mut led = false;
    loop {
        let leads = shared.writing.leads();
        let now_synced = shared.fleet.synced();
        let again = leads && (shared.missed.swap(false, Ordering::Relaxed) || !led);
        if now_synced && (!synced || again) {
            // Everything once: what was known before, and what a leader before us has left.
            lanes.push(&shared.fleet.labelled());
        }
        (synced, led) = (now_synced, leads);
        tokio::select! {
            () = stop.cancelled() => return,
            batch = changes.recv() => match batch {
                Some(keys) => lanes.push(&keys),
                None => return,
            },
            Ok(()) = leadership.changed() => {}
            Ok(()) = revisions.changed(), if !synced => {}
            Some(ended) = lanes.running.join_next() => {
                if let Err(error) = ended && error.is_panic() {
                    std::panic::resume_unwind(error.into_panic());
                }
            }
        }
    }
}

struct Lanes<W> {
    shared: Arc<Shared<W>>,
    all: HashMap<ClusterName, Open>,
    of: HashMap<VmKey, ClusterName>,
    running: JoinSet<()>,
}

struct Open {
    inbox: Arc<Inbox>,
    vms: usize,
    stop: CancellationToken,
}

impl<W: NodeWriter> Lanes<W> {
    /// Hands each VM to its cluster's lane, and what has left a cluster to the lane that it was in.
    fn push(&mut self, keys: &[VmKey]) {
        let mut batches: HashMap<ClusterName, Vec<VmKey>> = HashMap::new();
        for key in keys {
            let new = self.shared.fleet.label_cluster(key);
            let old = match &new {
                Some(new) => self.of.insert(key.clone(), new.clone()),
                None => self.of.remove(key),
            };
            if new.is_none() {
                self.shared.book.remove(key);
            }
            if new != old {
                self.count(new.as_ref(), old.as_ref());
            }
            for cluster in new
                .iter()
                .chain(old.iter().filter(|old| Some(*old) != new.as_ref()))
            {
                batches.entry(cluster.clone()).or_default().push(key.clone());
            }
        }
        for (cluster, keys) in batches {
            if let Some(open) = self.all.get(&cluster) {
                open.inbox.push(&keys);
            }
        }
        self.all.retain(|_, open| {
            if open.vms == 0 {
                open.stop.cancel();
            }
            open.vms > 0
        });
    }

    fn count(&mut self, new: Option<&ClusterName>, old: Option<&ClusterName>) {
        if let Some(open) = old.and_then(|old| self.all.get_mut(old)) {
            open.vms = open.vms.saturating_sub(1);
        }
        let Some(cluster) = new else { return };
        if let Some(open) = self.all.get_mut(cluster) {
            open.vms += 1;
            return;
        }
        let open = Open {
            inbox: Arc::default(),
            vms: 1,
            stop: CancellationToken::new(),
        };
        let lane = Lane::new(Arc::clone(&self.shared), cluster.clone(), Arc::clone(&open.inbox));
        self.running.spawn(lane.run(open.stop.clone()));
        self.all.insert(cluster.clone(), open);
    }
}
