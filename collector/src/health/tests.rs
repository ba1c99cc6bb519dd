//! The keeper against a store of its own, tokio's clock held.

use std::{collections::BTreeMap, sync::Mutex};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use virtfleet_collector_core::{
    dial::DialRules,
    facts::{Fact, FactKey, InfraNode, InventoryEvent, Labels, Phase, Selector, UserCluster, Vm, Vmi},
    pull_result::{Failure, FailureClass, PullResult},
};
use virtfleet_wire::finding::{Finding, Severity};

use super::*;
use crate::objects::{ConditionStatus, GuestHealthStatus};

#[derive(Clone, Default)]
struct Fake {
    kept: Arc<Mutex<BTreeMap<VmKey, Stored>>>,
    writes: Arc<Mutex<usize>>,
    broken: Arc<Mutex<bool>>,
    refuses: Arc<Mutex<bool>>,
}

impl Fake {
    fn fault(&self) -> Result<(), SendError> {
        if *self.broken.lock().unwrap() {
            return Err(SendError::Unreachable("500".into()));
        }
        Ok(())
    }
    fn writes(&self) -> usize {
        *self.writes.lock().unwrap()
    }
    fn placement(&self) -> String {
        let said = self.kept.lock().unwrap()[&key()].status();
        said.placement.unwrap().infra_node.unwrap()
    }
    fn condition(&self, key: &VmKey, kind: &str) -> (ConditionStatus, String) {
        let kept = self.kept.lock().unwrap();
        let said = kept[key].status().conditions;
        let found = said.into_iter().find(|one| one.kind == kind).unwrap();
        (found.status, found.reason)
    }
}

impl HealthStore for Fake {
    async fn list(&self) -> Result<BTreeMap<VmKey, Stored>, SendError> {
        self.fault()?;
        Ok(self.kept.lock().unwrap().clone())
    }
    async fn own(&self, key: &VmKey, owner: &OwnerReference, cluster: Option<&str>) -> Result<(), SendError> {
        self.fault()?;
        if *self.refuses.lock().unwrap() {
            return Err(SendError::Conflict);
        }
        *self.writes.lock().unwrap() += 1;
        let mut kept = self.kept.lock().unwrap();
        let one = kept.entry(key.clone()).or_default();
        (one.owner, one.cluster) = (Some(owner.uid.clone()), cluster.map(str::to_owned));
        Ok(())
    }
    async fn say(&self, key: &VmKey, status: &GuestHealthStatus) -> Result<(), SendError> {
        self.fault()?;
        *self.writes.lock().unwrap() += 1;
        let mut kept = self.kept.lock().unwrap();
        let kept = kept.get_mut(key).ok_or(SendError::Gone)?;
        *kept = Stored::new(kept.owner.clone(), kept.cluster.clone(), kept.uid.clone(), status);
        Ok(())
    }
    async fn delete(&self, key: &VmKey, _uid: Option<&str>) -> Result<(), SendError> {
        self.kept
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
        key: key(),
        uid: Some("vmi-1".parse().unwrap()),
        labels: Labels::new(),
        firmware_uuid: None,
        hostname: None,
        has_status: true,
        phase: Phase::Running,
        node: Some(host.parse().unwrap()),
        interfaces: Vec::new(),
        guest_os: None,
        paused: false,
        migration: None,
        deleting: false,
    }
}

fn vm() -> InventoryEvent {
    InventoryEvent::Apply(Fact::Vm(Vm {
        key: key(),
        uid: Some("vm-1".parse().unwrap()),
        labels: Labels::new(),
        printable_status: None,
    }))
}

fn host(name: &str) -> InventoryEvent {
    InventoryEvent::Apply(Fact::InfraNode(InfraNode {
        name: name.parse().unwrap(),
        uid: None,
        labels: Labels::new(),
        ready: Some(true),
    }))
}

fn stage(fake: &Fake, writing: Writing) -> (Arc<Fleet>, CancellationToken) {
    let fleet = Arc::new(Fleet::new(DialRules::default(), || jiff::Timestamp::UNIX_EPOCH));
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
    let keeper = run(
        Arc::clone(&fleet),
        Arc::default(),
        fake.clone(),
        writing,
        stop.clone(),
    );
    tokio::spawn(keeper);
    (fleet, stop)
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn silence(fleet: &Fleet, at: u64) {
    fleet.record_pull(PullResult {
        vm: key(),
        at,
        address: None,
        outcome: Err(Failure::new(FailureClass::Timeout, format_args!("after {at} ms"))),
    });
}

#[tokio::test(start_paused = true)]
async fn it_is_written_on_change_only_and_again_by_nobody_who_comes_later() {
    let fake = Fake::default();
    let (fleet, stop) = stage(&fake, Writing::fixed(true));
    seconds(6).await;
    assert_eq!(fake.writes(), 2, "made, and said");
    assert_eq!(fake.kept.lock().unwrap()[&key()].owner.as_deref(), Some("vm-1"));
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
    let (fleet, _stop) = stage(&fake, Writing::fixed(true));
    fleet.apply(vmi("h2"));
    seconds(60).await;
    assert_eq!(fake.writes(), 3, "a restart says nothing new");
}

#[tokio::test(start_paused = true)]
async fn an_agent_counts_as_silent_only_after_a_while_and_numbers_are_no_news() {
    let fake = Fake::default();
    let (fleet, _stop) = stage(&fake, Writing::fixed(true));
    seconds(6).await;
    let before = fake.writes();
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
        (ConditionStatus::False, "Silent".into())
    );
    assert_eq!(fake.writes() - before, 1);
}

