//! One collector: the real label writer, election and watches of Nodes, connected to the simulated
//! world.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use jiff::Timestamp;
use kube::Client;
use prometheus_client::{metrics::gauge::Gauge, registry::Registry};
use tokio::{sync::Notify, time::sleep};
use virtfleet_collector_core::{
    dial::DialRules,
    facts::{Fact, FactKey, InventoryEvent},
};

use super::{
    super::super::*,
    lease::{SimLease, TIMING},
    service::SimConnection,
    world::{KINDS, PARALLEL, PER_SECOND, SharedWorld, USER_CLUSTERS, kind},
};
use crate::{
    events::EventRecorder,
    fleet::Fleet,
    inventory::cluster::node_events::NodeEvents,
    leader::{Candidate, WriteAccess},
};

/// A running collector. Dropping it kills it.
pub(super) struct SimCollector {
    pub(super) number: usize,
    world: SharedWorld,
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

/// The clients of user clusters whose kubeconfig is known.
#[derive(Default)]
struct SimClients(Mutex<BTreeMap<ClusterName, Client>>);

impl SimClients {
    fn set(&self, cluster: &ClusterName, client: Option<Client>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match client {
            Some(client) => drop(all.insert(cluster.clone(), client)),
            None => drop(all.remove(cluster)),
        }
    }
}

impl Clients for SimClients {
    fn client(&self, cluster: &ClusterName) -> Option<Client> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(cluster).cloned()
    }
}

impl SimCollector {
    /// Starts a collector; with `elected` it takes part in the election, else it always leads.
    pub(super) fn start(world: &SharedWorld, number: usize, elected: bool) -> Self {
        let fleet = Arc::new(Fleet::new(DialRules::default(), || Timestamp::UNIX_EPOCH));
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let write_access = if elected {
            let lease = SimLease {
                world: world.clone(),
                collector: number,
            };
            let (candidate, access) = Candidate::new(
                lease,
                "ns/lease".into(),
                format!("c{number}"),
                TIMING,
                Gauge::default(),
            );
            tasks.spawn(candidate.run(stop.clone()));
            access
        } else {
            WriteAccess::fixed(true)
        };
        world.lock().note(&format!("c{number} starts"));
        world.lock().running.insert(number, write_access.clone());
        let clients = Arc::new(SimClients::default());
        let (changes, incoming) = mpsc::channel(64);
        let reconciler = LabelReconciler::new(ReconcilerParts {
            fleet: Arc::clone(&fleet),
            writer: KubeNodes::new(Arc::clone(&clients)),
            write_access,
            statuses: Arc::default(),
            events: EventRecorder::channel(None).0,
            metrics: LabelMetrics::register(&mut Registry::default()),
            settings: ReconcilerSettings {
                per_second: PER_SECOND,
                parallel: PARALLEL,
                ..super::super::harness::settings()
            },
            plan: virtfleet_collector_core::labels::plan::plan,
        });
        tasks.spawn(run(reconciler, incoming, stop.clone()));
        let index = FleetSink { fleet, changes };
        let watches = InfraWatches {
            world: world.clone(),
            number,
            index,
            clients,
        };
        tasks.spawn(watches.run());
        Self {
            number,
            world: world.clone(),
            tasks,
            stop,
        }
    }

    /// Kills it: nothing of its state remains.
    pub(super) async fn kill(mut self) {
        self.world.lock().note(&format!("c{} is killed", self.number));
        self.world.lock().running.remove(&self.number);
        self.check();
        self.tasks.shutdown().await;
    }

    /// Ends it as on SIGTERM: requests in flight end, then the Lease is released.
    pub(super) async fn end(mut self) {
        self.world.lock().note(&format!("c{} ends", self.number));
        self.stop.cancel();
        sleep(Duration::from_secs(6)).await;
        self.world.lock().running.remove(&self.number);
        self.check();
        self.tasks.shutdown().await;
    }

    /// Reports tasks that panicked.
    pub(super) fn check(&mut self) {
        while let Some(ended) = self.tasks.try_join_next() {
            if let Err(error) = ended
                && error.is_panic()
            {
                let text = format!("c{} panicked: {error}", self.number);
                self.world.lock().fail(text);
            }
        }
    }
}

/// Applies events to the fleet and passes changed VMs to the label writer.
#[derive(Clone)]
struct FleetSink {
    fleet: Arc<Fleet>,
    changes: mpsc::Sender<Vec<VmKey>>,
}

impl FleetSink {
    async fn apply(&self, event: InventoryEvent) {
        let keys = self.fleet.apply(event);
        if !keys.is_empty() {
            // Without receiver, the label writer has ended.
            self.changes.send(keys).await.ok();
        }
    }
}

