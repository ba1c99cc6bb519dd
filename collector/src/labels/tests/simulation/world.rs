//! The simulated world: the infra cluster, the API servers, the Lease, the trace, and what was
//! found to be wrong. Everything random comes from one generator.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::Notify, time::Instant};
use virtfleet_collector_core::facts::{Fact, FactKey, InventoryEvent};

use super::{
    api_server::{HttpAnswer, MetadataPatch, SimApiServer, status},
    faults::{Fault, Faults, SieveFault},
    oracle,
    truth::{POLICIES, Truth, VmId},
};
use crate::leader::{LeaseRecord, WriteAccess};

/// Maximum requests of one collector to one user cluster per second.
pub(super) const PER_SECOND: u32 = 10;
/// Maximum concurrent reconcile runs of one user cluster.
pub(super) const PARALLEL: usize = 2;
/// Requests that may be sent later than their token was usable.
const RATE_TOLERANCE: usize = 3 * PARALLEL;

/// A request of a collector to a user cluster.
#[derive(Debug, Clone)]
pub(super) enum ApiCall {
    ListNodes,
    WatchNodes(u64),
    GetNode(String),
    PatchNode(String, Vec<u8>),
    ListPods(String),
    GetCsiNode(String),
}

impl ApiCall {
    fn describe(&self) -> String {
        match self {
            Self::ListNodes => "list".to_owned(),
            Self::WatchNodes(from) => format!("watch from {from}"),
            Self::GetNode(name) => format!("get {name}"),
            Self::PatchNode(name, body) => format!("patch {name} {}", String::from_utf8_lossy(body)),
            Self::ListPods(name) => format!("pods of {name}"),
            Self::GetCsiNode(name) => format!("csinode {name}"),
        }
    }

    /// Whether the rate limit of the label writer applies.
    fn is_limited(&self) -> bool {
        !matches!(self, Self::ListNodes | Self::WatchNodes(_))
    }
}

/// How a request travels: its fault, and the milliseconds there and back.
#[derive(Debug)]
pub(super) struct Passage {
    pub(super) number: usize,
    pub(super) fault: Fault,
    pub(super) there: u64,
    pub(super) back: u64,
}

/// The world of one simulation.
pub(super) struct SimWorld {
    pub(super) rng: fastrand::Rng,
    start: Instant,
    pub(super) faults: Faults,
    pub(super) truth: Truth,
    pub(super) servers: BTreeMap<String, SimApiServer>,
    /// Events of the infra cluster since the start.
    pub(super) infra_log: Vec<InventoryEvent>,
    /// Notifies of new events; unlike a `watch`, which wakes its receivers in a random order.
    infra_changed: Arc<Notify>,
    pub(super) lease: Option<(LeaseRecord, u64)>,
    /// Requests of all collectors to user clusters so far.
    pub(super) calls: usize,
    pub(super) last_patch_ms: u64,
    /// Write access of each running collector.
    pub(super) running: BTreeMap<usize, WriteAccess>,
    recent: BTreeMap<(usize, String), VecDeque<u64>>,
    pub(super) trace: Vec<String>,
    pub(super) wrong: Vec<String>,
    /// Notified when the fault of a sieve requests a restart.
    pub(super) restart: Arc<Notify>,
}

/// The world, shared by all tasks; never locked across an await.
#[derive(Clone)]
pub(super) struct SharedWorld(Arc<Mutex<SimWorld>>);