#[tokio::test(start_paused = true)]
async fn a_restart_says_nothing_new_of_an_agent_that_still_fails() {
    let fake = Fake::default();
    let begin = || {
        let (fleet, stop) = stage(&fake, Writing::fixed(true));
        fleet.apply(InventoryEvent::Apply(Fact::UserCluster(UserCluster {
            name: "c".parse().unwrap(),
            namespace: key().namespace,
            selector: Selector::default(),
            labels: Labels::new(),
            suspend: false,
        })));
        (fleet, stop)
    };
    let said = || {
        let found = fake.kept.lock().unwrap()[&key()].status().findings;
        found.into_iter().map(|one| one.id).collect::<Vec<_>>()
    };
    let (fleet, stop) = begin();
    for pull in 0..5 {
        silence(&fleet, pull);
        seconds(30).await;
    }
    let before = said();
    assert!(before.contains(&"agent-timeout".to_owned()), "{before:?}");
    stop.cancel();
    let writes = fake.writes();
    let (fleet, _stop) = begin();
    for pull in 0..5 {
        silence(&fleet, pull);
        seconds(30).await;
        assert_eq!((said(), fake.writes()), (before.clone(), writes), "pull {pull}");
    }
    fleet.apply(InventoryEvent::Delete(FactKey::Vmi(key())));
    seconds(6).await;
    assert!(
        !said().contains(&"agent-timeout".to_owned()),
        "a VM that does not run has none"
    );
}

#[tokio::test(start_paused = true)]
async fn it_goes_with_its_vm_comes_back_when_removed_and_survives_faults() {
    let fake = Fake::default();
    *fake.broken.lock().unwrap() = true;
    let (fleet, _stop) = stage(&fake, Writing::fixed(true));
    seconds(60).await;
    assert_eq!(fake.writes(), 0);
    *fake.broken.lock().unwrap() = false;
    seconds(6).await;
    assert_eq!(fake.writes(), 2);
    fake.kept.lock().unwrap().clear();
    seconds(606).await;
    assert_eq!(fake.kept.lock().unwrap().len(), 1, "made anew");
    fleet.apply(InventoryEvent::Delete(FactKey::Vmi(key())));
    seconds(6).await;
    assert_eq!(fake.condition(&key(), "Placed").1, "Stopped");
    fleet.apply(InventoryEvent::Delete(FactKey::Vm(key())));
    seconds(16).await;
    assert!(fake.kept.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_was_refused_once_is_tried_again_in_the_next_pass() {
    let fake = Fake::default();
    *fake.refuses.lock().unwrap() = true;
    let (_fleet, _stop) = stage(&fake, Writing::fixed(true));
    seconds(6).await;
    assert_eq!(fake.writes(), 0);
    *fake.refuses.lock().unwrap() = false;
    seconds(6).await;
    assert_eq!(fake.writes(), 2, "made, and said");
}

#[tokio::test(start_paused = true)]
async fn who_does_not_lead_writes_nothing() {
    let fake = Fake::default();
    let (_fleet, _stop) = stage(&fake, Writing::fixed(false));
    seconds(600).await;
    assert_eq!(fake.writes(), 0);
}

#[tokio::test(start_paused = true)]
async fn who_moves_is_not_kept_waiting_by_a_large_fleets_first_writes() {
    const MANY: usize = 3000;
    let fake = Fake::default();
    let (fleet, _stop) = stage(&fake, Writing::fixed(true));
    seconds(6).await;
    for number in 0..MANY {
        let mut other = vmi_of("h1");
        // After "a", so that they are all in its way when it has had its turn.
        other.key.name = format!("b{number}").parse().unwrap();
        fleet.apply(InventoryEvent::Apply(Fact::Vmi(Box::new(other))));
    }
    seconds(10).await;
    let begun = fake.kept.lock().unwrap().len();
    assert!((2..MANY / 2).contains(&begun), "{begun} of {MANY}");
    let before = fake.writes();
    fleet.apply(vmi("h2"));
    seconds(60).await;
    assert_eq!(fake.kept.lock().unwrap().len(), MANY + 1, "all had their turn");
    assert_eq!(fake.placement(), "h2");
    // Two for each that is new, one for the one that moved, and no more than the pace allows.
    assert_eq!(fake.writes() - 2, 2 * MANY + 1);
    assert!((fake.writes() - before) <= 60 * PER_SECOND as usize + 1);
    let settled = fake.writes();
    seconds(3600).await;
    assert_eq!(fake.writes(), settled, "then it rests");
}

#[tokio::test(start_paused = true)]
async fn what_one_tenant_breaks_stops_no_other_tenants() {
    let fake = Fake::default();
    let (fleet, stop) = stage(&fake, Writing::fixed(true));
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
    // In its own namespace something cannot be read: it may be there all the same.
    fleet.set_inventory_findings(vec![broken("cluster", "blue"), broken("namespace", "ns")]);
    fleet.apply(InventoryEvent::Delete(FactKey::Vmi(key())));
    fleet.apply(InventoryEvent::Delete(FactKey::Vm(key())));
    seconds(30).await;
    assert!(fake.kept.lock().unwrap().contains_key(&key()));
    // A Node of a user cluster, and another namespace, say nothing about it.
    fleet.set_inventory_findings(vec![broken("cluster", "blue"), broken("namespace", "other")]);
    seconds(30).await;
    assert!(fake.kept.lock().unwrap().is_empty());
    stop.cancel();
}
