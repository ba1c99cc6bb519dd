//! The sender against a world of its own: Nodes with versions, faults on demand, tokio's clock held.

mod world;

use std::{sync::atomic::Ordering, time::Duration};

use virtfleet_collector_core::{
    facts::{FactKey, InventoryEvent},
    labels::plan::Reason,
};

use self::world::{Fake, Fault, Stage, ms, settings};
use super::*;
use crate::{events::About, leader::Writing};

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_before_the_inventory_is_complete_then_all_once() {
    let stage = Stage::new(Writing::fixed(true), settings());
    stage.event(InventoryEvent::Init).await;
    stage.host("h1", "r1").await;
    stage.cluster("c").await;
    stage.vm("c", "a", "h1").await;
    stage.node("c", "a").await;
    ms(60_000).await;
    assert_eq!((stage.asked(), stage.book.all().len()), (0, 0));
    stage.event(InventoryEvent::Synced).await;
    ms(10).await;
    assert_eq!(stage.racks(), ["r1"]);
    assert!(stage.status("c/a").in_line());
    assert!(stage.status("c/a").written_at.is_some());
}

#[tokio::test(start_paused = true)]
async fn the_first_move_goes_at_once_repeats_come_together_and_no_echo_is_needed() {
    let mut stage = Stage::new(Writing::fixed(true), settings());
    stage.ready(&["c"]).await;
    ms(10_000).await;
    stage.vm("c", "a", "h2").await;
    ms(10).await;
    assert_eq!(
        stage.racks(),
        ["r1", "r2"],
        "at once, from what the patch's answer said"
    );
    for turn in 0..10 {
        stage.vm("c", "a", if turn % 2 == 0 { "h1" } else { "h2" }).await;
        ms(20).await;
    }
    stage.vm("c", "a", "h1").await;
    ms(100).await;
    assert_eq!(stage.racks().len(), 2, "still the first one's time");
    ms(400).await;
    assert_eq!(stage.racks(), ["r1", "r2", "r1"]);
    stage.echo("c", "a").await;
    ms(60_000).await;
    assert_eq!(stage.asked(), 3, "the echo is no news");
    let moved = stage.told.recv().await.unwrap();
    assert_eq!(moved.reason, "LabelsMoved");
    assert!(moved.note.contains("rack: r1 → r2"), "{}", moved.note);
    assert!(matches!(moved.about, About::Vm(key, Some(_)) if key.to_string() == "c/a"));
}

#[tokio::test(start_paused = true)]
async fn with_nothing_changed_nothing_is_sent() {
    let stage = Stage::new(Writing::fixed(true), settings());
    stage.ready(&["c"]).await;
    ms(10).await;
    stage.echo("c", "a").await;
    let fake = stage.fake.clone();
    stage.stop.cancel();
    // Another process, the same cluster.
    let again = Stage::with(fake, Writing::fixed(true), settings());
    again.event(InventoryEvent::Init).await;
    again.host("h1", "r1").await;
    again.cluster("c").await;
    again.vm("c", "a", "h1").await;
    again.echo("c", "a").await;
    again.event(InventoryEvent::Synced).await;
    ms(600_000).await;
    assert_eq!((again.asked(), again.fake.world().evidence), (1, 0));
    assert!(again.status("c/a").in_line());
}

/// An infra node that loses a label for a moment, as when it registers anew.
#[tokio::test(start_paused = true)]
async fn a_label_that_flaps_on_an_infra_node_is_not_taken_from_nodes() {
    let stage = Stage::new(Writing::fixed(true), settings());
    stage.ready(&["c"]).await;
    ms(10_000).await;
    stage.echo("c", "a").await;
    for _ in 0..5 {
        stage.host_without("h1").await;
        ms(20_000).await;
        stage.host("h1", "r1").await;
        ms(1_000).await;
    }
    assert_eq!(stage.racks(), ["r1"]);
    stage.host_without("h1").await;
    ms(29_000).await;
    assert_eq!(
        (stage.racks().len(), stage.status("c/a").plan.decisions[0].reason),
        (1, Reason::SourceGone)
    );
    ms(2_000).await;
    assert_eq!(stage.racks(), ["r1", ""], "it stayed so");
}

