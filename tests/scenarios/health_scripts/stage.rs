//! One VM in a fleet index, with manifests, reports and the time of a script.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;
use virtfleet_collector::inventory::folder::reader::FolderState;
use virtfleet_collector_core::{
    dial::DialRules,
    enrolment::EnrolmentReason,
    facts::InventoryEvent,
    findings::INVENTORY_WATCH_FAILING,
    index::FleetIndex,
    pull_result::{Answer, Failure, FailureClass, FailurePoint, MetricsSummary, PullResult},
    report::KeptReport,
    usage::UsageCounters,
    view::{ClusterState, ClusterStatus, VmDetail},
};
use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::VmKey,
};

use super::{
    guests::{MeteredGuest, VCPUS, manifests},
    leases::Kubelets,
    real::RealPull,
    script::{
        CollectorChange, Inventory, Neighbour, OBJECTS, Pulls, ScriptedClockEvent, Step, Usage, document,
    },
    times::set_times,
    tree,
    volumes::ScriptedVolumes,
};

/// Time between two pulls: the default of `scrape.interval`.
pub(crate) const PULL_INTERVAL_SECONDS: u64 = 30;
/// Time between two calls of [`FleetIndex::settle`].
const SETTLE_INTERVAL_SECONDS: u64 = 5;
/// Maximum requests for volumes between two calls of it.
const MAX_REQUESTS_PER_ROUND: usize = 32;
/// A healthy VM has run for so long when its script begins.
const WARM_UP_SECONDS: u64 = 1200;
/// When the scripts begin, in seconds since 1970.
const EPOCH_SECONDS: u64 = 1_800_000_000;

/// The stage of one script.
pub(crate) struct Stage {
    index: FleetIndex,
    folder: FolderState,
    base: Value,
    /// The present objects, by their key in scripts.
    objects: BTreeMap<&'static str, Value>,
    report: Value,
    pulls: Pulls,
    /// The result of each pull instead, as a real collector got it from a real guest.
    real: Option<RealPull>,
    clock_offset_seconds: i64,
    synchronised: bool,
    /// Events of the guest's clocks, with their times.
    clock_events: Vec<(u64, ScriptedClockEvent)>,
    guest: MeteredGuest,
    neighbours: Vec<(VmKey, MeteredGuest)>,
    /// The manifests of the neighbours.
    neighbour_manifests: String,
    cluster_state: ClusterState,
    kubelets: Kubelets,
    /// Findings about the watches of the inventory.
    watches: Vec<Finding>,
    /// None: the volumes of VMs are not read.
    volumes: Option<ScriptedVolumes>,
    /// Seconds since the first tick.
    now: u64,
    /// The tick at which the script begins.
    begun: u64,
}

impl Stage {
    /// A healthy VM, or nothing.
    pub(crate) fn new(empty: bool) -> Self {
        Self::begin(empty, None)
    }

    /// A VM whose guest is real and healthy: each pull has this result until
    /// [`Stage::play_with`] sets another.
    pub(crate) fn of_guest(healthy: RealPull) -> Self {
        Self::begin(false, Some(healthy))
    }

    fn begin(empty: bool, guest: Option<RealPull>) -> Self {
        let read = |name: &str| {
            let path = tree("tests/fixtures/health/base").join(name);
            document(&fs::read_to_string(path).unwrap()).unwrap()
        };
        let mut stage = Self {
            index: FleetIndex::new(DialRules::default()),
            folder: FolderState::default(),
            base: read("objects.yaml"),
            objects: BTreeMap::new(),
            report: read("report.yaml"),
            pulls: if empty { Pulls::NotPulled } else { Pulls::Answers },
            real: guest,
            clock_offset_seconds: 0,
            synchronised: true,
            clock_events: Vec::new(),
            guest: MeteredGuest::new(VCPUS, Usage::default()),
            neighbours: Vec::new(),
            neighbour_manifests: String::new(),
            cluster_state: ClusterState::Ready,
            kubelets: Kubelets::new(),
            watches: Vec::new(),
            volumes: None,
            now: 0,
            begun: 0,
        };
        stage.set_time();
        stage.index.apply(InventoryEvent::Init);
        stage.index.apply(InventoryEvent::Synced);
        stage.set_cluster_state(ClusterState::Ready);
        if !empty {
            for name in OBJECTS {
                stage.change(name, &Value::Object(serde_json::Map::new()));
            }
            stage.tick_until(WARM_UP_SECONDS);
            stage.begun = WARM_UP_SECONDS;
        }
        stage
    }

