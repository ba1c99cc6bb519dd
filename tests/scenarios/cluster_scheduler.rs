//! Tier 3: a real scheduler places pods by the labels that the collector has put on Nodes, before
//! and after a migration.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use virtfleet_tests::{
    cluster::{
        Scheduler,
        live::WAIT_TIMEOUT,
        scene::{Scene, Tenant},
    },
    parts, skip, wait,
};

const ZONE: &str = "topology.kubernetes.io/zone";
const NAMESPACE: &str = "shop";

/// A pending pod with the label `app`.
fn pod(name: &str, app: &str, spec: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": NAMESPACE, "name": name, "labels": { "app": app } },
        "spec": { "containers": [{ "name": "c", "image": "c" }] },
    });
    for (field, value) in spec.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    pod
}

/// A pod that may run in one zone only.
fn in_zone(name: &str, zone: &str) -> Value {
    let terms = json!([{ "matchExpressions": [{ "key": ZONE, "operator": "In", "values": [zone] }] }]);
    let required =
        json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } });
    pod(name, name, &json!({ "affinity": { "nodeAffinity": required } }))
}

/// Waits until the scheduler knows that each of these Nodes is in its zone, which its watch reports
/// later than the API server: it schedules a pod that may run only on this Node in this zone.
fn until_known(tenant: &Tenant, round: &str, zones: &[(&str, &str)]) {
    for (node, zone) in zones {
        let terms = json!([{
            "matchExpressions": [{ "key": ZONE, "operator": "In", "values": [zone] }],
            "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [node] }],
        }]);
        let required =
            json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } });
        let name = format!("probe-{round}-{node}");
        let probe = pod(&name, &name, &json!({ "affinity": { "nodeAffinity": required } }));
        tenant.server.apply(&probe).unwrap();
        assert_eq!(until_scheduled(tenant, &name), *node);
    }
}

/// A pod of a group that has to be spread evenly over zones.
fn spread(name: &str, app: &str) -> Value {
    let constraint = json!([{
        "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchLabels": { "app": app } },
    }]);
    pod(name, app, &json!({ "topologySpreadConstraints": constraint }))
}

/// The Node of a pod, when it has one.
fn node_of(tenant: &Tenant, name: &str) -> Result<String> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}");
    let pod = tenant.server.admin().get(&path)?.ok()?;
    let node = pod["spec"]["nodeName"].as_str().map(str::to_owned);
    node.with_context(|| pod["status"]["conditions"].to_string())
}

fn until_scheduled(tenant: &Tenant, name: &str) -> String {
    wait::eventually(WAIT_TIMEOUT, &format!("pod {name} is scheduled"), || {
        node_of(tenant, name)
    })
    .unwrap()
}

/// Waits until the scheduler has found no Node for a pod.
fn until_unschedulable(tenant: &Tenant, name: &str) {
    wait::eventually(WAIT_TIMEOUT, &format!("pod {name} is unschedulable"), || {
        let reason = node_of(tenant, name)
            .err()
            .context("it is scheduled")?
            .to_string();
        ensure!(reason.contains("Unschedulable"), "{reason}");
        Ok(())
    })
    .unwrap();
}

/// Creates four pods that are spread over zones, and counts them by Node.
fn spread_four(tenant: &Tenant, app: &str) -> BTreeMap<String, usize> {
    let names: Vec<_> = (0..4).map(|number| format!("{app}-{number}")).collect();
    for name in &names {
        tenant.server.apply(&spread(name, app)).unwrap();
    }
    let mut count = BTreeMap::new();
    for name in &names {
        *count.entry(until_scheduled(tenant, name)).or_default() += 1;
    }
    count
}

#[test]
fn pods_are_scheduled_by_the_zones_that_were_propagated_tier3() {
    let test = "pods_are_scheduled_by_the_zones_that_were_propagated_tier3";
    let Some(_) = skip::need(3, test, parts::kube_control_plane()).unwrap() else {
        return;
    };
    let scene = Scene::new(&["prod"]).unwrap();
    let tenant = &scene.tenants[0];
    scene.host("host-a", &[(ZONE, "zone-a")]).unwrap();
    scene.host("host-b", &[(ZONE, "zone-b")]).unwrap();
    scene
        .policy("places", &json!([{ "key": ZONE, "mode": "Follow" }]))
        .unwrap();
    let resources = json!({ "cpu": "8", "memory": "16Gi", "pods": "110" });
    for (vm, host) in [("vm-1", "host-a"), ("vm-2", "host-a"), ("vm-3", "host-b")] {
        scene.vmi("prod", vm, host).unwrap();
        let node = tenant.node(vm, &[]).unwrap();
        let status = json!({ "status": { "capacity": resources, "allocatable": resources } });
        tenant.server.merge_status(&node, &status).unwrap();
    }
    tenant.server.namespace(NAMESPACE).unwrap();
    let _scheduler = Scheduler::start(&tenant.server).unwrap();

    // No Node has a zone yet.
    tenant.server.apply(&in_zone("early", "zone-b")).unwrap();
    until_unschedulable(tenant, "early");
    let _collector = scene.collector("a", "").unwrap();
    assert_eq!(
        until_scheduled(tenant, "early"),
        "vm-3",
        "the label alone changed that"
    );
    let zones = [("vm-1", "zone-a"), ("vm-2", "zone-a"), ("vm-3", "zone-b")];
    for (vm, zone) in zones {
        tenant.until_label(vm, ZONE, Some(zone)).unwrap();
    }
    until_known(tenant, "before", &zones);
    let before = spread_four(tenant, "before");
    assert_eq!(before.get("vm-3"), Some(&2), "alone in zone-b: {before:?}");

    // vm-1 and vm-2 migrate to zone-b; zone-a has no Node then.
    for vm in ["vm-1", "vm-2"] {
        scene.vmi("prod", vm, "host-b").unwrap();
        tenant.until_label(vm, ZONE, Some("zone-b")).unwrap();
    }
    until_known(tenant, "moved", &["vm-1", "vm-2"].map(|vm| (vm, "zone-b")));
    tenant.server.apply(&in_zone("late", "zone-a")).unwrap();
    until_unschedulable(tenant, "late");
    // vm-3 migrates to zone-a.
    scene.vmi("prod", "vm-3", "host-a").unwrap();
    assert_eq!(until_scheduled(tenant, "late"), "vm-3");
    // vm-2 goes back as well: vm-1 is alone in zone-b now.
    scene.vmi("prod", "vm-2", "host-a").unwrap();
    tenant.until_label("vm-2", ZONE, Some("zone-a")).unwrap();
    let zones = [("vm-1", "zone-b"), ("vm-2", "zone-a"), ("vm-3", "zone-a")];
    until_known(tenant, "after", &zones);
    let after = spread_four(tenant, "after");
    assert_eq!(after.get("vm-1"), Some(&2), "alone in zone-b: {after:?}");
}
