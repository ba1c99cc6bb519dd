//! Tests of the GuestHealth writer with an in-memory store and tokio's clock paused.

mod first_report;
mod restart;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use virtfleet_collector_core::{
    dial::DialRules,
    facts::{Fact, FactKey, InfraNode, InventoryEvent, Labels, Phase, Selector, UserCluster, Vm, Vmi},
    index::FleetIndex,
    mla::{
        delivery::{MetricsDelivery, PageDelivery, StreamDelivery},
        status::StreamName,
    },
    pull_result::{Answer, Failure, FailureClass, MetricsSummary, PullResult},
    report::KeptReport,
    reported::{ReportedCondition, ReportedConditions, ReportedStatus},
    usage::{CpuCounters, UsageCounters},
};
use virtfleet_wire::{
    finding::{Finding, Severity},
    report::{Clock, GuestReport, REPORT_API_VERSION, REPORT_KIND, Section, SectionStatus},
};

use tokio::sync::mpsc;

use super::*;
use crate::{
    events::NewEvent,
    objects::{ConditionStatus, GuestHealthStatus},
};

#[derive(Clone, Default)]
struct Fake {
    stored: Arc<Mutex<BTreeMap<VmKey, Stored>>>,
    writes: Arc<Mutex<usize>>,
    broken: Arc<Mutex<bool>>,
    refuses: Arc<Mutex<bool>>,
}

impl Fake {
    fn error(&self) -> Result<(), SendError> {
        if *self.broken.lock().unwrap() {
            return Err(SendError::Unreachable("500".into()));
        }
        Ok(())
    }
    fn writes(&self) -> usize {
        *self.writes.lock().unwrap()
    }
    fn placement(&self) -> String {
        let described = self.stored.lock().unwrap()[&key()].status();
        described.placement.unwrap().infra_node.unwrap()
    }
    fn condition(&self, key: &VmKey, kind: &str) -> (ConditionStatus, String) {
        let stored = self.stored.lock().unwrap();
        let described = stored[key].status().conditions;
        let found = described.into_iter().find(|one| one.kind == kind).unwrap();
        (found.status, found.reason)
    }
}

impl HealthStore for Fake {
    async fn list(&self) -> Result<BTreeMap<VmKey, Stored>, SendError> {
        self.error()?;
        Ok(self.stored.lock().unwrap().clone())
    }
    async fn apply(
        &self,
        key: &VmKey,
        owner: &OwnerReference,
        cluster: Option<&str>,
    ) -> Result<(), SendError> {
        self.error()?;
        if *self.refuses.lock().unwrap() {
            return Err(SendError::Conflict);
        }
        *self.writes.lock().unwrap() += 1;
        let mut stored = self.stored.lock().unwrap();
        let one = stored.entry(key.clone()).or_default();
        (one.owner, one.cluster) = (Some(owner.uid.clone()), cluster.map(str::to_owned));
        Ok(())
    }
    async fn write_status(&self, key: &VmKey, status: &GuestHealthStatus) -> Result<(), SendError> {
        self.error()?;
        *self.writes.lock().unwrap() += 1;
        let mut stored = self.stored.lock().unwrap();
        let stored = stored.get_mut(key).ok_or(SendError::Gone)?;
        *stored = Stored::new(
            stored.owner.clone(),
            stored.cluster.clone(),
            stored.uid.clone(),
            status,
        );
        Ok(())
    }
    async fn delete(&self, key: &VmKey, _uid: Option<&str>) -> Result<(), SendError> {
        self.stored
            .lock()
            .unwrap()
            .remove(key)
            .map(drop)
            .ok_or(SendError::Gone)
    }
}

fn key() -> VmKey {
    VmKey {
        namespace: "ns".parse().unwrap(),
        name: "a".parse().unwrap(),
    }
}

fn vmi(host: &str) -> InventoryEvent {
    InventoryEvent::Apply(Fact::Vmi(Box::new(vmi_of(host))))
}

fn vmi_of(host: &str) -> Vmi {
    Vmi {
        uid: Some("vmi-1".parse().unwrap()),
        has_status: true,
        phase: Phase::Running,
        node: Some(host.parse().unwrap()),
        ..Vmi::new(key())
    }
}

fn vm() -> InventoryEvent {
    InventoryEvent::Apply(Fact::Vm(Vm {
        uid: Some("vm-1".parse().unwrap()),
        ..Vm::new(key())
    }))
}

