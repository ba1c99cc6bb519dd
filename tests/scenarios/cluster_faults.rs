//! Tier 3: API servers that forget, hang, refuse and lie still: nothing is ever removed, and who is
//! well is not delayed.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use jiff::{SignedDuration, Timestamp};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use virtfleet_tests::{
    cluster::{
        self, Fault, Mark, Proxy,
        live::{self, Collector, WAIT_TIMEOUT},
        scene::{Scene, Tenant, policy},
    },
    parts, skip, wait,
};

const VMS: [&str; 4] = ["vm-1", "vm-2", "vm-3", "vm-4"];
/// What the policy asks for.
const KEYS: [&str; 4] = [
    "rack",
    "place",
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/zone",
];

/// The same VMs in each user cluster, on host-1, and two hosts that differ in everything.
fn scene(tenants: &[&str]) -> Scene {
    let scene = Scene::new(tenants).unwrap();
    for n in 1..=2 {
        let [rack, row, zone] = ["rack", "row", "zone"].map(|what| format!("{what}-{n}"));
        let labels = [("rack", rack.as_str()), ("row", &row), (KEYS[2], &zone)];
        scene.host(&format!("host-{n}"), &labels).unwrap();
    }
    let rules = json!([
        { "key": "rack", "mode": "Follow" },
        { "key": "row", "target": "place", "mode": "Follow" },
        { "key": KEYS[2], "mode": "FollowIfSafe" },
    ]);
    scene.policy("places", &rules).unwrap();
    for tenant in &scene.tenants {
        for vm in VMS {
            scene.vmi(&tenant.name, vm, "host-1").unwrap();
            tenant.node(vm, &[]).unwrap();
        }
    }
    scene
}

fn until_all(tenant: &Tenant, rack: &str) {
    for vm in VMS {
        tenant.until_label(vm, "rack", Some(rack)).unwrap();
        let zone = rack.replace("rack", "zone");
        tenant.until_label(vm, KEYS[2], Some(&zone)).unwrap();
    }
}

fn move_all(scene: &Scene, tenant: &Tenant, host: &str) {
    for vm in VMS {
        scene.vmi(&tenant.name, vm, host).unwrap();
    }
}

fn kill(mut collector: Collector) {
    collector.process.signal(Signal::SIGKILL).unwrap();
    collector.process.wait(WAIT_TIMEOUT).unwrap();
}

/// Waits until the collector has seen a change of the infra cluster that is made now, of another
/// kind than `kind`.
fn until_change_is_seen(scene: &Scene, collector: &Collector, kind: &str, number: usize) {
    let name = format!("later-{number}");
    let seen = if kind == "Node" {
        // Selects no user cluster, so it has no effect.
        let mut policy = policy(&name, &json!([{ "key": "rack", "mode": "Follow" }]));
        policy["spec"]["clusterSelector"] = json!({ "matchLabels": { "no": "cluster" } });
        scene.infra.apply(&policy).unwrap();
        "LabelPropagation"
    } else {
        scene.host(&name, &[]).unwrap();
        "Node"
    };
    let series = format!("virtfleet_collector_watch_objects{{kind=\"{seen}\",cluster=\"\"}}");
    let path = if seen == "Node" {
        "/api/v1/nodes"
    } else {
        "/apis/virtfleet.io/v1alpha1/labelpropagations"
    };
    let list = scene.infra.admin().get(path).unwrap().ok().unwrap();
    let count = u32::try_from(list["items"].as_array().unwrap().len()).unwrap();
    wait::eventually(WAIT_TIMEOUT, &series, || {
        let now = collector.sample(&series)?;
        ensure!(now >= f64::from(count), "{now} of {count}");
        Ok(())
    })
    .unwrap();
}

