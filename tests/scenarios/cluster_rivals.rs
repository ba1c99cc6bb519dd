//! Tier 3: others who write the same labels: a cloud node controller, a kubelet, and somebody who
//! never gives in.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use anyhow::ensure;
use serde_json::{Value, json};
use virtfleet_tests::{
    cluster::{
        self, Follow, MERGE_PATCH,
        live::{self, WAIT_TIMEOUT},
        scene::{Scene, Tenant, patched},
    },
    parts, skip, wait,
};

const PAIRS: [(&str, &str); 2] = [
    (
        "topology.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/zone",
    ),
    (
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/region",
    ),
];

/// Hosts `host-1` to `host-3`, each in a zone, region and rack of its own.
fn hosts(scene: &Scene) {
    for n in 1..=3 {
        let [zone, region, rack, row] = ["zone", "region", "rack", "row"].map(|what| format!("{what}-{n}"));
        let labels = [
            (PAIRS[0].0, zone.as_str()),
            (PAIRS[1].0, &region),
            ("rack", &rack),
            ("row", &row),
        ];
        scene.host(&format!("host-{n}"), &labels).unwrap();
    }
}

fn move_to(scene: &Scene, vm: &str, from: &str, to: &str) {
    let state = json!({ "sourceNode": from, "targetNode": to, "completed": true, "endTimestamp": "2026-01-01T00:00:09Z" });
    let vmi = cluster::vmi("prod", vm).phase("Running").on(to);
    scene.infra.apply(&vmi.migration_state(state)).unwrap();
}

