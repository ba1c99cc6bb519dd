//! Tier 3: VMs whose agents are not dialled, on real API servers.
#![expect(
    clippy::unwrap_used,
    reason = "what fails here fails the test, with its message"
)]

use anyhow::ensure;
use serde_json::{Value, json};
use virtfleet_tests::{
    cluster::{
        self, ApiServer, MERGE_PATCH,
        live::{self, Collector, WAIT_TIMEOUT},
        scene::Scene,
    },
    parts, skip, wait,
};

const SELECTOR: &str = "vms: { selector: { matchLabels: { pool: workers } } }\n";

fn vmi(name: &str, pool: &str) -> cluster::Object {
    cluster::vmi("blue", name)
        .phase("Running")
        .on("host-1")
        .label("pool", pool)
}

fn until_agents(collector: &Collector, expected: &[(&str, bool)]) {
    wait::eventually(WAIT_TIMEOUT, "the states of the agents", || {
        let list = collector.json("/api/v1/vms")?;
        let of = |name: &str| {
            list["items"]
                .as_array()?
                .iter()
                .find(|vm| vm["name"] == name)
                .cloned()
        };
        for (name, is_managed) in expected {
            let status = of(name).unwrap_or_default()["agent"]["status"].clone();
            ensure!(
                (status != "unmanaged") == *is_managed && status != Value::Null,
                "{name}: {status}"
            );
        }
        Ok(())
    })
    .unwrap();
}

/// Sets or removes the annotation of a namespace.
fn ignore(infra: &ApiServer, namespace: &str, is_ignored: bool) {
    let value = is_ignored.then_some("true");
    let change = json!({ "metadata": { "annotations": { "virtfleet.io/ignore": value } } });
    let path = format!("/api/v1/namespaces/{namespace}");
    infra
        .admin()
        .patch(&path, MERGE_PATCH, &change)
        .unwrap()
        .ok()
        .unwrap();
}

/// A collector of some namespaces reads only these Namespaces, and works without the right.
#[test]
fn an_ignored_namespace_needs_a_right_on_its_name_only_tier3() {
    let test = "an_ignored_namespace_needs_a_right_on_its_name_only_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let infra = live::infra(folder.path()).unwrap();
    for name in ["blue", "green", "system"] {
        infra.namespace(name).unwrap();
    }
    infra.apply(&cluster::infra_node("host-1", &[])).unwrap();
    for object in [vmi("agent", "workers"), vmi("other", "workers")] {
        infra.apply(&object).unwrap();
    }
    let user = infra.service_account("system", "collector").unwrap();
    let reads = |group: &str, resources: &[&str]| json!([{ "apiGroups": [group], "resources": resources, "verbs": ["list", "watch"] }]);
    let grant = |name: &str, namespace: Option<&str>, rules: Value| {
        infra.grant(name, &user, namespace, &rules).unwrap();
    };
    grant("kubevirt", Some("blue"), reads("kubevirt.io", &["*"]));
    grant("pods", Some("blue"), reads("", &["pods"]));
    grant("nodes", None, reads("", &["nodes"]));
    let ours = ["userclusters", "labelpropagations"];
    grant("ours", None, reads("virtfleet.io", &ours));
    ignore(&infra, "blue", true);

    let root = folder.path();
    let inventory = live::settings(root, &infra.kubeconfig(&user), ", namespaces: [blue]").unwrap();
    let collector = Collector::start(&root.join("collector"), &inventory).unwrap();
    collector.until_ready().unwrap();
    let remedy = collector
        .until_finding("inventory-kind-absent", "namespaces, blue only")
        .unwrap();
    assert!(remedy.contains("ClusterRole"), "{remedy}");
    until_agents(&collector, &[("agent", true), ("other", true)]);

    let mut by_name = reads("", &["namespaces"]);
    by_name[0]["resourceNames"] = json!(["blue"]);
    grant("namespaces", None, by_name);
    until_agents(&collector, &[("agent", false), ("other", false)]);
    let on_infra = infra.client(&user).unwrap();
    for path in ["/api/v1/namespaces", "/api/v1/namespaces/green"] {
        assert_eq!(on_infra.get(path).unwrap().code, 403, "{path}");
    }
}