impl SharedWorld {
    pub(super) fn new(seed: u64, truth: Truth, faults: Faults) -> Self {
        let mut servers = BTreeMap::new();
        for name in truth.clusters.keys() {
            servers.insert(name.clone(), SimApiServer::new(name));
        }
        for (cluster, name) in truth.vms.keys() {
            if let Some(server) = servers.get_mut(cluster) {
                server.register(name, &[], "", 0);
            }
        }
        Self(Arc::new(Mutex::new(SimWorld {
            rng: fastrand::Rng::with_seed(seed),
            start: Instant::now(),
            faults,
            truth,
            servers,
            infra_log: Vec::new(),
            infra_changed: Arc::default(),
            lease: None,
            calls: 0,
            last_patch_ms: 0,
            running: BTreeMap::new(),
            recent: BTreeMap::new(),
            trace: Vec::new(),
            wrong: Vec::new(),
            restart: Arc::default(),
        })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, SimWorld> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SimWorld {
    /// Milliseconds since the start.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn note(&mut self, text: &str) {
        let now = self.now();
        self.trace
            .push(format!("{:>4}.{:03} {text}", now / 1000, now % 1000));
    }

    pub(super) fn fail(&mut self, text: String) {
        self.note(&format!("WRONG: {text}"));
        self.wrong.push(text);
    }

    /// Reports a change of the infra cluster to all watches.
    pub(super) fn publish(&mut self, event: InventoryEvent) {
        self.note(&format!("infra: {}", describe(&event)));
        self.infra_log.push(event);
        self.infra_changed.notify_waiters();
    }

    pub(super) fn infra_changes(&self) -> Arc<Notify> {
        Arc::clone(&self.infra_changed)
    }

    pub(super) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.rng.usize(..all.len())]
    }

    pub(super) fn pick_vm(&mut self) -> VmId {
        let all: Vec<VmId> = self.truth.vms.keys().cloned().collect();
        self.pick(&all).clone()
    }

    pub(super) fn pick_cluster(&mut self) -> String {
        let all: Vec<String> = self.servers.keys().cloned().collect();
        self.pick(&all).clone()
    }

    pub(super) fn pick_policy(&mut self) -> &'static str {
        self.pick::<&'static str>(&POLICIES)
    }

    /// A collector sends a request: counts it, checks who sends it, and decides its fate.
    pub(super) fn send(&mut self, collector: usize, cluster: &str, call: &ApiCall) -> Passage {
        self.calls += 1;
        let number = self.calls;
        let (base, is_up) = (self.rng.u64(1..20), self.servers[cluster].is_up);
        let back = self.rng.u64(1..20);
        let mut fault = self.faults.pick(&mut self.rng, call, number);
        if !is_up {
            fault = Fault::Refused;
        }
        self.note(&format!(
            "#{number} c{collector} {cluster} {}{}",
            call.describe(),
            fault.describe()
        ));
        if matches!(call, ApiCall::PatchNode(..)) {
            self.last_patch_ms = self.now();
            self.check_sender(collector);
        }
        if call.is_limited() {
            self.check_rate(collector, cluster);
        }
        let there = if let Fault::Slow(delay) = fault {
            base + delay
        } else {
            base
        };
        Passage {
            number,
            fault,
            there,
            back,
        }
    }

    fn check_sender(&mut self, collector: usize) {
        let leaders: Vec<usize> = self.leaders();
        // The requests of a collector that was just killed are no longer its own.
        if self.running.contains_key(&collector) && leaders != [collector] {
            self.fail(format!("the collector {collector} writes while {leaders:?} lead"));
        }
    }

    /// The running collectors that may write now.
    pub(super) fn leaders(&self) -> Vec<usize> {
        let leads = |(_, access): &(&usize, &WriteAccess)| access.leads();
        self.running
            .iter()
            .filter(leads)
            .map(|(number, _)| *number)
            .collect()
    }

    fn check_rate(&mut self, collector: usize, cluster: &str) {
        let now = self.now();
        let recent = self.recent.entry((collector, cluster.to_owned())).or_default();
        recent.push_back(now);
        recent.retain(|at| now - at <= 30_000);
        for seconds in [1, 5, 30] {
            let count = recent.iter().filter(|at| now - **at < seconds * 1000).count();
            let allowed = usize::try_from(u64::from(PER_SECOND) * (seconds + 1)).unwrap_or(usize::MAX);
            if count > allowed + RATE_TOLERANCE {
                self.fail(format!("{cluster}: {count} requests within {seconds} s"));
                return;
            }
        }
    }

    /// The API server handles a request.
    pub(super) fn serve(&mut self, cluster: &str, call: &ApiCall, passage: &Passage) -> HttpAnswer {
        let now = self.now();
        let stale = passage.fault == Fault::Stale;
        if let Fault::Status(code) = passage.fault {
            return status(code);
        }
        let Some(server) = self.servers.get_mut(cluster) else {
            return status(503);
        };
        match call {
            ApiCall::ListNodes => server.list(stale, now),
            ApiCall::GetNode(name) => server.get(name, stale, now),
            ApiCall::ListPods(name) => server.pods(name, stale, now),
            ApiCall::GetCsiNode(_) | ApiCall::WatchNodes(_) => status(404),
            ApiCall::PatchNode(name, body) => self.patch(cluster, name, body, passage.number),
        }
    }

