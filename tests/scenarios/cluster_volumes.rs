//! Tier 3: a zone that follows only when nothing on the Node depends on it: volumes, CSI drivers
//! and pods on a real API server.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use anyhow::ensure;
use serde_json::{Value, json};
use virtfleet_tests::{
    cluster::{self, live::WAIT_TIMEOUT, scene::Scene},
    parts, skip, wait,
};

const ZONE: &str = "topology.kubernetes.io/zone";
const BETA: &str = "failure-domain.beta.kubernetes.io/zone";

fn terms(zones: &[&str]) -> Value {
    json!({ "nodeSelectorTerms": [{ "matchExpressions": [{ "key": ZONE, "operator": "In", "values": zones }] }] })
}

/// A volume of these zones, and the claim that is bound to it.
fn volume(scene: &Scene, name: &str, zones: &[&str]) {
    let server = &scene.tenants[0].server;
    let capacity = json!({ "storage": "1Gi" });
    server
        .apply(&json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": format!("pv-{name}") },
            "spec": {
                "capacity": capacity, "accessModes": ["ReadWriteOnce"], "hostPath": { "path": "/data" },
                "claimRef": { "namespace": "shop", "name": format!("data-{name}") },
                "nodeAffinity": { "required": terms(zones) },
            },
            "status": { "phase": "Bound" },
        }))
        .unwrap();
    server
        .apply(&json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "namespace": "shop", "name": format!("data-{name}") },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": { "requests": capacity },
                "volumeName": format!("pv-{name}"), "storageClassName": "",
            },
            "status": { "phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": capacity },
        }))
        .unwrap();
}

/// A running pod on the Node `on`, with more in its spec.
fn pod(name: &str, on: &str, more: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "namespace": "shop", "name": name },
        "spec": { "nodeName": on, "containers": [{ "name": "c", "image": "c" }] },
        "status": { "phase": "Running" },
    });
    for (field, value) in more.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    pod
}

fn with_claim(name: &str, on: &str) -> Value {
    let claim = json!({ "claimName": format!("data-{name}") });
    pod(
        name,
        on,
        &json!({ "volumes": [{ "name": "data", "persistentVolumeClaim": claim }] }),
    )
}

