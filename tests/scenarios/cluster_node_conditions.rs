//! Tier 3: conditions of VMs on the Nodes of user clusters, on real API servers, with the rights
//! that this needs and no more.
#![expect(
    clippy::unwrap_used,
    reason = "what fails here fails the test, with its message"
)]

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use virtfleet_collector_core::{
    health::HealthVerdict,
    node_conditions::{NODE_CONDITION_PREFIX, NodeConditionKind},
};
use virtfleet_tests::{
    cluster::{
        self, Mark, STRATEGIC_PATCH,
        live::{self, Collector, WAIT_TIMEOUT},
        scene::{COLLECTOR, Scene, Tenant},
    },
    install::shipped,
    parts, skip, wait,
};

const DISKS: &str = "virtfleet.io/DisksReady";
const VIRTIO: &str = "virtfleet.io/VirtioTuned";
/// Names an object of the infra cluster; no tenant may read it.
const SECRET_TEXT: &str = "pvc-of-the-infra-cluster";

/// The UserCluster of a tenant, with these conditions on its Nodes.
fn request(scene: &Scene, tenant: &Tenant, conditions: &[&str], suspend: bool) {
    let mut object = live::user_cluster(&tenant.name, &tenant.name);
    object["spec"]["nodeConditions"] = json!(conditions);
    object["spec"]["suspend"] = suspend.into();
    scene.infra.apply(&object).unwrap();
}

fn grant(tenant: &Tenant) {
    let rules = json!([{ "apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"] }]);
    tenant
        .server
        .grant("node-conditions", &tenant.user, None, &rules)
        .unwrap();
}

/// A running VM on `host-1`. Its volumes are ready, or not, with a long message.
fn vm(scene: &Scene, tenant: &Tenant, name: &str, host: &str, is_sick: bool) {
    let mut vmi = cluster::vmi(&tenant.name, name)
        .phase("Running")
        .on(host)
        .condition(
            "DataVolumesReady",
            if is_sick { "False" } else { "True" },
            "Volumes",
        );
    let message = format!("{SECRET_TEXT} {}", "x".repeat(5_000));
    vmi.0["status"]["conditions"][0]["message"] = message.into();
    scene.infra.apply(&vmi).unwrap();
}

fn condition(tenant: &Tenant, node: &str, kind: &str) -> Result<Option<Value>> {
    let node = tenant.live(node)?;
    let all = node["status"]["conditions"].as_array().context("conditions")?;
    Ok(all.iter().find(|one| one["type"] == kind).cloned())
}

fn until_condition(tenant: &Tenant, node: &str, kind: &str, status: Option<&str>) -> Option<Value> {
    wait::eventually(WAIT_TIMEOUT, &format!("{kind} of {node} is {status:?}"), || {
        let found = condition(tenant, node, kind)?;
        let now = found
            .as_ref()
            .map(|one| one["status"].as_str().unwrap_or_default());
        ensure!(now == status, "{now:?}");
        Ok(found)
    })
    .unwrap()
}

/// Accepted patches of conditions of one Node since `mark`.
fn patches(tenant: &Tenant, mark: Mark, node: &str) -> Vec<Value> {
    let all = tenant.server.audit_since(mark).unwrap().into_iter();
    let ours = all.filter(|one| one.user == COLLECTOR && one.verb == "patch" && one.code == 200);
    let ours = ours.filter(|one| one.subresource == "status" && one.name == node);
    ours.map(|one| one.request).collect()
}

/// As [`patches`], once there is one: a condition is visible before its patch is in the audit log.
fn until_patched(tenant: &Tenant, mark: Mark, node: &str) -> Vec<Value> {
    wait::eventually(WAIT_TIMEOUT, "the patch is logged", || {
        let sent = patches(tenant, mark, node);
        ensure!(!sent.is_empty(), "none");
        Ok(sent)
    })
    .unwrap()
}

fn scene(tenants: &[&str]) -> Scene {
    let scene = Scene::new(tenants).unwrap();
    scene.host("host-1", &[("rack", "rack-1")]).unwrap();
    scene.host("host-2", &[("rack", "rack-2")]).unwrap();
    scene.policy("rack", &json!([{ "key": "rack" }])).unwrap();
    scene
}