    /// The fleet.
    pub(super) fn index(&self) -> &FleetIndex {
        &self.index
    }

    /// The VM.
    pub(crate) fn detail(&self) -> Option<VmDetail> {
        self.index.detail(&key())
    }

    /// Lets the time pass until the step, and does it.
    pub(crate) fn play(&mut self, step: &Step) {
        self.play_with(step, None);
    }

    /// As [`Stage::play`], and from then on each pull of the real guest has this result.
    pub(crate) fn play_with(&mut self, step: &Step, pull: Option<RealPull>) {
        self.tick_until(self.begun + step.at_seconds);
        if pull.is_some() {
            self.real = pull;
        }
        for (name, patch) in &step.objects {
            self.change(name, patch);
        }
        let rest = &step.rest;
        if let Some(pulls) = rest.agent {
            self.pulls = pulls;
        }
        if let Some(patch) = &rest.report {
            merge(&mut self.report, patch);
        }
        self.clock_offset_seconds = rest.clock.unwrap_or(self.clock_offset_seconds);
        self.synchronised = rest.synchronised.unwrap_or(self.synchronised);
        let now = self.now;
        self.clock_events
            .extend(rest.clock_events.iter().map(|event| (now, event.clone())));
        if let Some(usage) = rest.usage {
            self.guest.usage = usage;
        }
        if let Some(neighbours) = &rest.neighbours {
            self.set_neighbours(neighbours);
        }
        if let Some(volumes) = &rest.volumes {
            let mut volumes = volumes.clone();
            volumes.set_times(self.volumes.as_ref(), &self.rfc3339());
            self.volumes = Some(volumes);
        }
        // The Leases are read before the API server counts as reached.
        if let Some(leases) = rest.leases {
            self.kubelets.set(leases, self.now);
            self.read_leases();
        }
        if let Some(state) = rest.cluster_state {
            self.set_cluster_state(state);
        }
        if let Some(inventory) = rest.inventory {
            let finding = Finding::new(
                INVENTORY_WATCH_FAILING,
                Severity::Critical,
                ("Watch", "vmis"),
                "R",
                "m",
            );
            self.watches = match inventory {
                Inventory::Follows => Vec::new(),
                Inventory::Fails => vec![finding],
            };
            self.index.set_inventory_findings(self.watches.clone());
        }
        if rest.collector == Some(CollectorChange::Restarts) {
            self.restart();
        }
        super::metrics::set(rest.metrics.as_ref(), &mut self.index);
        self.read_volumes();
        self.index.settle();
    }

    /// Another collector starts, and reads what there is now.
    pub(super) fn restart(&mut self) {
        self.kubelets.restart_collector(self.now);
        self.index = FleetIndex::new(DialRules::default());
        self.folder = FolderState::default();
        self.set_time();
        self.set_cluster_state(self.cluster_state);
        self.index.apply(InventoryEvent::Init);
        for (name, object) in self.objects.clone() {
            self.read_manifest(name, Some(&object.to_string()));
        }
        self.read_neighbours();
        self.index.apply(InventoryEvent::Synced);
        self.index.set_inventory_findings(self.watches.clone());
    }

    /// Lets the time pass.
    pub(super) fn wait(&mut self, seconds: u64) {
        self.tick_until(self.now + seconds);
    }