fn host(name: &str) -> InventoryEvent {
    InventoryEvent::Apply(Fact::InfraNode(InfraNode {
        name: name.parse().unwrap(),
        uid: None,
        labels: Labels::new(),
        ready: Some(true),
        conditions: ReportedConditions::default(),
        reported_ms: None,
        unschedulable: false,
        taints: Vec::new(),
        allocatable: None,
    }))
}

/// A clock that stands still: no change of health is shown that must last.
fn stopped_clock() -> jiff::Timestamp {
    jiff::Timestamp::UNIX_EPOCH
}

/// A clock that follows tokio's.
fn running_clock() -> jiff::Timestamp {
    thread_local!(static STARTED: std::cell::OnceCell<Instant> = const { std::cell::OnceCell::new() });
    let elapsed = STARTED.with(|started| now() - *started.get_or_init(now));
    jiff::Timestamp::from_second(1_000_000_000).unwrap() + jiff::SignedDuration::try_from(elapsed).unwrap()
}

fn stage(fake: &Fake, write_access: WriteAccess) -> (Arc<Fleet>, CancellationToken) {
    stage_with(fake, write_access, stopped_clock).0
}

/// With a running clock; returns also the Events.
fn stage_in_time(fake: &Fake) -> (Arc<Fleet>, CancellationToken, mpsc::Receiver<NewEvent>) {
    let ((fleet, stop), events) = stage_with(fake, WriteAccess::fixed(true), running_clock);
    fleet.apply(InventoryEvent::Apply(Fact::UserCluster(UserCluster {
        name: "c".parse().unwrap(),
        namespace: key().namespace,
        selector: Selector::default(),
        labels: Labels::new(),
        suspend: false,
        relay: None,
        node_authorities: None,
        node_conditions: BTreeSet::new(),
    })));
    let settled = Arc::clone(&fleet);
    tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
        loop {
            seconds(5).await;
            settled.change(FleetIndex::settle);
        }
    }));
    (fleet, stop, events)
}

type Staged = (Arc<Fleet>, CancellationToken);