fn until_synced(collector: &Collector, kind: &str, synced: bool) {
    let series = format!("virtfleet_collector_watch_synced{{kind=\"{kind}\",cluster=\"\"}}");
    wait::eventually(WAIT_TIMEOUT, &series, || {
        let now = collector.sample(&series)? > 0.0;
        ensure!(now == synced, "{now}");
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_collector_that_knows_only_half_writes_nothing_tier3() {
    let test = "a_collector_that_knows_only_half_writes_nothing_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let mut scene = scene(&["prod"]);
    let first = scene.collector("first", "").unwrap();
    until_all(&scene.tenants[0], "rack-1");
    kill(first);
    let mark = scene.tenants[0].server.audit_mark().unwrap();

    // Each list of the infra cluster in turn is kept, while all the others come.
    let proxy = Proxy::start(&scene.infra).unwrap();
    let kubeconfig = proxy.kubeconfig(scene.infra.admin_user());
    let lists = [
        ("LabelPropagation", "/labelpropagations?", "Node"),
        ("Node", "/api/v1/nodes?", "LabelPropagation"),
        ("VirtualMachineInstance", "/virtualmachineinstances?", "Node"),
        ("UserCluster", "/userclusters?", "VirtualMachineInstance"),
    ];
    let mut number = 0;
    for (kind, path, other) in lists {
        for fault in [Fault::Hold, Fault::Answer(500), Fault::Answer(403)] {
            proxy.set(&[(path, fault)]);
            let name = format!("{kind}-{fault:?}").replace(['(', ')'], "");
            let collector = scene.collector_by(&name, &kubeconfig, "", "").unwrap();
            until_synced(&collector, other, true);
            until_synced(&collector, kind, false);
            // The Lease of the one before runs out in this time.
            wait::eventually(WAIT_TIMEOUT, "it leads", || {
                ensure!(collector.leads()?, "not yet");
                Ok(())
            })
            .unwrap();
            number += 1;
            until_change_is_seen(&scene, &collector, kind, number);
            proxy.set(&[]);
            collector.until_ready().unwrap();
            let tenant = &scene.tenants[0];
            scene.until_idle(&collector, tenant, "host-1", "rack").unwrap();
            let writes = scene.tenants[0].writes(mark).unwrap();
            assert!(writes.is_empty(), "{kind} {fault:?}: {writes:?}");
            collector.process.terminate(WAIT_TIMEOUT).unwrap();
        }
    }

    // The infra cluster is away altogether, and comes back.
    scene.infra.stop();
    let collector = scene.collector("away", "").unwrap();
    let failures = "virtfleet_collector_watch_failures_total{kind=\"Node\",cluster=\"\"}";
    wait::eventually(WAIT_TIMEOUT, failures, || {
        let failed = collector.sample(failures)?;
        ensure!(failed > 1.5, "{failed}");
        Ok(())
    })
    .unwrap();
    scene.infra.start_again().unwrap();
    collector.until_ready().unwrap();
    collector.until_leads().unwrap();
    let tenant = &scene.tenants[0];
    scene.until_idle(&collector, tenant, "host-1", "rack").unwrap();
    assert_eq!(tenant.writes(mark).unwrap().len(), 0);
    move_all(&scene, tenant, "host-2");
    until_all(tenant, "rack-2");
    tenant.only_sets(mark, &KEYS).unwrap();
}

#[test]
fn servers_that_forget_their_history_cost_no_label_tier3() {
    let test = "servers_that_forget_their_history_cost_no_label_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let mut scene = scene(&["prod", "dev"]);
    let collector = scene.collector("a", "").unwrap();
    for tenant in &scene.tenants {
        until_all(tenant, "rack-1");
    }
    let marks = scene.marks().unwrap();
    // An odd number: the VMs are on host-2 afterwards.
    let rounds: u32 = if skip::deferred(3, test, "make churn-soak") {
        1
    } else {
        3
    };
    for round in 0..rounds {
        let n = 2 - round % 2;
        for index in 0..scene.tenants.len() {
            // Its server goes away while its Nodes are written to.
            move_all(&scene, &scene.tenants[index], &format!("host-{n}"));
            let tenant = &mut scene.tenants[index].server;
            tenant.stop();
            tenant.etcd_compact().unwrap();
            tenant.start_again().unwrap();
        }
        scene.infra.stop();
        scene.infra.etcd_compact().unwrap();
        scene.infra.start_again().unwrap();
        let begun = Instant::now();
        for tenant in &scene.tenants {
            until_all(tenant, &format!("rack-{n}"));
        }
        println!(
            "round {round}: all true {:.1?} after the last restart",
            begun.elapsed()
        );
    }
    // One more move that no watch tells of, because it is made while the collector cannot look.
    collector.process.signal(Signal::SIGSTOP).unwrap();
    for tenant in &scene.tenants {
        move_all(&scene, tenant, "host-1");
    }
    scene.infra.start_again().unwrap();
    scene.infra.etcd_compact().unwrap();
    collector.process.signal(Signal::SIGCONT).unwrap();
    let begun = Instant::now();
    for (tenant, mark) in scene.tenants.iter().zip(&marks) {
        until_all(tenant, "rack-1");
        let patches = tenant.only_sets(*mark, &KEYS).unwrap();
        println!(
            "{}: {patches} patches over {} moves of {} VMs, 0 removals",
            tenant.name,
            rounds + 1,
            VMS.len()
        );
    }
    println!("all true {:.1?} after the last restart", begun.elapsed());
    let relists: f64 = ["Node", "VirtualMachineInstance"]
        .map(|kind| {
            collector
                .sample(&format!(
                    "virtfleet_collector_watch_restarts_total{{kind=\"{kind}\",cluster=\"\"}}"
                ))
                .unwrap()
        })
        .iter()
        .sum();
    assert!(relists > f64::from(rounds), "{relists}");
    for (tenant, mark) in scene.tenants.iter().zip(&marks) {
        scene.until_idle(&collector, tenant, "host-1", "rack").unwrap();
        tenant.only_sets(*mark, &KEYS).unwrap();
    }
}

/// For so long the collector leaves a Node alone that it has written to, with some room.
const PAUSE_AFTER_WRITE: SignedDuration = SignedDuration::from_millis(2200);
/// How often each VM is moved for one measurement. Even: they are on host-1 again afterwards.
const MOVES_PER_VM: usize = 2;

/// Moves every VM of the cluster that is well, several times, and measures how soon its Node has
/// the label.
fn delays(scene: &Scene, well: &Tenant) -> Vec<Duration> {
    let follow = well.follow().unwrap();
    let mut delays = Vec::new();
    for round in 0..MOVES_PER_VM {
        // What was just written is left alone for a while, which is not to be measured.
        let last = well
            .writes(Mark::BEGIN)
            .unwrap()
            .iter()
            .map(|one| one.received)
            .max();
        wait::until(WAIT_TIMEOUT, "the last write is old enough", || {
            last.is_none_or(|last| Timestamp::now().duration_since(last) > PAUSE_AFTER_WRITE)
        })
        .unwrap();
        let n = 2 - round % 2;
        for vm in VMS {
            let vmi = cluster::vmi(&well.name, vm);
            let to = json!({ "status": { "nodeName": format!("host-{n}") } });
            scene.infra.merge(&vmi, &to).unwrap();
            let moved = Instant::now();
            let seen = wait::eventually(WAIT_TIMEOUT, "it follows", || {
                let change = follow.next(WAIT_TIMEOUT)?.context("nothing")?;
                let metadata = &change.object["metadata"];
                ensure!(
                    metadata["name"] == vm && metadata["labels"]["rack"] == format!("rack-{n}"),
                    "not yet"
                );
                Ok(change.at)
            });
            delays.push(seen.unwrap().saturating_duration_since(moved));
        }
    }
    delays
}

fn said(name: &str, mut delays: Vec<Duration>) {
    delays.sort();
    let (median, longest) = (delays[delays.len() / 2], delays[delays.len() - 1]);
    println!(
        "{name}: the other cluster's labels followed after {median:.0?} in the middle, {longest:.0?} at most"
    );
    // Behind the sick one it would be many seconds. The longest is the machine's: it is said and
    // not judged.
    assert!(median < wait::PROMPT, "{median:?}");
}

#[test]
fn a_sick_user_cluster_keeps_its_labels_and_delays_no_other_tier3() {
    let test = "a_sick_user_cluster_keeps_its_labels_and_delays_no_other_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let scene = scene(&["sick", "well"]);
    let [sick, well] = &scene.tenants[..] else {
        panic!()
    };
    let proxy = Proxy::start(&sick.server).unwrap();
    let through = live::secret("sick", &proxy.kubeconfig(&sick.user));
    scene.infra.apply(&through).unwrap();
    let collector = scene.collector("a", "").unwrap();
    let mut rack = 1;
    until_all(sick, "rack-1");
    until_all(well, "rack-1");
    let mark = sick.server.audit_mark().unwrap();
    said("all are well", delays(&scene, well));
    let fault = |name: &str, rack: &mut usize, begin: &dyn Fn(), end: &dyn Fn()| {
        begin();
        // There is something to be written there, and it cannot be.
        *rack = 3 - *rack;
        move_all(&scene, sick, &format!("host-{rack}"));
        said(name, delays(&scene, well));
        end();
        let recovering = Instant::now();
        until_all(sick, &format!("rack-{rack}"));
        println!(
            "{name}: its own labels true {:.1?} after the end of it",
            recovering.elapsed()
        );
    };
    fault(
        "answers 500",
        &mut rack,
        &|| proxy.set(&[("/", Fault::Answer(500))]),
        &|| proxy.set(&[]),
    );
    fault(
        "writes answer 500",
        &mut rack,
        &|| proxy.set(&[("fieldManager=", Fault::Answer(500))]),
        &|| proxy.set(&[]),
    );
    fault(
        "writes hang",
        &mut rack,
        &|| proxy.set(&[("fieldManager=", Fault::Hold)]),
        &|| proxy.set(&[]),
    );
    fault("answers 403", &mut rack, &|| sick.forbid().unwrap(), &|| {
        sick.allow().unwrap();
    });
    fault(
        "answers nothing",
        &mut rack,
        &|| sick.server.pause().unwrap(),
        &|| sick.server.resume().unwrap(),
    );
    fault(
        "its etcd hangs",
        &mut rack,
        &|| sick.server.pause_etcd().unwrap(),
        &|| sick.server.resume_etcd().unwrap(),
    );

    // Also for a collector that has just begun and knows nothing of it.
    collector.process.terminate(WAIT_TIMEOUT).unwrap();
    proxy.set(&[("/", Fault::Answer(500))]);
    let collector = scene.collector("b", "").unwrap();
    collector.until_ready().unwrap();
    collector.until_leads().unwrap();
    said("a new collector", delays(&scene, well));
    proxy.set(&[]);
    scene.until_idle(&collector, sick, "host-1", "rack").unwrap();
    let patches = sick.only_sets(mark, &KEYS).unwrap();
    println!("{patches} patches, 0 removals");
}

#[test]
fn a_namespace_that_may_not_be_listed_costs_no_label_tier3() {
    let test = "a_namespace_that_may_not_be_listed_costs_no_label_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let scene = scene(&["prod", "dev"]);
    let user = scene.infra.service_account("secrets", "collector").unwrap();
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!([{ "apiGroups": [group], "resources": resources, "verbs": verbs }]);
    let watch = ["get", "list", "watch"];
    let grant = |name: &str, namespace: Option<&str>, rules: &Value| {
        scene.infra.grant(name, &user, namespace, rules).unwrap();
    };
    grant("nodes", None, &rule("", &["nodes"], &watch));
    grant("ours", None, &rule("virtfleet.io", &["*"], &["*"]));
    grant("secrets", Some("secrets"), &rule("", &["secrets"], &watch));
    grant(
        "lease",
        Some("secrets"),
        &rule("coordination.k8s.io", &["leases"], &["*"]),
    );
    let vms = rule("kubevirt.io", &["*"], &watch);
    for namespace in ["prod", "dev"] {
        grant("kubevirt", Some(namespace), &vms);
        grant("pods", Some(namespace), &rule("", &["pods"], &watch));
    }
    let kubeconfig = scene.infra.kubeconfig(&user);
    let start = |name: &str| {
        scene
            .collector_by(name, &kubeconfig, ", namespaces: [prod, dev]", "")
            .unwrap()
    };
    let first = start("a");
    for tenant in &scene.tenants {
        until_all(tenant, "rack-1");
    }
    let marks = scene.marks().unwrap();
    // While it runs: what it knows stays, and the other namespace goes on.
    scene.infra.revoke("kubevirt", Some("dev")).unwrap();
    move_all(&scene, &scene.tenants[0], "host-2");
    until_all(&scene.tenants[0], "rack-2");
    scene
        .until_idle(&first, &scene.tenants[0], "host-1", "rack")
        .unwrap();
    kill(first);
    // When it begins: it waits, and says for what.
    let second = start("b");
    second.until_leads().unwrap();
    let finding = second
        .until_finding("inventory-watch-failing", "namespace dev")
        .unwrap();
    assert!(finding.contains("Role"), "{finding}");
    until_change_is_seen(&scene, &second, "VirtualMachineInstance", 1);
    assert_eq!(scene.tenants[1].writes(marks[1]).unwrap().len(), 0);
    grant("kubevirt", Some("dev"), &vms);
    second.until_ready().unwrap();
    move_all(&scene, &scene.tenants[1], "host-2");
    until_all(&scene.tenants[1], "rack-2");
    for (tenant, mark) in scene.tenants.iter().zip(&marks) {
        tenant.only_sets(*mark, &KEYS).unwrap();
    }
}