/// An infra node whose label changes to and fro, as when two controllers write it.
#[tokio::test(start_paused = true)]
async fn a_value_that_flaps_on_an_infra_node_is_written_when_it_stays() {
    let stage = Stage::new(Writing::fixed(true), settings());
    stage.ready(&["c"]).await;
    ms(10_000).await;
    stage.echo("c", "a").await;
    for _ in 0..20 {
        for rack in ["x", "y", "r1"] {
            stage.host("h1", rack).await;
            ms(9_000).await;
        }
    }
    assert_eq!(stage.racks(), ["r1"], "no value stood for 30 seconds");
    stage.host("h1", "x").await;
    ms(29_000).await;
    assert_eq!(
        (stage.racks().len(), stage.status("c/a").plan.decisions[0].reason),
        (1, Reason::Moved)
    );
    // A VM that moves meanwhile follows at once, and its new infra node's label is confirmed anew.
    stage.vm("c", "a", "h2").await;
    ms(10).await;
    assert_eq!(stage.racks(), ["r1", "r2"]);
    stage.echo("c", "a").await;
    stage.host("h2", "z").await;
    ms(29_000).await;
    assert_eq!(stage.racks().len(), 2);
    ms(2_000).await;
    assert_eq!(stage.racks(), ["r1", "r2", "z"], "it stayed so");
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_planned_anew_from_the_node_as_it_is() {
    let stage = Stage::new(Writing::fixed(true), settings());
    stage.ready(&["c"]).await;
    ms(10_000).await;
    stage.echo("c", "a").await;
    stage.meddle("c", "a", "foreign", false).await;
    stage.vm("c", "a", "h2").await;
    ms(10).await;
    assert_eq!(stage.racks(), ["r1", "r2"]);
    assert_eq!(stage.asked(), 3, "one of them was refused");
    // Made anew under its name: what was planned for the old one is not written to it.
    ms(10_000).await;
    stage.fake.world().nodes.values_mut().for_each(|node| {
        node.uid = Some("another".parse().unwrap());
        node.resource_version = Some("900".into());
    });
    stage.vm("c", "a", "h1").await;
    ms(60_000).await;
    assert_eq!(stage.racks().len(), 2);
    stage.echo("c", "a").await;
    ms(10).await;
    assert_eq!(stage.racks().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_dead_cluster_delays_nobody_and_catches_up() {
    for fault in [Fault::Silent, Fault::Status(500), Fault::Status(403)] {
        let stage = Stage::new(Writing::fixed(true), settings());
        stage.fake.world().faults.insert("dead".parse().unwrap(), fault);
        stage.event(InventoryEvent::Init).await;
        stage.host("h1", "r1").await;
        stage.host("h2", "r2").await;
        for cluster in ["dead", "live"] {
            stage.cluster(cluster).await;
            for vm in 0..30 {
                stage.vm(cluster, &format!("v{vm}"), "h1").await;
                stage.node(cluster, &format!("v{vm}")).await;
            }
        }
        stage.event(InventoryEvent::Synced).await;
        ms(100).await;
        assert_eq!(stage.racks().len(), 30, "{fault:?}: the live one is done");
        ms(60_000).await;
        stage.vm("live", "v1", "h2").await;
        stage.vm("dead", "v1", "h2").await;
        ms(10).await;
        assert_eq!(stage.racks().len(), 31);
        assert!(
            stage.asked() < 140,
            "{fault:?}: {} asked in a minute",
            stage.asked()
        );
        ms(1000).await;
        let shown = stage.status("dead/v1");
        assert_eq!(
            shown.infra_node.as_ref().unwrap().as_str(),
            "h2",
            "{fault:?}: shown meanwhile"
        );
        assert!(!shown.in_line());
        stage.fake.world().faults.clear();
        ms(61_000).await;
        assert_eq!(stage.racks().len(), 61, "{fault:?}");
        assert!(
            stage
                .book
                .all()
                .values()
                .all(|status| status.in_line() && status.error.is_none())
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_rate_and_the_parallelism_are_kept() {
    let fake = Fake {
        takes: Duration::from_millis(100),
        ..Fake::default()
    };
    let most = SenderSettings {
        per_second: 10,
        parallel: 4,
        ..settings()
    };
    let stage = Stage::with(fake, Writing::fixed(true), most);
    stage.event(InventoryEvent::Init).await;
    stage.host("h1", "r1").await;
    stage.cluster("c").await;
    for vm in 0..60 {
        stage.vm("c", &format!("v{vm}"), "h1").await;
        stage.node("c", &format!("v{vm}")).await;
    }
    stage.event(InventoryEvent::Synced).await;
    ms(3_050).await;
    let sent = stage.asked();
    assert!(
        (35..=41).contains(&sent),
        "{sent} in three seconds, ten of them the burst"
    );
    ms(10_000).await;
    assert_eq!(stage.racks().len(), 60);
    assert!(stage.fake.most_at_once.load(Ordering::Relaxed) <= 4);
}

#[tokio::test(start_paused = true)]
async fn what_is_unsafe_is_looked_at_again_and_follows_when_it_is_safe() {
    let mut stage = Stage::new(Writing::fixed(true), settings());
    stage.ready(&["c"]).await;
    ms(5_000).await;
    stage.echo("c", "a").await;
    stage.host_in("h1", "r1", Some("z1")).await;
    ms(10).await;
    let status = stage.status("c/a");
    let zone = status
        .plan
        .decisions
        .iter()
        .find(|one| one.key == "zone")
        .unwrap();
    assert_eq!(zone.reason, Reason::Unsafe);
    assert_eq!(stage.told.recv().await.unwrap().reason, "LabelUnsafe");
    let looks = stage.fake.world().evidence;
    ms(300_000).await;
    assert_eq!(stage.fake.world().evidence - looks, 5, "once a minute");
    assert!(stage.told.try_recv().is_err(), "told once");
    stage.fake.world().safe = true;
    ms(61_000).await;
    assert!(stage.status("c/a").in_line());
    let looks = stage.fake.world().evidence;
    ms(300_000).await;
    assert_eq!(stage.fake.world().evidence, looks, "and nobody looks any more");
}

#[tokio::test(start_paused = true)]
async fn a_look_that_fails_is_repeated_and_the_other_keys_go_on() {
    let stage = Stage::new(Writing::fixed(true), settings());
    stage.ready(&["c"]).await;
    ms(5_000).await;
    stage
        .fake
        .world()
        .faults
        .insert("c".parse().unwrap(), Fault::Status(500));
    stage.host_in("h1", "r1", Some("z1")).await;
    ms(10).await;
    let status = stage.status("c/a");
    assert!(
        status
            .plan
            .decisions
            .iter()
            .any(|one| one.reason == Reason::SafetyUnknown)
    );
    assert!(status.error.is_some());
    stage.fake.world().safe = true;
    stage.fake.world().faults.clear();
    ms(5_000).await;
    assert!(stage.status("c/a").in_line());
}

#[tokio::test(start_paused = true)]
async fn who_keeps_changing_it_wins_for_a_while() {
    let mut stage = Stage::new(Writing::fixed(true), settings());
    stage.ready(&["c"]).await;
    for _ in 0..30 {
        ms(10_000).await;
        stage.echo("c", "a").await;
        stage.meddle("c", "a", "mine", true).await;
    }
    ms(10_000).await;
    assert_eq!(stage.racks().len(), 6);
    assert!(stage.status("c/a").contested.contains("rack"));
    let mut told = Vec::new();
    while let Ok(notice) = stage.told.try_recv() {
        told.push(notice.reason);
    }
    assert_eq!(
        told.iter().filter(|reason| **reason == "LabelContested").count(),
        1
    );
    // A move is another value, and goes at once.
    stage.vm("c", "a", "h2").await;
    ms(10).await;
    assert_eq!(stage.racks().last().map(String::as_str), Some("r2"));
}

#[tokio::test(start_paused = true)]
async fn two_vms_that_are_joined_to_one_node_never_patch_it_at_once() {
    // The fake panics when they do; every move of every VM is slow.
    let fake = Fake {
        takes: Duration::from_millis(700),
        ..Fake::default()
    };
    let stage = Stage::with(fake, Writing::fixed(true), settings());
    stage.ready(&["c", "d"]).await;
    for turn in 0..40 {
        for cluster in ["c", "d"] {
            stage.vm(cluster, "a", ["h1", "h2"][turn % 2]).await;
        }
        ms(290).await;
    }
    ms(10_000).await;
    assert!(stage.book.all().values().all(|status| status.in_line()));
    assert!(stage.asked() < 20, "{}", stage.asked());
}

#[tokio::test(start_paused = true)]
async fn who_does_not_lead_plans_and_asks_nothing() {
    let stage = Stage::new(Writing::fixed(false), settings());
    stage.ready(&["c"]).await;
    stage.host_in("h1", "r1", Some("z1")).await;
    ms(600_000).await;
    assert_eq!((stage.asked(), stage.fake.world().evidence), (0, 0));
    let status = stage.status("c/a");
    assert!(!status.in_line() && status.plan.patch.is_some());
    assert!(
        stage.book.drift().is_empty(),
        "the one that leads tells what is drift"
    );
    let off = SenderSettings {
        write: false,
        ..settings()
    };
    let stage = Stage::new(Writing::fixed(true), off);
    stage.ready(&["c"]).await;
    ms(600_000).await;
    assert_eq!((stage.asked(), stage.book.drift().len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_client_is_written_to_when_it_has_one() {
    let stage = Stage::new(Writing::fixed(true), settings());
    stage.fake.world().unreachable.insert("c".parse().unwrap());
    stage.ready(&["c"]).await;
    ms(120_000).await;
    assert_eq!(stage.asked(), 0);
    assert!(stage.status("c/a").error.unwrap().contains("kubeconfig"));
    stage.fake.world().unreachable.clear();
    ms(61_000).await;
    assert_eq!(stage.racks(), ["r1"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_gone_is_forgotten_and_what_comes_back_is_written_at_once() {
    let stage = Stage::new(Writing::fixed(true), settings());
    stage.ready(&["c"]).await;
    ms(10_000).await;
    let node = FactKey::UserNode("c".parse().unwrap(), "a".parse().unwrap());
    stage.event(InventoryEvent::Delete(node)).await;
    ms(10).await;
    assert!(stage.book.all().is_empty());
    stage.node("c", "a").await;
    ms(10).await;
    assert_eq!(stage.racks(), ["r1", "r1"]);
    stage
        .event(InventoryEvent::Delete(FactKey::UserCluster("c".parse().unwrap())))
        .await;
    ms(10).await;
    assert!(stage.book.all().is_empty());
    stage.cluster("c").await;
    ms(10).await;
    assert!(stage.status("c/a").in_line());
}
