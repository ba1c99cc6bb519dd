//! Conditions of Nodes with fake clusters.

use virtfleet_collector_core::{
    facts::InventoryEvent, findings::NODE_CONDITIONS_DENIED, node_conditions::NodeConditionKind::DisksReady,
};

use super::harness::{Fault, Harness, ms, settings};
use crate::{fleet::FleetRead as _, leader::WriteAccess};

const DISKS: &str = "virtfleet.io/DisksReady";

fn not_ready() -> (String, String) {
    ("False".to_owned(), "DataVolumesNotReady".to_owned())
}

/// A synced inventory with the cluster `c`, whose VM `a` has a volume that is not ready.
async fn sick(write_access: WriteAccess) -> Harness {
    let harness = Harness::new(write_access, settings());
    // Before the inventory is complete, health is shown at once.
    harness.event(InventoryEvent::Init).await;
    harness.host("h1", "r1").await;
    harness.host("h2", "r2").await;
    harness.cluster("c").await;
    harness.sick_vm("c", "a", "h1").await;
    harness.node("c", "a").await;
    harness.event(InventoryEvent::Synced).await;
    ms(60_000).await;
    harness.echo("c", "a").await;
    harness
}

#[tokio::test(start_paused = true)]
async fn conditions_are_written_once_and_removed_when_they_are_not_requested() {
    let harness = sick(WriteAccess::fixed(true)).await;
    assert_eq!(
        harness.fake.clusters().condition_requests,
        0,
        "the default is none"
    );
    harness.cluster_with("c", &[DisksReady], false).await;
    ms(100).await;
    assert_eq!(harness.condition("c", "a", DISKS), Some(not_ready()));
    harness.echo("c", "a").await;
    ms(60_000).await;
    assert_eq!(harness.fake.clusters().condition_requests, 1);

    // A move changes labels, and the conditions stay.
    harness.sick_vm("c", "a", "h2").await;
    ms(100).await;
    harness.echo("c", "a").await;
    ms(1_000).await;
    assert_eq!(
        (harness.racks().len(), harness.fake.clusters().condition_requests),
        (2, 1)
    );

    // Suspended: they are removed, once.
    harness.cluster_with("c", &[DisksReady], true).await;
    ms(100).await;
    assert_eq!(harness.condition("c", "a", DISKS), None);
    harness.echo("c", "a").await;
    harness.cluster_with("c", &[DisksReady], false).await;
    ms(100).await;
    assert_eq!(harness.condition("c", "a", DISKS), Some(not_ready()));
    harness.echo("c", "a").await;
    harness.cluster_with("c", &[], false).await;
    ms(100).await;
    harness.echo("c", "a").await;
    ms(60_000).await;
    assert_eq!(harness.condition("c", "a", DISKS), None);
    assert_eq!(harness.fake.clusters().condition_requests, 4);
}

#[tokio::test(start_paused = true)]
async fn conditions_of_a_stopped_vm_are_removed_also_after_a_failure() {
    let harness = sick(WriteAccess::fixed(true)).await;
    harness.cluster_with("c", &[DisksReady], false).await;
    ms(100).await;
    assert_eq!(harness.condition("c", "a", DISKS), Some(not_ready()));
    harness.echo("c", "a").await;
    let written = harness.fake.clusters().condition_requests;
    let labels = harness.requests();

    harness
        .fake
        .clusters()
        .faults
        .insert("c".parse().unwrap(), Fault::Status(503));
    harness.stop_vm("c", "a").await;
    ms(60_000).await;
    let tried = harness.fake.clusters().condition_requests;
    assert!(
        (2..=12).contains(&(tried - written)),
        "{tried} requests in a minute"
    );
    harness.fake.clusters().faults.clear();
    ms(60_000).await;
    assert_eq!(harness.condition("c", "a", DISKS), None);
    harness.echo("c", "a").await;
    ms(60_000).await;
    let removed = harness.fake.clusters().condition_requests;
    assert_eq!(harness.requests(), labels, "its labels stay");

    harness.sick_vm("c", "a", "h1").await;
    ms(60_000).await;
    assert_eq!(harness.condition("c", "a", DISKS), Some(not_ready()));
    assert_eq!(harness.fake.clusters().condition_requests, removed + 1);
}