#[test]
fn a_zone_waits_for_what_depends_on_it_tier3() {
    let test = "a_zone_waits_for_what_depends_on_it_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let scene = Scene::new(&["prod"]).unwrap();
    let tenant = &scene.tenants[0];
    tenant.server.namespace("shop").unwrap();
    for host in ["a", "b"] {
        let zone = format!("zone-{host}");
        let labels = [(ZONE, zone.as_str()), ("rack", &zone)];
        scene.host(&format!("host-{host}"), &labels).unwrap();
    }
    let rules = json!([{ "key": ZONE, "mode": "FollowIfSafe" }, { "key": "rack", "mode": "Follow" }]);
    scene.policy("places", &rules).unwrap();
    let all = ["vm-volume", "vm-pod", "vm-csi", "vm-regional", "vm-free"];
    for vm in all {
        scene.vmi("prod", vm, "host-a").unwrap();
        // As the cloud controller manager has copied it when the Node registered.
        tenant.node(vm, &[(ZONE, "zone-a"), (BETA, "zone-a")]).unwrap();
    }
    volume(&scene, "zonal", &["zone-a"]);
    volume(&scene, "regional", &["zone-a", "zone-b"]);
    let zonal = with_claim("zonal", "vm-volume");
    let affinity =
        json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms(&["zone-a"]) } });
    let picky = pod("picky", "vm-pod", &json!({ "affinity": affinity }));
    let csi = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": "vm-csi" },
        "spec": { "drivers": [{ "name": "csi.example.com", "nodeID": "vm-csi", "topologyKeys": [ZONE] }] },
    });
    for object in [&zonal, &picky, &csi, &with_claim("regional", "vm-regional")] {
        tenant.server.apply(object).unwrap();
    }
    let collector = scene.collector("a", "labels: { recheck: 1s }\n").unwrap();
    collector.until_leads().unwrap();
    for vm in all {
        tenant.until_label(vm, "rack", Some("zone-a")).unwrap();
    }

    // They all move to the other zone.
    let mark = tenant.server.audit_mark().unwrap();
    let moved = json!({ "sourceNode": "host-a", "targetNode": "host-b", "completed": true, "endTimestamp": "2026-01-01T00:00:09Z" });
    for vm in all {
        let vmi = cluster::vmi("prod", vm).phase("Running").on("host-b");
        scene.infra.apply(&vmi.migration_state(moved.clone())).unwrap();
    }
    for vm in all {
        // What nothing can depend on follows everywhere.
        tenant.until_label(vm, "rack", Some("zone-b")).unwrap();
    }
    for vm in ["vm-regional", "vm-free"] {
        tenant.until_label(vm, ZONE, Some("zone-b")).unwrap();
        assert_eq!(tenant.label(vm, BETA).unwrap().as_deref(), Some("zone-b"));
    }
    let held = [
        ("vm-volume", "PersistentVolume pv-zonal (shop/data-zonal)", &zonal),
        ("vm-pod", "pod shop/picky", &picky),
        ("vm-csi", "CSI driver csi.example.com", &csi),
    ];
    for (vm, what, _) in &held {
        let note = scene.until_event("LabelUnsafe", what).unwrap();
        assert!(note.contains(vm), "{note}");
    }
    // The collector checks it repeatedly and writes nothing.
    let looks = |mark| {
        let all = tenant.server.audit_since(mark).unwrap().into_iter();
        all.filter(|one| one.resource == "csinodes" && one.name == "vm-csi")
            .count()
    };
    let resting = tenant.server.audit_mark().unwrap();
    wait::eventually(WAIT_TIMEOUT, "it is looked at three times more", || {
        let looks = looks(resting);
        ensure!(looks >= 3, "{looks}");
        Ok(())
    })
    .unwrap();
    assert_eq!(tenant.writes(resting).unwrap().len(), 0);
    for (vm, ..) in &held {
        assert_eq!(tenant.label(vm, ZONE).unwrap().as_deref(), Some("zone-a"), "{vm}");
    }
    tenant.only_sets(mark, &["rack", ZONE, BETA]).unwrap();

    // What was in the way goes, one after the other.
    for (vm, what, object) in &held {
        tenant.server.remove(object).unwrap();
        let took = tenant.until_label(vm, ZONE, Some("zone-b")).unwrap();
        assert_eq!(tenant.label(vm, BETA).unwrap().as_deref(), Some("zone-b"));
        println!("{vm}: followed {took:.1?} after {what} was gone, with labels.recheck 1s");
        assert!(took < wait::PROMPT, "{took:?}");
    }
    tenant.only_sets(mark, &["rack", ZONE, BETA]).unwrap();

    // No policy sets the zone any more, and a new pod requires the zone that the collector wrote.
    let affinity =
        json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms(&["zone-b"]) } });
    let settled = pod("settled", "vm-free", &json!({ "affinity": affinity }));
    tenant.server.apply(&settled).unwrap();
    scene
        .policy("places", &json!([{ "key": "rack", "mode": "Follow" }]))
        .unwrap();
    tenant.until_label("vm-pod", ZONE, Some("zone-a")).unwrap();
    let note = scene.until_event("LabelUnsafe", "pod shop/settled").unwrap();
    assert!(note.contains("vm-free"), "{note}");
    assert_eq!(tenant.label("vm-free", ZONE).unwrap().as_deref(), Some("zone-b"));
    tenant.server.remove(&settled).unwrap();
    tenant.until_label("vm-free", ZONE, Some("zone-a")).unwrap();
    assert_eq!(tenant.label("vm-free", BETA).unwrap().as_deref(), Some("zone-a"));
}
