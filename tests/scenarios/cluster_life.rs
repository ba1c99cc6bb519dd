//! Tier 3: what happens to VMs, Nodes and policies in their life, as far as labels are concerned.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use virtfleet_tests::{
    cluster::{
        self, Mark,
        live::WAIT_TIMEOUT,
        scene::{OWNED, Scene, patched, policy},
    },
    parts, skip, wait,
};

/// Two hosts in two racks and rows, and a collector that leads.
fn scene(rules: &Value) -> (Scene, cluster::live::Collector) {
    let scene = Scene::new(&["prod"]).unwrap();
    for n in 1..=2 {
        let (rack, row) = (format!("rack-{n}"), format!("row-{n}"));
        scene
            .host(&format!("host-{n}"), &[("rack", &rack), ("row", &row)])
            .unwrap();
    }
    scene.policy("places", rules).unwrap();
    let collector = scene.collector("a", "").unwrap();
    collector.until_leads().unwrap();
    (scene, collector)
}

/// Waits until the condition `Conflicted` of a LabelPropagation has this status; returns its
/// message.
fn until_conflicted(scene: &Scene, policy: &str, status: &str) -> String {
    let path = format!("/apis/virtfleet.io/v1alpha1/labelpropagations/{policy}");
    let what = format!("Conflicted of {policy} is {status}");
    let message = wait::eventually(WAIT_TIMEOUT, &what, || {
        let object = scene.infra.admin().get(&path)?.ok()?;
        let all = object["status"]["conditions"].as_array();
        let found = all.into_iter().flatten().find(|one| one["type"] == "Conflicted");
        let found = found.filter(|one| one["status"] == status);
        let message = found.and_then(|one| one["message"].as_str());
        message
            .map(str::to_owned)
            .with_context(|| format!("{:#}", object["status"]))
    });
    message.unwrap()
}

#[test]
fn vms_and_nodes_come_back_under_their_names_tier3() {
    let test = "vms_and_nodes_come_back_under_their_names_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let (scene, collector) = scene(&json!([{ "key": "rack", "mode": "Follow" }]));
    let tenant = &scene.tenants[0];
    let mark = tenant.server.audit_mark().unwrap();
    let vmi = scene.vmi("prod", "vm-1", "host-1").unwrap();
    let node = tenant.node("vm-1", &[]).unwrap();
    tenant.until_label("vm-1", "rack", Some("rack-1")).unwrap();

    // The VM is made again elsewhere, its Node stays: nothing is taken away meanwhile.
    scene.infra.remove(&vmi).unwrap();
    scene.until_idle(&collector, tenant, "host-1", "rack").unwrap();
    assert_eq!(tenant.label("vm-1", "rack").unwrap().as_deref(), Some("rack-1"));
    scene.infra.apply(&cluster::vmi("prod", "vm-1")).unwrap();
    scene.until_idle(&collector, tenant, "host-1", "rack").unwrap();
    assert_eq!(
        tenant.only_sets(mark, &["rack"]).unwrap(),
        1,
        "it stands nowhere yet"
    );
    scene.vmi("prod", "vm-1", "host-2").unwrap();
    tenant.until_label("vm-1", "rack", Some("rack-2")).unwrap();

    // The Node is made again, at rest and just after a write.
    for round in 0..2 {
        tenant.server.remove(&node).unwrap();
        let follow = tenant.follow().unwrap();
        tenant.node("vm-1", &[]).unwrap();
        let made = follow.next(WAIT_TIMEOUT).unwrap().unwrap();
        let labelled = wait::eventually(WAIT_TIMEOUT, "it has its label", || {
            let change = follow.next(WAIT_TIMEOUT)?.unwrap();
            ensure!(change.object["metadata"]["labels"]["rack"] == "rack-2", "not yet");
            Ok(change)
        });
        let took = labelled.unwrap().at.duration_since(made.at);
        println!("round {round}: a Node that was made again had its label after {took:.0?}");
        assert!(took < wait::PROMPT, "{took:?}");
    }

    // KKP's way: the VM is to be evacuated, its Machine is deleted, a successor comes under a new
    // name.
    let before = tenant.server.audit_mark().unwrap();
    let leaving = cluster::vmi("prod", "vm-1").phase("Running").on("host-2");
    scene
        .infra
        .apply(&leaving.with("/status/evacuationNodeName", "host-2"))
        .unwrap();
    scene.vmi("prod", "vm-2", "host-1").unwrap();
    tenant.node("vm-2", &[]).unwrap();
    tenant.until_label("vm-2", "rack", Some("rack-1")).unwrap();
    tenant.server.remove(&node).unwrap();
    scene.infra.remove(&vmi).unwrap();
    scene.until_idle(&collector, tenant, "host-1", "rack").unwrap();
    tenant.only_sets(before, &["rack"]).unwrap();
    let writes = tenant.writes(before).unwrap();
    let elsewhere: Vec<_> = writes.iter().filter(|one| one.name != "vm-2").collect();
    assert!(elsewhere.is_empty(), "only the successor's");
    let accepted = writes.iter().filter(|one| one.code == 200).count();
    assert_eq!(accepted, 1, "{writes:#?}");
}