    /// Reads the volumes that the fleet requests, as the collector does from time to time.
    fn read_volumes(&mut self) {
        let Some(volumes) = &self.volumes else { return };
        for due in self.index.take_volumes_to_read(MAX_REQUESTS_PER_ROUND, true) {
            let read = volumes.read(&due);
            self.index.record_volumes(&due.vm, read);
        }
    }

    /// Ticks up to and including a time: pulls and held changes, as in the collector.
    fn tick_until(&mut self, until: u64) {
        while self.now < until {
            self.now += SETTLE_INTERVAL_SECONDS;
            self.set_time();
            if self.now.is_multiple_of(PULL_INTERVAL_SECONDS) {
                self.pull();
            }
            self.kubelets.renew(self.now);
            self.read_leases();
            self.read_volumes();
            self.index.settle();
        }
    }

    /// Reads the Leases of both clusters, as the collector does from time to time.
    fn read_leases(&mut self) {
        for leases in self.kubelets.read(self.now, to_ms) {
            self.index.apply(InventoryEvent::Leases(leases));
        }
    }

    fn now_ms(&self) -> u64 {
        to_ms(self.now)
    }

    fn set_time(&mut self) {
        self.index.set_time(String::new(), self.now_ms());
    }

    /// The present time, as objects have it.
    fn rfc3339(&self) -> String {
        let now = i64::try_from(EPOCH_SECONDS + self.now).unwrap();
        jiff::Timestamp::from_second(now).unwrap().to_string()
    }

    fn set_cluster_state(&mut self, state: ClusterState) {
        self.cluster_state = state;
        let status = ClusterStatus { state, message: None };
        self.index
            .set_cluster_statuses(BTreeMap::from([("blue".parse().unwrap(), status)]));
    }

    /// Changes an object, and reads its manifest.
    fn change(&mut self, name: &'static str, patch: &Value) {
        let now = self.rfc3339();
        let text = if patch.is_null() {
            self.objects.remove(name);
            None
        } else {
            let before = self.objects.get(name).cloned();
            let mut object = before.clone().unwrap_or_else(|| self.base[name].clone());
            merge(&mut object, patch);
            set_times(&mut object, before.as_ref(), &now);
            let text = object.to_string();
            self.objects.insert(name, object);
            Some(text)
        };
        self.read_manifest(name, text.as_deref());
    }

    fn read_manifest(&mut self, name: &str, text: Option<&str>) {
        let folder = match name {
            "cluster" | "node" => "clusters/blue",
            _ => "infra",
        };
        let file = format!("{folder}/{name}.yaml");
        for event in self.folder.update(Path::new(&file), text) {
            self.index.apply(event);
        }
        let problems = self.folder.findings();
        assert!(problems.is_empty(), "{name}: {problems:?}");
    }

    fn set_neighbours(&mut self, neighbours: &[Neighbour]) {
        let known = |one: &Neighbour| {
            let key = VmKey {
                namespace: "other".parse().unwrap(),
                name: one.name.parse().unwrap(),
            };
            let before = self.neighbours.iter().find(|(before, _)| *before == key);
            let mut guest = before.map_or_else(
                || MeteredGuest::new(one.vcpus, one.usage),
                |(_, guest)| guest.clone(),
            );
            guest.usage = one.usage;
            (key, guest)
        };
        self.neighbours = neighbours.iter().map(known).collect();
        self.neighbour_manifests = manifests(neighbours).to_string();
        self.read_neighbours();
    }

    fn read_neighbours(&mut self) {
        let text = Some(&*self.neighbour_manifests).filter(|text| !text.is_empty());
        for event in self.folder.update(Path::new("infra/neighbours.yaml"), text) {
            self.index.apply(event);
        }
    }

    fn pull(&mut self) {
        let mut answers = Vec::new();
        for (key, guest) in &mut self.neighbours {
            answers.push((key.clone(), guest.page(PULL_INTERVAL_SECONDS)));
        }
        for (key, page) in answers {
            let answer = self.answer(page);
            self.record(key, Ok(answer));
        }
        let page = self.guest.page(PULL_INTERVAL_SECONDS);
        let outcome = match &self.real {
            Some(real) => real.outcome(self.now_ms()),
            None => self.scripted(page),
        };
        if let Some(outcome) = outcome {
            self.record(key(), outcome);
        }
    }