#[test]
fn excluded_vms_are_not_dialled_tier3() {
    let test = "excluded_vms_are_not_dialled_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let scene = Scene::new(&["blue"]).unwrap();
    scene.host("host-1", &[("rack", "rack-1")]).unwrap();
    scene.policy("rack", &json!([{ "key": "rack" }])).unwrap();
    let tenant = &scene.tenants[0];
    let windows = vmi("windows", "workers").annotation("kubevirt.io/preference-name", "windows.11.virtio");
    for object in [
        vmi("agent", "workers"),
        vmi("foreign", "other"),
        vmi("ignored", "workers").annotation("virtfleet.io/ignore", "true"),
        windows,
    ] {
        scene.infra.apply(&object).unwrap();
    }
    for name in ["agent", "foreign", "ignored", "windows"] {
        tenant.node(name, &[]).unwrap();
    }
    let more = format!("{}{SELECTOR}", live::NO_CONFIRMATION);
    let collector = scene.collector("collector", &more).unwrap();
    collector.until_ready().unwrap();
    let all = [
        ("agent", true),
        ("foreign", false),
        ("ignored", false),
        ("windows", false),
    ];
    until_agents(&collector, &all);
    wait::eventually(WAIT_TIMEOUT, "the status counts them", || {
        let status = collector.json("/api/v1/status")?;
        ensure!(status["vms"] == 1 && status["unmanaged"] == 3, "{status:#}");
        Ok(())
    })
    .unwrap();
    let listed = collector.ctl(&["vms", "-o", "name"]).unwrap();
    assert_eq!(listed.trim(), "blue/agent");
    let listed = collector.ctl(&["vms", "--all", "-o", "name"]).unwrap();
    assert_eq!(listed.lines().count(), 4, "{listed}");

    // Only the Node of the managed VM follows its placement.
    wait::eventually(WAIT_TIMEOUT, "the label of the managed VM", || {
        ensure!(
            tenant.label("agent", "rack")?.as_deref() == Some("rack-1"),
            "none"
        );
        Ok(())
    })
    .unwrap();
    for name in ["foreign", "ignored", "windows"] {
        assert_eq!(tenant.label(name, "rack").unwrap(), None, "{name}");
    }

    // Without the annotation it is a VM like others.
    scene.infra.apply(&vmi("ignored", "workers")).unwrap();
    until_agents(
        &collector,
        &[("agent", true), ("ignored", true), ("foreign", false)],
    );
    wait::eventually(WAIT_TIMEOUT, "its label", || {
        ensure!(
            tenant.label("ignored", "rack")?.as_deref() == Some("rack-1"),
            "none"
        );
        Ok(())
    })
    .unwrap();
    ignore(&scene.infra, "blue", true);
    until_agents(&collector, &[("agent", false), ("ignored", false)]);
    ignore(&scene.infra, "blue", false);
    until_agents(&collector, &[("agent", true), ("ignored", true)]);
    drop(collector);

    let more = format!(
        "{}vms: {{ selector: {{ matchLabels: {{ pool: workers }} }}, nodesOfUnmanaged: true }}\n",
        live::NO_CONFIRMATION
    );
    let collector = scene.collector("other", &more).unwrap();
    wait::eventually(WAIT_TIMEOUT, "labels of unmanaged VMs", || {
        for name in ["foreign", "windows"] {
            ensure!(tenant.label(name, "rack")?.as_deref() == Some("rack-1"), "{name}");
        }
        Ok(())
    })
    .unwrap();
    until_agents(
        &collector,
        &[("agent", true), ("foreign", false), ("windows", false)],
    );
}