/// The watches of the infra cluster, with a task for the Nodes of each user cluster.
struct InfraWatches {
    world: SharedWorld,
    number: usize,
    index: FleetSink,
    clients: Arc<SimClients>,
}

/// The task that watches one user cluster's Nodes; dropping it stops it.
struct NodeWatchTask {
    stop: CancellationToken,
    task: JoinSet<NodeEvents>,
}

impl InfraWatches {
    async fn run(self) {
        let (facts, from, changed) = {
            let world = self.world.lock();
            (world.truth.facts(), world.infra_log.len(), world.infra_changes())
        };
        self.index.apply(InventoryEvent::Init).await;
        self.lag().await;
        let mut nodes = BTreeMap::new();
        for event in facts {
            self.deliver(event, &mut nodes).await;
        }
        self.index.apply(InventoryEvent::Synced).await;
        // Each watch lags by itself; the watch of user clusters owns the tasks of their Nodes.
        let mut watches = JoinSet::new();
        let shared = Arc::new(self);
        for number in 0..KINDS {
            let nodes = if number == USER_CLUSTERS {
                std::mem::take(&mut nodes)
            } else {
                BTreeMap::new()
            };
            watches.spawn(Arc::clone(&shared).follow(number, from, Arc::clone(&changed), nodes));
        }
        while watches.join_next().await.is_some() {}
    }

    async fn lag(&self) {
        let lag = {
            let world = &mut *self.world.lock();
            world.faults.lag(&mut world.rng)
        };
        sleep(Duration::from_millis(lag)).await;
    }

    /// Follows the objects of one kind. Of several changes of an object during the lag, only the
    /// last one may be reported.
    async fn follow(
        self: Arc<Self>,
        number: usize,
        mut from: usize,
        changed: Arc<Notify>,
        mut nodes: BTreeMap<ClusterName, NodeWatchTask>,
    ) {
        loop {
            let is_new = |event: &InventoryEvent| kind(event) == number;
            // Registered before the check, so that no notification is missed.
            let notified = changed.notified();
            if !self.world.lock().infra_log[from..].iter().any(is_new) {
                notified.await;
                continue;
            }
            self.lag().await;
            let events = {
                let world = &mut *self.world.lock();
                let new = world.infra_log[from..].iter().filter(|event| is_new(event));
                let new: Vec<InventoryEvent> = new.cloned().collect();
                from = world.infra_log.len();
                if world.rng.bool() { last_of_each(new) } else { new }
            };
            for event in events {
                self.deliver(event, &mut nodes).await;
            }
        }
    }

    async fn deliver(&self, event: InventoryEvent, nodes: &mut BTreeMap<ClusterName, NodeWatchTask>) {
        match &event {
            InventoryEvent::Apply(Fact::UserCluster(cluster)) => {
                let name = cluster.name.clone();
                self.index.apply(event).await;
                nodes
                    .entry(name.clone())
                    .or_insert_with(|| self.watch_nodes(&name));
            }
            InventoryEvent::Delete(FactKey::UserCluster(name)) => {
                if let Some(mut watch) = nodes.remove(name) {
                    watch.stop.cancel();
                    if let Some(Ok(mut ended)) = watch.task.join_next().await {
                        for gone in ended.drain() {
                            self.index.apply(gone).await;
                        }
                    }
                }
                self.clients.set(name, None);
                self.index.apply(event).await;
            }
            _ => self.index.apply(event).await,
        }
    }

    fn watch_nodes(&self, cluster: &ClusterName) -> NodeWatchTask {
        let connection = SimConnection {
            world: self.world.clone(),
            cluster: cluster.to_string(),
            collector: self.number,
        };
        let client = Client::new(connection, "default");
        self.clients.set(cluster, Some(client.clone()));
        let mut events = NodeEvents::new(client, cluster);
        let stop = CancellationToken::new();
        let (index, stopped) = (self.index.clone(), stop.clone());
        let mut task = JoinSet::new();
        task.spawn(async move {
            loop {
                let next = tokio::select! {
                    biased;
                    () = stopped.cancelled() => return events,
                    next = events.next() => next,
                };
                for event in next {
                    index.apply(event).await;
                }
            }
        });
        NodeWatchTask { stop, task }
    }
}

/// The last event about each object, in their order.
fn last_of_each(events: Vec<InventoryEvent>) -> Vec<InventoryEvent> {
    let key = |event: &InventoryEvent| match event {
        InventoryEvent::Apply(fact) => Some(fact.key()),
        InventoryEvent::Delete(key) => Some(key.clone()),
        _ => None,
    };
    let later = |at: usize| {
        events[at + 1..]
            .iter()
            .any(|event| key(event) == key(&events[at]))
    };
    let last: Vec<usize> = (0..events.len()).filter(|at| !later(*at)).collect();
    last.into_iter().map(|at| events[at].clone()).collect()
}