    /// The result of a pull that the script describes; none without a pull.
    fn scripted(&self, page: (MetricsSummary, UsageCounters)) -> Option<Result<Answer, Failure>> {
        let outcome = match self.pulls {
            Pulls::NotPulled => return None,
            Pulls::Answers => Ok(self.answer(page)),
            Pulls::Refused => Err(fail(FailureClass::Connect).at(FailurePoint::Refused)),
            Pulls::Unreachable => Err(fail(FailureClass::Connect)),
            Pulls::Timeout => Err(fail(FailureClass::Timeout)),
            Pulls::Accepted => Err(fail(FailureClass::Timeout).at(FailurePoint::Agent)),
            Pulls::Tls => Err(fail(FailureClass::Tls)),
            Pulls::WrongVm => Err(fail(FailureClass::WrongVm)),
            Pulls::Enrolment => Err(Failure::of_enrolment(
                EnrolmentReason::NotOffered,
                "as the script says",
            )),
            Pulls::Relay => Err(fail(FailureClass::Connect).at(FailurePoint::Relay)),
            Pulls::RelayTimeout => Err(fail(FailureClass::Timeout).at(FailurePoint::Relay)),
            Pulls::NoAddress => Err(fail(FailureClass::NoAddress)),
            Pulls::NotAllowed => Err(fail(FailureClass::NotAllowed)),
            Pulls::Malformed => Err(fail(FailureClass::Malformed)),
        };
        Some(outcome)
    }

    fn record(&mut self, vm: VmKey, outcome: Result<Answer, Failure>) {
        if self.index.can_answer(&vm) {
            self.index.record_pull(PullResult {
                vm,
                at: self.now_ms(),
                address: None,
                pushed: false,
                outcome,
            });
        }
    }

    fn answer(&self, (metrics, counters): (MetricsSummary, UsageCounters)) -> Answer {
        let mut report = self.report.clone();
        let offset_ms = self.clock_offset_seconds * 1000;
        let realtime_ms = self.now_ms().checked_add_signed(offset_ms).unwrap();
        let boottime_ns = self.now * 1_000_000_000;
        report["clock"] =
            serde_json::json!({ "realtimeNs": realtime_ms * 1_000_000, "boottimeNs": boottime_ns });
        let events = self.clock_events.iter().map(|(at, event)| {
            let age_ms = (self.now - at) * 1000;
            let (kind, length) = (&event.kind, event.length_seconds);
            serde_json::json!({ "kind": kind, "lengthSeconds": length, "resolutionSeconds": 2.0, "ageMs": age_ms })
        });
        let watch = serde_json::json!({ "kind": "watch", "source": "rtc" });
        let items: Vec<Value> = std::iter::once(watch).chain(events).collect();
        report["sections"]["clock"] = serde_json::json!({ "status": "ok", "items": items });
        Answer {
            report: Box::new(KeptReport::read(report.to_string().as_bytes()).unwrap()),
            metrics: MetricsSummary {
                clock_synchronised: Some(self.synchronised),
                ..metrics
            },
            counters,
            queues: Box::default(),
            took_ms: 20,
            slow: false,
            certificate: None,
        }
    }
}

/// A time in milliseconds since 1970, of one in seconds since the first tick.
fn to_ms(seconds: u64) -> u64 {
    (EPOCH_SECONDS + seconds) * 1000
}

fn key() -> VmKey {
    VmKey {
        namespace: "prod".parse().unwrap(),
        name: "worker-0".parse().unwrap(),
    }
}

fn fail(class: FailureClass) -> Failure {
    Failure::new(class, "as the script says")
}

/// A JSON merge patch (RFC 7396).
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    for (name, value) in fields {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut target[name], value);
        }
    }
}