#[test]
fn a_policy_is_edited_and_what_stood_there_before_comes_back_tier3() {
    let test = "a_policy_is_edited_and_what_stood_there_before_comes_back_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let rack = json!({ "key": "rack", "mode": "Follow", "takeover": "Always" });
    let row = |target: &str| json!({ "key": "row", "target": target, "mode": "Follow" });
    let (scene, collector) = scene(&json!([&rack]));
    let tenant = &scene.tenants[0];
    for vm in ["vm-1", "vm-2"] {
        scene.vmi("prod", vm, "host-1").unwrap();
    }
    tenant.node("vm-1", &[("rack", "theirs")]).unwrap();
    tenant.node("vm-2", &[]).unwrap();
    for vm in ["vm-1", "vm-2"] {
        tenant.until_label(vm, "rack", Some("rack-1")).unwrap();
    }
    // Another key is asked for, under one name and then another.
    for (target, gone) in [("row", None), ("place.example.com/row", Some("row"))] {
        scene.policy("places", &json!([&rack, row(target)])).unwrap();
        for vm in ["vm-1", "vm-2"] {
            tenant.until_label(vm, target, Some("row-1")).unwrap();
            if let Some(gone) = gone {
                tenant.until_label(vm, gone, None).unwrap();
            }
        }
    }
    // It is withdrawn by somebody who does not know what the one before has written.
    collector.process.terminate(Duration::from_secs(20)).unwrap();
    scene
        .policy("places", &json!([row("place.example.com/row")]))
        .unwrap();
    let collector = scene.collector("b", "").unwrap();
    tenant.until_label("vm-1", "rack", Some("theirs")).unwrap();
    tenant.until_label("vm-2", "rack", None).unwrap();
    // The object itself goes.
    scene.infra.remove(&policy("places", &json!([]))).unwrap();
    for vm in ["vm-1", "vm-2"] {
        tenant.until_label(vm, "place.example.com/row", None).unwrap();
        let node = tenant.live(vm).unwrap();
        assert!(node["metadata"]["annotations"][OWNED].is_null(), "{node:#}");
    }
    drop(collector);
    for write in tenant.writes(Mark::BEGIN).unwrap() {
        patched(&write).unwrap();
    }
}

#[test]
fn two_policies_that_differ_write_and_remove_nothing_tier3() {
    let test = "two_policies_that_differ_write_and_remove_nothing_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let (scene, collector) =
        scene(&json!([{ "key": "rack", "mode": "Follow" }, { "key": "row", "mode": "Follow" }]));
    let tenant = &scene.tenants[0];
    scene.vmi("prod", "vm-1", "host-1").unwrap();
    tenant.node("vm-1", &[]).unwrap();
    tenant.until_label("vm-1", "rack", Some("rack-1")).unwrap();
    scene
        .policy(
            "other",
            &json!([{ "key": "row", "target": "rack", "mode": "Follow" }]),
        )
        .unwrap();
    for policy in ["\"places\": ", "\"other\": "] {
        let found = wait::eventually(WAIT_TIMEOUT, "an Event on each policy", || {
            let all = scene.events("LabelConflict")?;
            let found = all.iter().find(|note| note.starts_with(policy));
            found.cloned().ok_or_else(|| anyhow::anyhow!("{all:?}"))
        });
        println!("{}", found.unwrap());
    }
    // And both objects say it: who, and about which key.
    for (name, other) in [("places", "other"), ("other", "places")] {
        let said = until_conflicted(&scene, name, "True");
        assert!(said.contains(other) && said.contains("rack"), "{name}: {said}");
        println!("{name}: {said}");
    }
    // Both policies would write now. Neither does, and the key without a conflict follows.
    let mark = tenant.server.audit_mark().unwrap();
    scene.vmi("prod", "vm-1", "host-2").unwrap();
    tenant.until_label("vm-1", "row", Some("row-2")).unwrap();
    scene.until_idle(&collector, tenant, "host-1", "row").unwrap();
    assert_eq!(tenant.only_sets(mark, &["row"]).unwrap(), 1);
    assert_eq!(tenant.label("vm-1", "rack").unwrap().as_deref(), Some("rack-1"));
    // Settled by taking one away.
    scene.infra.remove(&policy("other", &json!([]))).unwrap();
    tenant.until_label("vm-1", "rack", Some("rack-2")).unwrap();
    tenant.only_sets(mark, &["row", "rack"]).unwrap();
    until_conflicted(&scene, "places", "False");
    // Replaced by force, it is another object, which has no status yet.
    let places = policy(
        "places",
        &json!([{ "key": "rack", "mode": "Follow" }, { "key": "row", "mode": "Follow" }]),
    );
    scene.infra.remove(&places).unwrap();
    scene.infra.apply(&places).unwrap();
    until_conflicted(&scene, "places", "False");
    let path = "/apis/virtfleet.io/v1alpha1/labelpropagations/places";
    let counted = wait::eventually(WAIT_TIMEOUT, "its Nodes are counted", || {
        let status = scene.infra.admin().get(path)?.ok()?["status"].clone();
        let nodes = status["nodes"].as_i64().unwrap_or_default();
        ensure!(nodes > 0 && status["inSync"] == nodes, "{status:#}");
        ensure!(status["clusters"] == 1 && status["drifted"] == 0, "{status:#}");
        Ok(())
    });
    counted.unwrap();
}