fn start(scene: &Scene, name: &str) -> Collector {
    let collector = scene.collector(name, live::NO_CONFIRMATION).unwrap();
    collector.until_ready().unwrap();
    collector
}

/// What a kubelet writes: its own conditions, with their order in a directive.
fn kubelet_writes(tenant: &Tenant, node: &str, round: usize) {
    let status = json!({ "status": {
        "$setElementOrder/conditions": [{ "type": "MemoryPressure" }, { "type": "Ready" }],
        "conditions": [
            { "type": "MemoryPressure", "status": "False", "reason": "KubeletHasSufficientMemory", "message": "m",
              "lastHeartbeatTime": format!("2026-01-01T00:00:{round:02}Z") },
            { "type": "Ready", "lastHeartbeatTime": format!("2026-01-01T00:00:{round:02}Z") },
        ],
    } });
    let path = format!("/api/v1/nodes/{node}/status");
    tenant
        .server
        .admin()
        .patch(&path, STRATEGIC_PATCH, &status)
        .unwrap()
        .ok()
        .unwrap();
}

/// What node-problem-detector and cloud controllers do: read, change, replace the whole status.
fn another_replaces_the_status(tenant: &Tenant, node: &str) {
    wait::eventually(WAIT_TIMEOUT, "the status is replaced", || {
        let mut now = tenant.live(node)?;
        let conditions = now["status"]["conditions"].as_array_mut().context("conditions")?;
        conditions.retain(|one| one["type"] != "example.com/Problem");
        conditions.push(
            json!({ "type": "example.com/Problem", "status": "False", "reason": "r", "message": "m",
                                "lastTransitionTime": "2026-01-01T00:00:00Z" }),
        );
        let path = format!("/api/v1/nodes/{node}/status");
        tenant.server.admin().put(&path, &now)?.ok()
    })
    .unwrap();
}

#[test]
fn shipped_readiness_rules_are_dry_runs_of_known_conditions() {
    for name in ["disks", "dns", "bootstrap"] {
        let rule = &shipped(&format!("node-readiness/{name}.yaml")).unwrap()[0];
        assert_eq!(rule["apiVersion"], "readiness.node.x-k8s.io/v1alpha1");
        assert_eq!(rule["kind"], "NodeReadinessRule");
        let spec = &rule["spec"];
        assert_eq!(spec["dryRun"], true, "{name}");
        let taint = spec["taint"]["key"].as_str().unwrap();
        assert!(taint.starts_with("readiness.k8s.io/"), "{taint}");
        assert_eq!(spec["taint"]["effect"], "NoSchedule");
        assert!(spec["nodeSelector"]["matchLabels"].is_object(), "{name}");
        let mode = spec["enforcementMode"].as_str().unwrap();
        assert!(["continuous", "bootstrap-only"].contains(&mode), "{mode}");
        let conditions = spec["conditions"].as_array().unwrap();
        assert!(!conditions.is_empty());
        for condition in conditions {
            let kind = condition["type"].as_str().unwrap();
            let known = kind.strip_prefix(NODE_CONDITION_PREFIX);
            assert!(known.and_then(NodeConditionKind::of).is_some(), "{kind}");
            assert_eq!(condition["requiredStatus"], "True");
        }
    }
}

#[test]
fn the_health_script_for_argo_cd_knows_every_verdict() {
    let file = &shipped("argocd/argocd-cm.yaml").unwrap()[0];
    let script = file["data"]["resource.customizations.health.virtfleet.io_GuestHealth"].as_str();
    let script = script.unwrap();
    for verdict in HealthVerdict::ALL {
        assert!(
            script.contains(&format!("{} = \"", verdict.as_str())),
            "{verdict:?}"
        );
    }
}