    fn patch(&mut self, cluster: &str, name: &str, body: &[u8], number: usize) -> HttpAnswer {
        let now = self.now();
        let patch = match MetadataPatch::read(body) {
            Ok(patch) => patch,
            Err(why) => {
                self.fail(format!("#{number}: {why}"));
                return status(422);
            }
        };
        let id = (cluster.to_owned(), name.to_owned());
        let Some(server) = self.servers.get_mut(cluster) else {
            return status(503);
        };
        let wrong = match server.check(name, &patch) {
            Ok(node) => oracle::check_patch(&self.truth, &id, node, &patch, now),
            Err(_) => Vec::new(),
        };
        let (answer, changed) = server.patch(name, &patch, now);
        self.note(&format!(
            "#{number} {cluster}/{name} {} {}",
            answer.0,
            if changed { "changed" } else { "" }
        ));
        for wrong in wrong {
            self.fail(format!("#{number} {cluster}/{name}: {wrong}"));
        }
        if changed && self.faults.sieve == Some((number, SieveFault::EventLost)) {
            let version = self.servers[cluster].nodes[name].version;
            self.faults.lost_line = Some((cluster.to_owned(), version));
        }
        answer
    }

    /// After a request was handled: a sieve may restart the collector now.
    pub(super) fn handled(&mut self, number: usize) {
        if self.faults.sieve == Some((number, SieveFault::Restart)) {
            self.restart.notify_one();
        }
    }

    /// What is wrong with the Nodes of all clusters if everything has settled.
    pub(super) fn unsettled(&self) -> Vec<String> {
        let each = self.servers.iter();
        each.flat_map(|(name, server)| oracle::check_end(&self.truth, name, server))
            .collect()
    }
}

/// The kind of an object: the number of the watch that reports it.
pub(super) fn kind(event: &InventoryEvent) -> usize {
    match event {
        InventoryEvent::Apply(Fact::InfraNode(_)) | InventoryEvent::Delete(FactKey::InfraNode(_)) => 0,
        InventoryEvent::Apply(Fact::Vmi(_)) | InventoryEvent::Delete(FactKey::Vmi(_)) => 1,
        InventoryEvent::Apply(Fact::VmiMove(_)) | InventoryEvent::Delete(FactKey::VmiMove(..)) => 2,
        InventoryEvent::Apply(Fact::UserCluster(_)) | InventoryEvent::Delete(FactKey::UserCluster(_)) => {
            USER_CLUSTERS
        }
        _ => 4,
    }
}

/// The number of the watch of user clusters.
pub(super) const USER_CLUSTERS: usize = 3;
/// Number of watches of the infra cluster.
pub(super) const KINDS: usize = 5;

fn describe(event: &InventoryEvent) -> String {
    match event {
        InventoryEvent::Apply(Fact::InfraNode(node)) => {
            let labels: BTreeMap<_, _> = node.labels.iter().collect();
            format!("Node {} {labels:?}", node.name)
        }
        InventoryEvent::Apply(Fact::Vmi(vmi)) => {
            let on = vmi.node.as_ref().map_or("-", |node| node.as_str());
            format!(
                "VMI {} {:?} on {on}",
                vmi.key,
                vmi.uid.as_ref().map(virtfleet_wire::ids::Uid::as_str)
            )
        }
        InventoryEvent::Apply(Fact::UserCluster(one)) => {
            format!("UserCluster {} suspend={}", one.name, one.suspend)
        }
        InventoryEvent::Apply(Fact::Policy(one)) => format!(
            "policy {} dryRun={} clusters={:?}",
            one.name, one.dry_run, one.clusters.match_labels
        ),
        InventoryEvent::Apply(other) => format!("{:?}", other.key()),
        InventoryEvent::Delete(key) => format!("{key:?} deleted"),
        other => format!("{other:?}"),
    }
}
