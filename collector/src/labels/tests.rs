//! The label writer with fake clusters: Nodes with versions, faults on demand, tokio's clock
//! paused.

mod conditions;
mod fake_conditions;
mod harness;
mod not_written;
mod simulation;

use std::{sync::atomic::Ordering, time::Duration};

use virtfleet_collector_core::{
    facts::{FactKey, InventoryEvent},
    labels::plan::Reason,
};

use self::harness::{FakeNodeWriter, Fault, Harness, ms, settings};
use super::*;
use crate::{events::EventObject, leader::WriteAccess};

#[tokio::test(start_paused = true)]
async fn no_request_before_the_inventory_is_complete_then_one_per_node() {
    let harness = Harness::new(WriteAccess::fixed(true), settings());
    harness.event(InventoryEvent::Init).await;
    harness.host("h1", "r1").await;
    harness.cluster("c").await;
    harness.vm("c", "a", "h1").await;
    harness.node("c", "a").await;
    ms(60_000).await;
    assert_eq!((harness.requests(), harness.statuses.all().len()), (0, 0));
    harness.event(InventoryEvent::Synced).await;
    ms(10).await;
    assert_eq!(harness.racks(), ["r1"]);
    assert!(harness.status("c/a").in_sync());
    assert!(harness.status("c/a").written_at.is_some());
}