/// On each event of a Node, sets the labels that `answer` returns. Ends when `stop` is set and all
/// events are processed.
fn rival(
    tenant: &Tenant,
    changes: &Follow,
    stop: &AtomicBool,
    writes: &AtomicUsize,
    answer: impl Fn(&Value) -> Value,
) {
    loop {
        let ending = stop.load(Ordering::Relaxed);
        let Some(change) = changes.next(Duration::from_millis(100)).unwrap() else {
            if ending {
                return;
            }
            continue;
        };
        let labels = answer(&change.object["metadata"]["labels"]);
        if change.kind != "DELETED" && labels.as_object().is_some_and(|labels| !labels.is_empty()) {
            let name = change.object["metadata"]["name"].as_str().unwrap();
            tenant.edit(name, &json!({ "labels": labels })).unwrap();
            writes.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Plays `rival` beside `ours`, and ends it by `stop` whatever fails in `ours`.
fn against(rival: impl FnOnce() + Send, stop: &AtomicBool, ours: impl FnOnce() + Send) {
    thread::scope(|scope| {
        scope.spawn(rival);
        let ended = scope.spawn(ours).join();
        stop.store(true, Ordering::Relaxed);
        ended.unwrap();
    });
}

/// As Kubernetes' cloud node controller does it: the name without beta is made equal to the beta
/// one, where there is one.
fn from_beta(labels: &Value) -> Value {
    let mut changes = json!({});
    for (name, beta) in PAIRS {
        if !labels[beta].is_null() && labels[beta] != labels[name] {
            changes[name] = labels[beta].clone();
        }
    }
    changes
}

#[test]
fn a_cloud_node_controller_finds_nothing_to_do_tier3() {
    let test = "a_cloud_node_controller_finds_nothing_to_do_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let scene = Scene::new(&["prod"]).unwrap();
    let tenant = &scene.tenants[0];
    hosts(&scene);
    let rules = json!([
        { "key": PAIRS[0].0, "mode": "FollowIfSafe" },
        { "key": PAIRS[1].0, "mode": "Follow" },
    ]);
    scene.policy("places", &rules).unwrap();
    let (stop, theirs) = (&AtomicBool::new(false), &AtomicUsize::new(0));
    let follow = tenant.follow().unwrap();
    let collector = scene.collector("a", live::NO_CONFIRMATION).unwrap();
    collector.until_leads().unwrap();
    let mark = tenant.server.audit_mark().unwrap();
    against(
        move || rival(tenant, &follow, stop, theirs, from_beta),
        stop,
        || {
            // What the cloud controller manager copies when a Node registers: all four names.
            let copied = PAIRS.map(|(name, beta)| [(name, name), (beta, name)]).concat();
            let copied: Vec<_> = copied
                .iter()
                .map(|(key, name)| {
                    (
                        *key,
                        if name.ends_with("zone") {
                            "zone-1"
                        } else {
                            "region-1"
                        },
                    )
                })
                .collect();
            let first = "host-1";
            for (vm, labels) in [("vm-copied", &copied[..]), ("vm-bare", &[])] {
                scene.vmi("prod", vm, first).unwrap();
                tenant.node(vm, labels).unwrap();
                tenant.until_label(vm, PAIRS[0].0, Some("zone-1")).unwrap();
            }
            for (from, to) in [(1, 2), (2, 3), (3, 1), (1, 3)] {
                for vm in ["vm-copied", "vm-bare"] {
                    move_to(&scene, vm, &format!("host-{from}"), &format!("host-{to}"));
                }
                for vm in ["vm-copied", "vm-bare"] {
                    for (name, beta) in PAIRS {
                        let what = if name.ends_with("zone") { "zone" } else { "region" };
                        let value = format!("{what}-{to}");
                        tenant.until_label(vm, name, Some(&value)).unwrap();
                        tenant.until_label(vm, beta, Some(&value)).unwrap();
                    }
                }
            }
            scene
                .until_idle(&collector, tenant, "host-1", PAIRS[1].0)
                .unwrap();
        },
    );
    let keys = PAIRS.map(|(name, beta)| [name, beta]).concat();
    let ours = tenant.only_sets(mark, &keys).unwrap();
    let theirs = theirs.load(Ordering::Relaxed);
    println!("4 moves of 2 VMs: {ours} patches of ours, {theirs} of the cloud node controller");
    assert_eq!(theirs, 0, "both names come in one patch");
    // One for each move, and one for the Node that had nothing; the zone may come after the region,
    // as it is looked at first.
    assert!((9..=18).contains(&ours), "{ours}");
}

#[test]
fn who_never_gives_in_is_left_alone_tier3() {
    let test = "who_never_gives_in_is_left_alone_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let scene = Scene::new(&["prod"]).unwrap();
    let tenant = &scene.tenants[0];
    hosts(&scene);
    let always = json!([
        { "key": "rack", "mode": "Follow", "takeover": "Always" },
        { "key": PAIRS[1].0, "target": "place", "mode": "Follow" },
    ]);
    scene.policy("places", &always).unwrap();
    let (stop, theirs) = (&AtomicBool::new(false), &AtomicUsize::new(0));
    let follow = tenant.follow().unwrap();
    let collector = scene.collector("a", live::NO_CONFIRMATION).unwrap();
    collector.until_leads().unwrap();
    let mark = tenant.server.audit_mark().unwrap();
    let theirs_only = |labels: &Value| match labels["rack"].as_str() {
        Some("theirs") => json!({}),
        _ => json!({ "rack": "theirs" }),
    };
    against(
        move || rival(tenant, &follow, stop, theirs, theirs_only),
        stop,
        || {
            scene.vmi("prod", "vm-1", "host-1").unwrap();
            tenant.node("vm-1", &[]).unwrap();
            let note = scene.until_event("LabelContested", "rack").unwrap();
            println!("{note}");
            let contested = tenant.server.audit_mark().unwrap();
            // It goes on for the other key, and has given this one up: each of these patches was a
            // chance to write it.
            let regions = ["region-7", "region-8", "region-9"];
            for region in regions {
                scene
                    .host("host-1", &[(PAIRS[1].0, region), ("rack", "rack-1")])
                    .unwrap();
                tenant.until_label("vm-1", "place", Some(region)).unwrap();
            }
            // A label is visible before its patch is in the audit log.
            wait::eventually(WAIT_TIMEOUT, "all patches are logged", || {
                let patches = tenant.only_sets(contested, &["place"]).unwrap();
                ensure!(patches >= regions.len(), "{patches}");
                Ok(())
            })
            .unwrap();
            assert_eq!(tenant.only_sets(contested, &["place"]).unwrap(), regions.len());
        },
    );
    let ours = tenant.only_sets(mark, &["rack", "place"]).unwrap();
    println!(
        "{ours} patches of ours against {} of theirs",
        theirs.load(Ordering::Relaxed)
    );
    assert!(ours <= 9, "{ours}");
}

#[test]
fn a_kubelet_is_not_fought_tier3() {
    let test = "a_kubelet_is_not_fought_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let scene = Scene::new(&["prod"]).unwrap();
    let tenant = &scene.tenants[0];
    hosts(&scene);
    // Of what may be written, kubelet writes these at each start; other keys only when it registers
    // the Node.
    let (zone, region) = (PAIRS[0].0, PAIRS[1].0);
    let rules = json!([
        { "key": zone, "mode": "Follow", "takeover": "Always" },
        { "key": region, "mode": "Follow" },
        { "key": "rack", "target": "place", "mode": "Follow" },
    ]);
    scene.policy("places", &rules).unwrap();
    let first = scene.collector("a", live::NO_CONFIRMATION).unwrap();
    let both = ["vm-single", "vm-dual"];
    tenant.single_stack_node("vm-single", &[]).unwrap();
    tenant.node("vm-dual", &[]).unwrap();
    for vm in both {
        scene.vmi("prod", vm, "host-1").unwrap();
        for (key, value) in [(zone, "zone-1"), (region, "region-1")] {
            tenant.until_label(vm, key, Some(value)).unwrap();
        }
    }
    let mark = tenant.server.audit_mark().unwrap();
    // A kubelet that starts writes what stands in --node-labels; as manager of the field it is
    // named after its program. Older API servers do not record managers for a Node with two
    // addresses of one type.
    let managers = &tenant.live("vm-dual").unwrap()["metadata"]["managedFields"];
    let dual = if managers.as_array().is_some_and(|all| !all.is_empty()) {
        "LabelKubeletImposes"
    } else {
        "LabelForeign"
    };
    let imposed = [
        ("vm-single", zone, "LabelKubeletImposes", "--node-labels"),
        ("vm-dual", region, dual, region),
    ];
    let impose = || {
        for (vm, key, ..) in imposed {
            let labels = json!({ "metadata": { "labels": { key: "static" } } });
            let path = format!("/api/v1/nodes/{vm}?fieldManager=kubelet");
            tenant
                .server
                .admin()
                .patch(&path, MERGE_PATCH, &labels)
                .unwrap()
                .ok()
                .unwrap();
        }
    };
    impose();
    for (_, _, reason, word) in imposed {
        println!("{}", scene.until_event(reason, word).unwrap());
    }
    scene.until_idle(&first, tenant, "host-1", zone).unwrap();
    for write in tenant.writes(mark).unwrap() {
        assert!(
            patched(&write).unwrap().is_empty(),
            "seen, said, and left alone: {write:?}"
        );
    }

    // The VM moves, the kubelet starts again, the collector does: the other keys follow, these are
    // left alone.
    let follow = |from: usize, to: usize| {
        for vm in both {
            move_to(&scene, vm, &format!("host-{from}"), &format!("host-{to}"));
        }
        for vm in both {
            tenant
                .until_label(vm, "place", Some(&format!("rack-{to}")))
                .unwrap();
        }
    };
    follow(1, 2);
    impose();
    first.process.terminate(Duration::from_secs(20)).unwrap();
    let second = scene.collector("b", live::NO_CONFIRMATION).unwrap();
    second.until_leads().unwrap();
    follow(2, 3);
    scene.until_idle(&second, tenant, "host-1", zone).unwrap();
    for (vm, key, ..) in imposed {
        assert_eq!(tenant.label(vm, key).unwrap().as_deref(), Some("static"));
        let writes = tenant.writes(mark).unwrap();
        let of = writes.iter().filter(|one| one.name == vm);
        assert!(of.into_iter().all(|one| !patched(one).unwrap().contains_key(key)));
    }
}