fn stage_with(
    fake: &Fake,
    write_access: WriteAccess,
    clock: crate::fleet::Clock,
) -> (Staged, mpsc::Receiver<NewEvent>) {
    let fleet = Arc::new(Fleet::new(DialRules::default(), clock));
    for event in [
        InventoryEvent::Init,
        host("h1"),
        host("h2"),
        vm(),
        vmi("h1"),
        InventoryEvent::Synced,
    ] {
        fleet.apply(event);
    }
    let stop = CancellationToken::new();
    let (recorder, events) = EventRecorder::channel(None);
    let keeper = run(
        Arc::clone(&fleet),
        Arc::default(),
        fake.clone(),
        write_access,
        recorder,
        stop.clone(),
    );
    tokio::spawn(keeper);
    ((fleet, stop), events)
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn silence(fleet: &Fleet, at: u64) {
    fleet.record_pull(PullResult {
        vm: key(),
        at: u64::try_from(running_clock().as_millisecond()).unwrap(),
        address: None,
        pushed: false,
        outcome: Err(Failure::new(FailureClass::Timeout, format_args!("after {at} ms"))),
    });
}

/// KubeVirt and Kubernetes say that the VM and its infra node are ready.
fn make_ready(fleet: &Fleet) {
    let ready = || {
        let ready = ReportedCondition::new("Ready", ReportedStatus::True, None, None);
        ReportedConditions::new([ready])
    };
    let mut running = vmi_of("h1");
    running.conditions = ready();
    fleet.apply(InventoryEvent::Apply(Fact::Vmi(Box::new(running))));
    if let InventoryEvent::Apply(Fact::InfraNode(mut node)) = host("h1") {
        node.conditions = ready();
        fleet.apply(InventoryEvent::Apply(Fact::InfraNode(node)));
    }
}

/// The agent answers with a report that has this finding and lacks DNS.
fn answers(fleet: &Fleet, finding: Finding) {
    let now_ms = u64::try_from(running_clock().as_millisecond()).unwrap();
    let ready = Section {
        status: SectionStatus::Ok,
        ..Section::default()
    };
    let report = GuestReport {
        api_version: REPORT_API_VERSION.into(),
        kind: REPORT_KIND.into(),
        clock: Clock {
            realtime_ns: now_ms * 1_000_000,
            ..Clock::default()
        },
        sections: [("storage".to_owned(), ready)].into(),
        findings: vec![finding],
        ..GuestReport::default()
    };
    // Two CPUs, one of them idle.
    let up_ms = u32::try_from(now_ms % 100_000_000).unwrap();
    let answer = Answer {
        report: Box::new(KeptReport::read(&serde_json::to_vec(&report).unwrap()).unwrap()),
        metrics: MetricsSummary {
            cpus: 2,
            ..MetricsSummary::default()
        },
        counters: UsageCounters {
            cpu: Some(CpuCounters {
                total_ms: up_ms * 2,
                idle_ms: up_ms,
                steal_ms: 0,
            }),
            ..UsageCounters::default()
        },
        queues: Box::default(),
        took_ms: 10,
        slow: false,
        certificate: None,
    };
    fleet.record_pull(PullResult {
        vm: key(),
        at: now_ms,
        address: None,
        pushed: false,
        outcome: Ok(answer),
    });
}

#[tokio::test(start_paused = true)]
async fn objects_are_written_on_change_only_also_after_a_restart() {
    let fake = Fake::default();
    let (fleet, stop) = stage(&fake, WriteAccess::fixed(true));
    seconds(6).await;
    assert_eq!(fake.writes(), 2, "created, and status written");
    assert_eq!(fake.stored.lock().unwrap()[&key()].owner.as_deref(), Some("vm-1"));
    assert_eq!(fake.condition(&key(), "Placed").0, ConditionStatus::True);
    assert_eq!(
        fake.condition(&key(), "AgentReporting").0,
        ConditionStatus::Unknown
    );
    seconds(3600).await;
    assert_eq!(fake.writes(), 2);
    fleet.apply(vmi("h2"));
    seconds(6).await;
    assert_eq!(fake.writes(), 3);
    assert_eq!(fake.placement(), "h2");
    stop.cancel();
    let (fleet, _stop) = stage(&fake, WriteAccess::fixed(true));
    fleet.apply(vmi("h2"));
    seconds(60).await;
    assert_eq!(fake.writes(), 3, "a restart writes nothing");
}

#[tokio::test(start_paused = true)]
async fn an_agent_is_silent_after_a_threshold_and_numbers_cause_no_write() {
    let fake = Fake::default();
    let (fleet, _stop, mut events) = stage_in_time(&fake);
    seconds(6).await;
    for pull in 0..2 {
        silence(&fleet, pull);
        seconds(30).await;
    }
    assert_eq!(fake.condition(&key(), "AgentReporting").1, "Waiting");
    for pull in 2..100 {
        silence(&fleet, pull);
        seconds(30).await;
    }
    assert_eq!(
        fake.condition(&key(), "AgentReporting"),
        (ConditionStatus::False, "NoAnswer".into())
    );
    let verdict = |fake: &Fake| {
        let status = fake.stored.lock().unwrap()[&key()].status();
        (status.verdict.unwrap(), status.reason.unwrap())
    };
    // The clusters of a folder are ready, and this one never gets a Node for the VM.
    assert_eq!(verdict(&fake), ("Critical".into(), "NotJoined".into()));
    assert_eq!(fake.condition(&key(), "Healthy").0, ConditionStatus::False);
    let mut recorded = Vec::new();
    while let Ok(event) = events.try_recv() {
        recorded.push(event.reason);
    }
    assert_eq!(recorded, ["VmDegraded", "VmCritical"]);
    let settled = fake.writes();
    for pull in 100..200 {
        silence(&fleet, pull);
        seconds(30).await;
    }
    assert_eq!(fake.writes(), settled, "numbers cause no write");
}

#[tokio::test(start_paused = true)]
async fn objects_are_deleted_with_the_vm_restored_and_survive_errors() {
    let fake = Fake::default();
    *fake.broken.lock().unwrap() = true;
    let (fleet, _stop) = stage(&fake, WriteAccess::fixed(true));
    seconds(60).await;
    assert_eq!(fake.writes(), 0);
    *fake.broken.lock().unwrap() = false;
    seconds(6).await;
    assert_eq!(fake.writes(), 2);
    fake.stored.lock().unwrap().clear();
    seconds(606).await;
    assert_eq!(fake.stored.lock().unwrap().len(), 1, "created again");
    fleet.apply(InventoryEvent::Delete(FactKey::Vmi(key())));
    seconds(6).await;
    assert_eq!(fake.condition(&key(), "Placed").1, "Stopped");
    fleet.apply(InventoryEvent::Delete(FactKey::Vm(key())));
    seconds(16).await;
    assert!(fake.stored.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn rejected_writes_are_retried_in_the_next_sync() {
    let fake = Fake::default();
    *fake.refuses.lock().unwrap() = true;
    let (_fleet, _stop) = stage(&fake, WriteAccess::fixed(true));
    seconds(6).await;
    assert_eq!(fake.writes(), 0);
    *fake.refuses.lock().unwrap() = false;
    seconds(6).await;
    assert_eq!(fake.writes(), 2, "created, and status written");
}

#[tokio::test(start_paused = true)]
async fn a_standby_writes_nothing() {
    let fake = Fake::default();
    let (_fleet, _stop) = stage(&fake, WriteAccess::fixed(false));
    seconds(600).await;
    assert_eq!(fake.writes(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_migration_is_written_during_the_first_writes_of_a_large_fleet() {
    const OBJECTS: usize = 3000;
    let fake = Fake::default();
    let (fleet, _stop) = stage(&fake, WriteAccess::fixed(true));
    seconds(6).await;
    for number in 0..OBJECTS {
        let mut other = vmi_of("h1");
        // Sorted after "a", so that all of them come before "a" again.
        other.key.name = format!("b{number}").parse().unwrap();
        fleet.apply(InventoryEvent::Apply(Fact::Vmi(Box::new(other))));
    }
    seconds(10).await;
    let started = fake.stored.lock().unwrap().len();
    assert!((2..OBJECTS / 2).contains(&started), "{started} of {OBJECTS}");
    let before = fake.writes();
    fleet.apply(vmi("h2"));
    seconds(60).await;
    assert_eq!(fake.stored.lock().unwrap().len(), OBJECTS + 1, "all are written");
    assert_eq!(fake.placement(), "h2");
    // Two requests for each new VM, one for the migrated one, within the rate limit.
    assert_eq!(fake.writes() - 2, 2 * OBJECTS + 1);
    assert!((fake.writes() - before) <= 60 * MAX_REQUESTS_PER_SECOND as usize + 1);
    let settled = fake.writes();
    seconds(2 * RELIST_INTERVAL.as_secs()).await;
    assert_eq!(fake.writes(), settled, "no further writes");
}

#[tokio::test(start_paused = true)]
async fn broken_objects_of_one_tenant_do_not_affect_others() {
    let fake = Fake::default();
    let (fleet, stop) = stage(&fake, WriteAccess::fixed(true));
    seconds(6).await;
    let broken = |name: &str, value: &str| {
        let subject = ("Node", "n");
        let found = Finding::new(
            "inventory-object-unreadable",
            Severity::Warning,
            subject,
            "R",
            "m",
        );
        found.with(name, value)
    };
    // In its apply namespace an object cannot be read: the VM may still exist.
    let found = vec![broken("cluster", "blue"), broken("namespace", "ns")];
    fleet.change(|index| index.set_inventory_findings(found));
    fleet.apply(InventoryEvent::Delete(FactKey::Vmi(key())));
    fleet.apply(InventoryEvent::Delete(FactKey::Vm(key())));
    seconds(30).await;
    assert!(fake.stored.lock().unwrap().contains_key(&key()));
    // Problems with a Node of a user cluster or another namespace do not affect this VM.
    let found = vec![broken("cluster", "blue"), broken("namespace", "other")];
    fleet.change(|index| index.set_inventory_findings(found));
    seconds(30).await;
    assert!(fake.stored.lock().unwrap().is_empty());
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn guest_health_does_not_have_the_state_of_the_operators_stream() {
    let fake = Fake::default();
    let (fleet, _stop, _events) = stage_in_time(&fake);
    for (stream, expected) in [("cluster/c", true), ("fleet", false)] {
        let stream: StreamName = stream.parse().unwrap();
        let pages = BTreeMap::from([(key(), PageDelivery::Read)]);
        let delivery = MetricsDelivery::new([(stream, StreamDelivery::Refused)], pages);
        fleet.change(|index| index.set_metrics_delivery(delivery));
        seconds(60).await;
        let conditions = fake.stored.lock().unwrap()[&key()].status().conditions;
        let mut kinds = conditions.iter().map(|one| one.kind.as_str());
        assert_eq!(kinds.any(|kind| kind == "MetricsDelivered"), expected);
    }
}