#[tokio::test(start_paused = true)]
async fn the_first_move_is_sent_at_once_and_further_ones_are_merged() {
    let mut harness = Harness::new(WriteAccess::fixed(true), settings());
    harness.ready(&["c"]).await;
    ms(10_000).await;
    harness.vm("c", "a", "h2").await;
    ms(10).await;
    assert_eq!(
        harness.racks(),
        ["r1", "r2"],
        "at once, from the answer to the patch"
    );
    for round in 0..10 {
        harness
            .vm("c", "a", if round % 2 == 0 { "h1" } else { "h2" })
            .await;
        ms(20).await;
    }
    harness.vm("c", "a", "h1").await;
    ms(100).await;
    assert_eq!(harness.racks().len(), 2, "still within the coalesce window");
    ms(400).await;
    assert_eq!(harness.racks(), ["r1", "r2", "r1"]);
    harness.echo("c", "a").await;
    ms(60_000).await;
    assert_eq!(harness.requests(), 3, "the watch event changes nothing");
    let moved = harness.events.recv().await.unwrap();
    assert_eq!(moved.reason, "LabelsMoved");
    assert!(moved.note.contains("rack: r1 → r2"), "{}", moved.note);
    assert!(matches!(moved.about, EventObject::Vm { key, uid: Some(_), .. } if key.to_string() == "c/a"));
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_node_gets_no_patch_after_a_restart() {
    let harness = Harness::new(WriteAccess::fixed(true), settings());
    harness.ready(&["c"]).await;
    ms(10).await;
    harness.echo("c", "a").await;
    let fake = harness.fake.clone();
    harness.stop.cancel();
    // Another process with the same cluster.
    let restarted = Harness::with(fake, WriteAccess::fixed(true), settings());
    restarted.event(InventoryEvent::Init).await;
    restarted.host("h1", "r1").await;
    restarted.cluster("c").await;
    restarted.vm("c", "a", "h1").await;
    restarted.echo("c", "a").await;
    restarted.event(InventoryEvent::Synced).await;
    ms(600_000).await;
    assert_eq!((restarted.requests(), restarted.fake.clusters().evidence), (1, 0));
    assert!(restarted.status("c/a").in_sync());
}

/// An infra node that loses a label for a moment, e.g. when it registers again.
#[tokio::test(start_paused = true)]
async fn a_label_that_is_gone_for_a_moment_is_not_removed_from_nodes() {
    let harness = Harness::new(WriteAccess::fixed(true), settings());
    harness.ready(&["c"]).await;
    ms(10_000).await;
    harness.echo("c", "a").await;
    for _ in 0..5 {
        harness.host_without("h1").await;
        ms(20_000).await;
        harness.host("h1", "r1").await;
        ms(1_000).await;
    }
    assert_eq!(harness.racks(), ["r1"]);
    harness.host_without("h1").await;
    ms(29_000).await;
    assert_eq!(
        (
            harness.racks().len(),
            harness.status("c/a").plan.decisions[0].reason
        ),
        (1, Reason::SourceGone)
    );
    ms(2_000).await;
    assert_eq!(harness.racks(), ["r1", ""], "stable for 30 seconds");
}

/// An infra node whose label changes back and forth, e.g. because two controllers write it.
#[tokio::test(start_paused = true)]
async fn a_value_that_flaps_on_an_infra_node_is_written_once_it_is_stable() {
    let harness = Harness::new(WriteAccess::fixed(true), settings());
    harness.ready(&["c"]).await;
    ms(10_000).await;
    harness.echo("c", "a").await;
    for _ in 0..20 {
        for rack in ["x", "y", "r1"] {
            harness.host("h1", rack).await;
            ms(9_000).await;
        }
    }
    assert_eq!(harness.racks(), ["r1"], "no value was stable for 30 seconds");
    harness.host("h1", "x").await;
    ms(29_000).await;
    assert_eq!(
        (
            harness.racks().len(),
            harness.status("c/a").plan.decisions[0].reason
        ),
        (1, Reason::Moved)
    );
    // A VM that moves in the meantime follows at once; a change of its new infra node waits again.
    harness.vm("c", "a", "h2").await;
    ms(10).await;
    assert_eq!(harness.racks(), ["r1", "r2"]);
    harness.echo("c", "a").await;
    harness.host("h2", "z").await;
    ms(29_000).await;
    assert_eq!(harness.racks().len(), 2);
    ms(2_000).await;
    assert_eq!(harness.racks(), ["r1", "r2", "z"], "stable for 30 seconds");
}

#[tokio::test(start_paused = true)]
async fn after_a_conflict_the_node_is_read_and_planned_again() {
    let harness = Harness::new(WriteAccess::fixed(true), settings());
    harness.ready(&["c"]).await;
    ms(10_000).await;
    harness.echo("c", "a").await;
    harness.write_as_other("c", "a", "foreign", false).await;
    harness.vm("c", "a", "h2").await;
    ms(10).await;
    assert_eq!(harness.racks(), ["r1", "r2"]);
    assert_eq!(harness.requests(), 3, "one of them conflicted");
    // Created again with the same name: the plan for the old Node is not sent.
    ms(10_000).await;
    harness.fake.clusters().nodes.values_mut().for_each(|node| {
        node.uid = Some("another".parse().unwrap());
        node.resource_version = Some("900".into());
    });
    harness.vm("c", "a", "h1").await;
    ms(60_000).await;
    assert_eq!(harness.racks().len(), 2);
    harness.echo("c", "a").await;
    ms(10).await;
    assert_eq!(harness.racks().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_dead_cluster_delays_no_other_and_catches_up() {
    for fault in [Fault::Silent, Fault::Status(500), Fault::Status(403)] {
        let harness = Harness::new(WriteAccess::fixed(true), settings());
        harness
            .fake
            .clusters()
            .faults
            .insert("dead".parse().unwrap(), fault);
        harness.event(InventoryEvent::Init).await;
        harness.host("h1", "r1").await;
        harness.host("h2", "r2").await;
        for cluster in ["dead", "live"] {
            harness.cluster(cluster).await;
            for vm in 0..30 {
                harness.vm(cluster, &format!("v{vm}"), "h1").await;
                harness.node(cluster, &format!("v{vm}")).await;
            }
        }
        harness.event(InventoryEvent::Synced).await;
        ms(100).await;
        assert_eq!(harness.racks().len(), 30, "{fault:?}: the live cluster is done");
        ms(60_000).await;
        harness.vm("live", "v1", "h2").await;
        harness.vm("dead", "v1", "h2").await;
        ms(10).await;
        assert_eq!(harness.racks().len(), 31);
        assert!(
            harness.requests() < 140,
            "{fault:?}: {} requests in a minute",
            harness.requests()
        );
        ms(1000).await;
        let shown = harness.status("dead/v1");
        assert_eq!(
            shown.infra_node.as_ref().unwrap().as_str(),
            "h2",
            "{fault:?}: the plan is up to date meanwhile"
        );
        assert!(!shown.in_sync());
        harness.fake.clusters().faults.clear();
        ms(61_000).await;
        assert_eq!(harness.racks().len(), 61, "{fault:?}");
        assert!(
            harness
                .statuses
                .all()
                .values()
                .all(|status| status.in_sync() && status.error.is_none())
        );
    }
}

#[tokio::test(start_paused = true)]
async fn rate_limit_and_parallelism_hold() {
    let fake = FakeNodeWriter {
        takes: Duration::from_millis(100),
        ..FakeNodeWriter::default()
    };
    let limited = ReconcilerSettings {
        per_second: 10,
        parallel: 4,
        ..settings()
    };
    let harness = Harness::with(fake, WriteAccess::fixed(true), limited);
    harness.event(InventoryEvent::Init).await;
    harness.host("h1", "r1").await;
    harness.cluster("c").await;
    for vm in 0..60 {
        harness.vm("c", &format!("v{vm}"), "h1").await;
        harness.node("c", &format!("v{vm}")).await;
    }
    harness.event(InventoryEvent::Synced).await;
    ms(3_050).await;
    let sent = harness.requests();
    assert!(
        (35..=41).contains(&sent),
        "{sent} in three seconds, ten of them in the burst"
    );
    ms(10_000).await;
    assert_eq!(harness.racks().len(), 60);
    assert!(harness.fake.max_concurrent.load(Ordering::Relaxed) <= 4);
}

/// The watch has missed a change of every Node, so each patch is a conflict and the Node is read.
#[tokio::test(start_paused = true)]
async fn reads_after_conflicts_count_in_the_rate_limit() {
    let limited = ReconcilerSettings {
        per_second: 5,
        ..settings()
    };
    let harness = Harness::new(WriteAccess::fixed(true), limited);
    harness.event(InventoryEvent::Init).await;
    harness.host("h1", "r1").await;
    harness.cluster("c").await;
    for vm in 0..40 {
        let name = format!("v{vm}");
        harness.vm("c", &name, "h1").await;
        harness.node("c", &name).await;
        harness.write_as_other("c", &name, "x", false).await;
    }
    harness.event(InventoryEvent::Synced).await;
    ms(10_000).await;
    let sent = harness.requests() + harness.fake.clusters().reads;
    assert!(
        (45..=56).contains(&sent),
        "{sent} in ten seconds, five of them in the burst"
    );
    ms(30_000).await;
    assert_eq!(harness.racks().len(), 40);
}

#[tokio::test(start_paused = true)]
async fn an_unsafe_key_is_rechecked_and_written_once_it_is_safe() {
    let mut harness = Harness::new(WriteAccess::fixed(true), settings());
    harness.ready(&["c"]).await;
    ms(5_000).await;
    harness.echo("c", "a").await;
    harness.host_in("h1", "r1", Some("z1")).await;
    ms(10).await;
    let status = harness.status("c/a");
    let zone = status
        .plan
        .decisions
        .iter()
        .find(|one| one.key == "zone")
        .unwrap();
    assert_eq!(zone.reason, Reason::Unsafe);
    assert_eq!(harness.events.recv().await.unwrap().reason, "LabelUnsafe");
    let reads = harness.fake.clusters().evidence;
    ms(300_000).await;
    assert_eq!(harness.fake.clusters().evidence - reads, 5, "once a minute");
    assert!(harness.events.try_recv().is_err(), "one Event");
    harness.fake.clusters().safe = true;
    ms(61_000).await;
    assert!(harness.status("c/a").in_sync());
    let reads = harness.fake.clusters().evidence;
    ms(300_000).await;
    assert_eq!(
        harness.fake.clusters().evidence,
        reads,
        "no evidence is read any more"
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_read_of_evidence_is_retried_and_other_keys_are_written() {
    let harness = Harness::new(WriteAccess::fixed(true), settings());
    harness.ready(&["c"]).await;
    ms(5_000).await;
    harness
        .fake
        .clusters()
        .faults
        .insert("c".parse().unwrap(), Fault::Status(500));
    harness.host_in("h1", "r1", Some("z1")).await;
    ms(10).await;
    let status = harness.status("c/a");
    assert!(
        status
            .plan
            .decisions
            .iter()
            .any(|one| one.reason == Reason::SafetyUnknown)
    );
    assert!(status.error.is_some());
    harness.fake.clusters().safe = true;
    harness.fake.clusters().faults.clear();
    ms(5_000).await;
    assert!(harness.status("c/a").in_sync());
}

#[tokio::test(start_paused = true)]
async fn a_contested_key_is_not_written_for_a_while() {
    let mut harness = Harness::new(WriteAccess::fixed(true), settings());
    harness.ready(&["c"]).await;
    for _ in 0..30 {
        ms(10_000).await;
        harness.echo("c", "a").await;
        harness.write_as_other("c", "a", "mine", true).await;
    }
    ms(10_000).await;
    assert_eq!(harness.racks().len(), 6);
    assert!(harness.status("c/a").contested.contains("rack"));
    let mut reasons = Vec::new();
    while let Ok(notice) = harness.events.try_recv() {
        reasons.push(notice.reason);
    }
    assert_eq!(
        reasons
            .iter()
            .filter(|reason| **reason == "LabelContested")
            .count(),
        1
    );
    // A move is a new value and is written at once.
    harness.vm("c", "a", "h2").await;
    ms(10).await;
    assert_eq!(harness.racks().last().map(String::as_str), Some("r2"));
}

#[tokio::test(start_paused = true)]
async fn two_vms_joined_to_one_node_never_patch_it_concurrently() {
    // The fake panics on concurrent patches; every request is slow.
    let fake = FakeNodeWriter {
        takes: Duration::from_millis(700),
        ..FakeNodeWriter::default()
    };
    let harness = Harness::with(fake, WriteAccess::fixed(true), settings());
    harness.ready(&["c", "d"]).await;
    for round in 0..40 {
        for cluster in ["c", "d"] {
            harness.vm(cluster, "a", ["h1", "h2"][round % 2]).await;
        }
        ms(290).await;
    }
    ms(10_000).await;
    assert!(harness.statuses.all().values().all(|status| status.in_sync()));
    assert!(harness.requests() < 20, "{}", harness.requests());
}

#[tokio::test(start_paused = true)]
async fn a_standby_plans_and_sends_no_request() {
    let harness = Harness::new(WriteAccess::fixed(false), settings());
    harness.ready(&["c"]).await;
    harness.host_in("h1", "r1", Some("z1")).await;
    ms(600_000).await;
    assert_eq!((harness.requests(), harness.fake.clusters().evidence), (0, 0));
    let status = harness.status("c/a");
    assert!(!status.in_sync() && status.plan.patch.is_some());
    assert!(
        harness.statuses.drift().is_empty(),
        "only the leader exports drift"
    );
    let off = ReconcilerSettings {
        write: false,
        ..settings()
    };
    let harness = Harness::new(WriteAccess::fixed(true), off);
    harness.ready(&["c"]).await;
    ms(600_000).await;
    assert_eq!((harness.requests(), harness.statuses.drift().len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_client_is_written_once_it_has_one() {
    let harness = Harness::new(WriteAccess::fixed(true), settings());
    harness.fake.clusters().unreachable.insert("c".parse().unwrap());
    harness.ready(&["c"]).await;
    ms(120_000).await;
    assert_eq!(harness.requests(), 0);
    assert!(harness.status("c/a").error.unwrap().contains("kubeconfig"));
    harness.fake.clusters().unreachable.clear();
    ms(61_000).await;
    assert_eq!(harness.racks(), ["r1"]);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_node_is_forgotten_and_a_new_one_is_written_at_once() {
    let harness = Harness::new(WriteAccess::fixed(true), settings());
    harness.ready(&["c"]).await;
    ms(10_000).await;
    let node = FactKey::UserNode("c".parse().unwrap(), "a".parse().unwrap());
    harness.event(InventoryEvent::Delete(node)).await;
    ms(10).await;
    assert!(harness.statuses.all().is_empty());
    harness.node("c", "a").await;
    ms(10).await;
    assert_eq!(harness.racks(), ["r1", "r1"]);
    harness
        .event(InventoryEvent::Delete(FactKey::UserCluster("c".parse().unwrap())))
        .await;
    ms(10).await;
    assert!(harness.statuses.all().is_empty());
    harness.cluster("c").await;
    ms(10).await;
    assert!(harness.status("c/a").in_sync());
}