#[test]
fn conditions_follow_beside_other_writers_tier3() {
    let test = "conditions_follow_beside_other_writers_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let scene = scene(&["alpha"]);
    let tenant = &scene.tenants[0];
    vm(&scene, tenant, "vm-1", "host-1", true);
    tenant.node("vm-1", &[]).unwrap();
    let first = start(&scene, "first");
    tenant.until_label("vm-1", "rack", Some("rack-1")).unwrap();
    assert_eq!(
        condition(tenant, "vm-1", DISKS).unwrap(),
        None,
        "the default is none"
    );
    assert_eq!(patches(tenant, Mark::BEGIN, "vm-1").len(), 0);

    // Without the right: a finding, and labels follow as before.
    request(&scene, tenant, &["DisksReady", "VirtioTuned"], false);
    let finding = first.until_finding("node-conditions-denied", "alpha").unwrap();
    assert!(finding.contains("node-conditions.yaml"), "{finding}");
    vm(&scene, tenant, "vm-1", "host-2", true);
    tenant.until_label("vm-1", "rack", Some("rack-2")).unwrap();
    grant(tenant);
    let written = until_condition(tenant, "vm-1", DISKS, Some("False")).unwrap();
    assert_eq!(written["reason"], "DataVolumesNotReady");
    let message = written["message"].as_str().unwrap();
    assert!(
        message.len() <= 250 && !message.contains(SECRET_TEXT),
        "{message}"
    );
    assert!(written["lastTransitionTime"].is_string(), "{written}");
    until_condition(tenant, "vm-1", VIRTIO, Some("Unknown"));
    wait::eventually(WAIT_TIMEOUT, "the finding is gone", || {
        let found = first.finding("node-conditions-denied", "alpha");
        ensure!(found.is_err(), "{found:?}");
        Ok(())
    })
    .unwrap();
    let clusters = "/apis/virtfleet.io/v1alpha1/userclusters/alpha";
    wait::eventually(WAIT_TIMEOUT, "the UserCluster says that they are written", || {
        let status = scene.infra.admin().get(clusters)?.ok()?["status"].to_string();
        ensure!(
            status.contains("NodeConditionsWritten") && !status.contains("Denied"),
            "{status}"
        );
        Ok(())
    })
    .unwrap();
    let wide = first.ctl(&["clusters", "-o", "wide"]).unwrap();
    assert!(wide.contains("DisksReady,VirtioTuned"), "{wide}");

    // Others write conditions of theirs; neither disturbs the other.
    let mark = tenant.server.audit_mark().unwrap();
    for round in 0..20 {
        kubelet_writes(tenant, "vm-1", round);
    }
    another_replaces_the_status(tenant, "vm-1");
    scene.until_idle(&first, tenant, "host-1", "rack").unwrap();
    assert_eq!(condition(tenant, "vm-1", DISKS).unwrap().unwrap(), written);
    assert_eq!(patches(tenant, mark, "vm-1"), Vec::<Value>::new());

    // The volumes are ready, and no agent reports: Unknown, in one write of one condition.
    vm(&scene, tenant, "vm-1", "host-2", false);
    let unknown = wait::eventually(2 * WAIT_TIMEOUT, "the condition is Unknown", || {
        let now = condition(tenant, "vm-1", DISKS)?.context("none")?;
        ensure!(now["status"] == "Unknown", "{now}");
        Ok(now)
    })
    .unwrap();
    assert!(unknown["lastTransitionTime"].as_str() > written["lastTransitionTime"].as_str());
    let sent = until_patched(tenant, mark, "vm-1");
    assert_eq!(sent.len(), 1, "{sent:?}");
    let conditions = sent[0]["status"]["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 1, "{sent:?}");
    assert!(sent[0]["metadata"]["resourceVersion"].is_string() && sent[0]["metadata"]["uid"].is_string());
    for (kind, status) in [
        ("Ready", "True"),
        ("MemoryPressure", "False"),
        ("example.com/Problem", "False"),
    ] {
        let kept = condition(tenant, "vm-1", kind).unwrap().unwrap();
        assert_eq!(kept["status"], status, "{kept}");
    }

    // A restart writes nothing.
    first.process.terminate(WAIT_TIMEOUT).unwrap();
    let mark = tenant.server.audit_mark().unwrap();
    let second = start(&scene, "second");
    second.until_leads().unwrap();
    scene.until_idle(&second, tenant, "host-1", "rack").unwrap();
    assert_eq!(patches(tenant, mark, "vm-1"), Vec::<Value>::new());

    // The opt-in ends for one, then the cluster is suspended.
    request(&scene, tenant, &["VirtioTuned"], false);
    until_condition(tenant, "vm-1", DISKS, None);
    until_condition(tenant, "vm-1", VIRTIO, Some("Unknown"));
    request(&scene, tenant, &["VirtioTuned"], true);
    until_condition(tenant, "vm-1", VIRTIO, None);
    deletion(&scene, tenant);
    for kind in ["Ready", "MemoryPressure", "example.com/Problem"] {
        assert!(condition(tenant, "vm-1", kind).unwrap().is_some(), "{kind}");
    }
    assert!(
        second
            .sample("virtfleet_collector_node_condition_patches_total{result=\"ok\"}")
            .unwrap()
            >= 2.0
    );
}

/// The UserCluster is deleted: conditions are removed while a finalizer holds it, and by an admin's
/// patch after it is gone.
fn deletion(scene: &Scene, tenant: &Tenant) {
    let admin = scene.infra.admin();
    let path = format!("/apis/virtfleet.io/v1alpha1/userclusters/{}", tenant.name);
    let hold = |finalizers: Value| {
        let body = json!({ "metadata": { "finalizers": finalizers } });
        let patched = admin.patch(&path, "application/merge-patch+json", &body);
        patched.unwrap().ok().unwrap();
    };
    request(scene, tenant, &["VirtioTuned"], false);
    until_condition(tenant, "vm-1", VIRTIO, Some("Unknown"));
    hold(json!(["example.com/hold"]));
    admin.delete(&path).unwrap().ok().unwrap();
    until_condition(tenant, "vm-1", VIRTIO, None);
    hold(Value::Null);

    request(scene, tenant, &["VirtioTuned"], false);
    until_condition(tenant, "vm-1", VIRTIO, Some("Unknown"));
    admin.delete(&path).unwrap().ok().unwrap();
    let removal =
        "{\"status\":{\"conditions\":[{\"type\":\"virtfleet.io/VirtioTuned\",\"$patch\":\"delete\"}]}}";
    wait::eventually(WAIT_TIMEOUT, "the condition is removed by hand", || {
        let node = "/api/v1/nodes/vm-1/status";
        let body = serde_json::from_str(removal)?;
        tenant.server.admin().patch(node, STRATEGIC_PATCH, &body)?.ok()?;
        ensure!(condition(tenant, "vm-1", VIRTIO)?.is_none(), "still there");
        Ok(())
    })
    .unwrap();
}

#[test]
fn no_tenant_can_redirect_conditions_to_another_node_tier3() {
    let test = "no_tenant_can_redirect_conditions_to_another_node_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let scene = scene(&["alpha", "beta"]);
    let [alpha, beta] = &scene.tenants[..] else {
        panic!("two tenants");
    };
    for tenant in [alpha, beta] {
        grant(tenant);
        request(&scene, tenant, &["DisksReady"], false);
    }
    vm(&scene, alpha, "vm-1", "host-1", true);
    alpha.node("vm-1", &[]).unwrap();
    // A Node of beta that claims to be the VM of alpha; a Node of alpha whose name is that of a VM,
    // and that is another one; a Node without VM that has a condition of that type.
    beta.node("vm-1", &[]).unwrap();
    vm(&scene, alpha, "vm-2", "host-1", true);
    let stranger = cluster::user_node("vm-2", "kubevirt://vm-9", &["10.0.0.1", "fd00::1"], &[]);
    let stranger = stranger.label(cluster::scene::FOREIGN, "kept");
    alpha
        .server
        .apply(&stranger.condition(DISKS, "True", "Theirs"))
        .unwrap();
    let collector = start(&scene, "collector");
    until_condition(alpha, "vm-1", DISKS, Some("False"));
    for tenant in [alpha, beta] {
        scene.until_idle(&collector, tenant, "host-1", "rack").unwrap();
    }
    assert_eq!(patches(beta, Mark::BEGIN, "vm-1"), Vec::<Value>::new());
    assert_eq!(patches(alpha, Mark::BEGIN, "vm-2"), Vec::<Value>::new());
    let theirs = condition(alpha, "vm-2", DISKS).unwrap().unwrap();
    assert_eq!(
        (&theirs["status"], &theirs["reason"]),
        (&json!("True"), &json!("Theirs"))
    );
}
