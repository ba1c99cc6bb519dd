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
    view::{ClusterState, ClusterStatus, VmDetail},
};
use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::VmKey,
};

use super::{
    script::{Inventory, OBJECTS, Pulls, Step, document},
    tree,
};

/// Time between two pulls: the default of `scrape.interval`.
const PULL_INTERVAL_SECONDS: u64 = 30;
/// Time between two calls of [`FleetIndex::settle`].
const SETTLE_INTERVAL_SECONDS: u64 = 5;
/// A healthy VM has run for so long when its script begins.
const WARM_UP_SECONDS: u64 = 1200;
/// When the scripts begin, in seconds since 1970.
const EPOCH_SECONDS: u64 = 1_800_000_000;

/// The stage of one script.
pub(super) struct Stage {
    index: FleetIndex,
    folder: FolderState,
    base: Value,
    /// The present objects, by their key in scripts.
    objects: BTreeMap<&'static str, Value>,
    report: Value,
    pulls: Pulls,
    clock_offset_seconds: i64,
    synchronised: bool,
    /// Seconds since the first tick.
    now: u64,
    /// The tick at which the script begins.
    begun: u64,
}

impl Stage {
    /// A healthy VM, or nothing.
    pub(super) fn new(empty: bool) -> Self {
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
            clock_offset_seconds: 0,
            synchronised: true,
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

    /// The VM.
    pub(super) fn detail(&self) -> Option<VmDetail> {
        self.index.detail(&key())
    }

    /// Lets the time pass until the step, and does it.
    pub(super) fn play(&mut self, step: &Step) {
        self.tick_until(self.begun + step.at_seconds);
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
            let found = match inventory {
                Inventory::Follows => Vec::new(),
                Inventory::Fails => vec![finding],
            };
            self.index.set_inventory_findings(found);
        }
        self.index.settle();
    }

    /// Ticks up to and including a time: pulls and held changes, as in the collector.
    fn tick_until(&mut self, until: u64) {
        while self.now < until {
            self.now += SETTLE_INTERVAL_SECONDS;
            self.set_time();
            if self.now.is_multiple_of(PULL_INTERVAL_SECONDS) {
                self.pull();
            }
            self.index.settle();
        }
    }

    fn now_ms(&self) -> u64 {
        (EPOCH_SECONDS + self.now) * 1000
    }

    fn set_time(&mut self) {
        self.index.set_time(String::new(), self.now_ms());
    }

    fn set_cluster_state(&mut self, state: ClusterState) {
        let status = ClusterStatus { state, message: None };
        self.index
            .set_cluster_statuses(BTreeMap::from([("blue".parse().unwrap(), status)]));
    }

    /// Changes an object, and reads its manifest.
    fn change(&mut self, name: &'static str, patch: &Value) {
        let folder = match name {
            "cluster" | "node" => "clusters/blue",
            _ => "infra",
        };
        let file = format!("{folder}/{name}.yaml");
        let text = if patch.is_null() {
            self.objects.remove(name);
            None
        } else {
            let object = self
                .objects
                .entry(name)
                .or_insert_with(|| self.base[name].clone());
            merge(object, patch);
            Some(object.to_string())
        };
        for event in self.folder.update(Path::new(&file), text.as_deref()) {
            self.index.apply(event);
        }
        let problems = self.folder.findings();
        assert!(problems.is_empty(), "{name}: {problems:?}");
    }

    fn pull(&mut self) {
        let outcome = match self.pulls {
            Pulls::NotPulled => return,
            Pulls::Answers => Ok(self.answer()),
            Pulls::Refused => Err(fail(FailureClass::Connect).at(FailurePoint::Refused)),
            Pulls::Unreachable => Err(fail(FailureClass::Connect)),
            Pulls::Timeout => Err(fail(FailureClass::Timeout)),
            Pulls::Tls => Err(fail(FailureClass::Tls)),
            Pulls::WrongVm => Err(fail(FailureClass::WrongVm)),
            Pulls::Enrolment => Err(Failure::of_enrolment(
                EnrolmentReason::NotOffered,
                "as the script says",
            )),
            Pulls::Relay => Err(fail(FailureClass::Connect).at(FailurePoint::Relay)),
            Pulls::NoAddress => Err(fail(FailureClass::NoAddress)),
            Pulls::NotAllowed => Err(fail(FailureClass::NotAllowed)),
            Pulls::Malformed => Err(fail(FailureClass::Malformed)),
        };
        if self.index.can_answer(&key()) {
            self.index.record_pull(PullResult {
                vm: key(),
                at: self.now_ms(),
                address: None,
                pushed: false,
                outcome,
            });
        }
    }

    fn answer(&self) -> Answer {
        let mut report = self.report.clone();
        let offset_ms = self.clock_offset_seconds * 1000;
        let realtime_ms = self.now_ms().checked_add_signed(offset_ms).unwrap();
        report["clock"] = serde_json::json!({ "realtimeNs": realtime_ms * 1_000_000 });
        Answer {
            report: Box::new(KeptReport::read(report.to_string().as_bytes()).unwrap()),
            metrics: MetricsSummary {
                samples: 1,
                clock_synchronised: Some(self.synchronised),
                ..MetricsSummary::default()
            },
            took_ms: 20,
            slow: false,
            certificate: None,
        }
    }
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