#[tokio::test(start_paused = true)]
async fn a_standby_writes_no_condition() {
    let harness = sick(WriteAccess::fixed(false)).await;
    harness.cluster_with("c", &[DisksReady], false).await;
    ms(60_000).await;
    assert_eq!(harness.fake.clusters().condition_requests, 0);
}

#[tokio::test(start_paused = true)]
async fn missing_rights_are_a_finding_and_delay_no_label() {
    let harness = sick(WriteAccess::fixed(true)).await;
    harness.fake.clusters().conditions_denied = true;
    harness.cluster_with("c", &[DisksReady], false).await;
    ms(60_000).await;
    let denied = |harness: &Harness| {
        let findings = harness.fleet.snapshot().findings.clone();
        let found: Vec<_> = findings
            .into_iter()
            .filter(|one| one.id == NODE_CONDITIONS_DENIED)
            .collect();
        found
    };
    let found = denied(&harness);
    assert_eq!((found.len(), found[0].subject.name.as_str()), (1, "c"));
    assert!(
        found[0].remedy.contains("node-conditions.yaml"),
        "{}",
        found[0].remedy
    );
    let requests = harness.fake.clusters().condition_requests;
    assert!((2..=8).contains(&requests), "{requests} requests in a minute");

    harness.sick_vm("c", "a", "h2").await;
    ms(10).await;
    assert_eq!(harness.racks(), ["r1", "r2"], "the label is written at once");
    harness.echo("c", "a").await;

    harness.fake.clusters().conditions_denied = false;
    ms(1_300_000).await;
    assert_eq!(harness.condition("c", "a", DISKS), Some(not_ready()));
    assert_eq!(denied(&harness), []);
}

#[tokio::test(start_paused = true)]
async fn refused_labels_delay_no_condition() {
    let harness = sick(WriteAccess::fixed(true)).await;
    harness.fake.clusters().labels_refused = true;
    harness.sick_vm("c", "a", "h2").await;
    ms(10).await;
    let requests = harness.requests();
    assert_eq!(harness.status("c/a").error.as_deref(), Some("refused: no"));

    harness.cluster_with("c", &[DisksReady], false).await;
    ms(100).await;
    assert_eq!(harness.condition("c", "a", DISKS), Some(not_ready()));
    harness.echo("c", "a").await;
    harness.cluster_with("c", &[], false).await;
    ms(100).await;
    assert_eq!(harness.condition("c", "a", DISKS), None);
    harness.echo("c", "a").await;
    assert_eq!(harness.requests(), requests, "the label still waits");
    assert_eq!(harness.status("c/a").error.as_deref(), Some("refused: no"));

    harness.fake.clusters().labels_refused = false;
    ms(61_000).await;
    assert_eq!(harness.racks(), ["r1", "r2"]);
    assert_eq!(harness.status("c/a").error, None);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_planned_again_from_the_watched_node() {
    let harness = sick(WriteAccess::fixed(true)).await;
    // A heartbeat that the watch has not reported.
    harness.write_as_other("c", "a", "r1", false).await;
    harness.cluster_with("c", &[DisksReady], false).await;
    ms(100).await;
    assert_eq!(harness.condition("c", "a", DISKS), None);
    harness.echo("c", "a").await;
    ms(20_000).await;
    assert_eq!(harness.condition("c", "a", DISKS), Some(not_ready()));
}

#[tokio::test(start_paused = true)]
async fn another_writer_that_removes_conditions_does_not_make_the_collector_write_endlessly() {
    let harness = sick(WriteAccess::fixed(true)).await;
    harness.cluster_with("c", &[DisksReady], false).await;
    ms(100).await;
    for _ in 0..100 {
        harness.fake.clusters().conditions.clear();
        harness.write_as_other("c", "a", "r1", true).await;
        ms(1_000).await;
    }
    let requests = harness.fake.clusters().condition_requests;
    assert!(requests <= 21, "{requests}");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_does_not_answer_gets_few_requests() {
    let harness = sick(WriteAccess::fixed(true)).await;
    harness
        .fake
        .clusters()
        .faults
        .insert("c".parse().unwrap(), Fault::Status(503));
    harness.cluster_with("c", &[DisksReady], false).await;
    ms(60_000).await;
    let requests = harness.fake.clusters().condition_requests;
    assert!((2..=12).contains(&requests), "{requests}");
    harness.fake.clusters().faults.clear();
    ms(60_000).await;
    assert_eq!(harness.condition("c", "a", DISKS), Some(not_ready()));
}
