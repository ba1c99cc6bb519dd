//! Tier 3: the kubeconfig of one user cluster is stored for another one, on real API servers. No
//! label of one tenant may reach the Nodes of the other.
#![expect(
    clippy::unwrap_used,
    reason = "what fails here fails the test, with its message"
)]

use anyhow::ensure;
use serde_json::json;
use virtfleet_tests::{
    cluster::{
        self, Mark, live,
        scene::{Scene, Tenant, patched},
    },
    parts, skip, wait,
};

/// The UUID of the machine of a VM, where KubeVirt makes random ones.
fn uuid(tenant: &str) -> String {
    let first = if tenant == "alpha" { "a" } else { "b" };
    format!("{}-0000-4000-8000-000000000001", first.repeat(8))
}

/// A VM and its Node, on the tenant's own host.
fn worker(scene: &Scene, tenant: &Tenant, name: &str, uuid: Option<&str>) {
    let host = format!("host-{}", tenant.name);
    let mut vmi = cluster::vmi(&tenant.name, name).phase("Running").on(&host);
    let mut node = cluster::user_node(
        name,
        &format!("kubevirt://{name}"),
        &["10.0.0.1", "fd00::1"],
        &[(cluster::scene::FOREIGN, "kept")],
    );
    if let Some(uuid) = uuid {
        vmi = vmi.with("/spec/domain/firmware/uuid", uuid);
        node = node.with("/status/nodeInfo/systemUUID", uuid);
    }
    scene.infra.apply(&vmi).unwrap();
    tenant.server.apply(&node).unwrap();
}

/// A host of each tenant, with a rack that no other one has.
fn hosts(scene: &Scene, value: &str) {
    for tenant in &scene.tenants {
        let (name, rack) = (&tenant.name, format!("{value}-of-{}", tenant.name));
        scene.host(&format!("host-{name}"), &[("rack", &rack)]).unwrap();
    }
}

fn scene() -> Scene {
    let scene = Scene::new(&["alpha", "beta"]).unwrap();
    hosts(&scene, "rack");
    scene
        .policy("racks", &json!([{ "key": "rack", "mode": "Follow" }]))
        .unwrap();
    scene
}

/// The admin stores the kubeconfig of `server` for `cluster`.
fn store(scene: &Scene, cluster: &str, server: &Tenant) {
    let kubeconfig = server.server.kubeconfig(&server.user);
    scene.infra.apply(&live::secret(cluster, &kubeconfig)).unwrap();
}

/// Fails unless every label that was ever written to a tenant is that of its own host.
fn only_its_own(tenant: &Tenant) {
    let own = format!("-of-{}", tenant.name);
    for write in tenant.writes(Mark::BEGIN).unwrap() {
        for (key, value) in patched(&write).unwrap() {
            let is_own = value.as_str().is_some_and(|value| value.ends_with(&own));
            assert!(key == "rack" && is_own, "{write:#?}");
        }
    }
}

#[test]
fn two_user_clusters_with_one_kubeconfig_are_refused_until_it_is_mended_tier3() {
    let test = "two_user_clusters_with_one_kubeconfig_are_refused_until_it_is_mended_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let scene = scene();
    let [alpha, beta] = &scene.tenants[..] else {
        panic!("two tenants");
    };
    // The UUIDs of worker-1 are the same in both: only the Nodes tell.
    for tenant in [alpha, beta] {
        worker(&scene, tenant, "worker-1", None);
        worker(&scene, tenant, "worker-2", Some(&uuid(&tenant.name)));
    }
    let collector = scene.collector("a", live::NO_CONFIRMATION).unwrap();
    let until_labelled = |value: &str| {
        for tenant in [alpha, beta] {
            for name in ["worker-1", "worker-2"] {
                let rack = format!("{value}-of-{}", tenant.name);
                tenant.until_label(name, "rack", Some(&rack)).unwrap();
            }
        }
    };
    until_labelled("rack");

    store(&scene, "beta", alpha);
    for name in ["alpha", "beta"] {
        collector.until_cluster(name, "state", &json!("Refused")).unwrap();
    }
    collector
        .until_finding("user-clusters-share-nodes", "alpha and beta")
        .unwrap();
    wait::eventually(live::WAIT_TIMEOUT, "the object says it, too", || {
        let path = "/apis/virtfleet.io/v1alpha1/userclusters/alpha";
        let status = &scene.infra.admin().get(path)?.ok()?["status"];
        let reason = &status["conditions"][0]["reason"];
        ensure!(
            status["phase"] == "Failed" && *reason == "SharesNodes",
            "{status:#}"
        );
        Ok(())
    })
    .unwrap();
    let marks = scene.marks().unwrap();
    hosts(&scene, "cage");
    for (tenant, mark) in scene.tenants.iter().zip(marks) {
        let name = format!("{}/worker-1", tenant.name);
        let labels = json!({ "rack": format!("cage-of-{}", tenant.name), "kubernetes.io/hostname": format!("host-{}", tenant.name) });
        collector.until_vm(&name, "infraNodeLabels", &labels).unwrap();
        assert_eq!(tenant.writes(mark).unwrap().len(), 0);
    }

    store(&scene, "beta", beta);
    until_labelled("cage");
    for tenant in [alpha, beta] {
        collector
            .until_cluster(&tenant.name, "state", &json!("Ready"))
            .unwrap();
        only_its_own(tenant);
    }
}

#[test]
fn a_kubeconfig_of_a_cluster_outside_the_fleet_writes_nothing_there_tier3() {
    let test = "a_kubeconfig_of_a_cluster_outside_the_fleet_writes_nothing_there_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let scene = scene();
    let [alpha, beta] = &scene.tenants[..] else {
        panic!("two tenants");
    };
    for tenant in [alpha, beta] {
        worker(&scene, tenant, "worker-2", Some(&uuid(&tenant.name)));
    }
    scene.infra.remove(&live::user_cluster("alpha", "alpha")).unwrap();
    store(&scene, "beta", alpha);
    let collector = scene.collector("a", live::NO_CONFIRMATION).unwrap();
    collector.until_finding("node-uuid-differs", "worker-2").unwrap();
    assert_eq!(alpha.writes(Mark::BEGIN).unwrap().len(), 0);

    store(&scene, "beta", beta);
    beta.until_label("worker-2", "rack", Some("rack-of-beta"))
        .unwrap();
    assert_eq!(alpha.writes(Mark::BEGIN).unwrap().len(), 0);
}

#[test]
fn swapped_kubeconfigs_write_nothing_where_uuids_follow_from_names_tier3() {
    let test = "swapped_kubeconfigs_write_nothing_where_uuids_follow_from_names_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let scene = scene();
    let [alpha, beta] = &scene.tenants[..] else {
        panic!("two tenants");
    };
    // As KubeVirt before 1.5 makes them.
    let hashed = cluster::machine_of_name("worker-1").to_string();
    for tenant in [alpha, beta] {
        worker(&scene, tenant, "worker-1", Some(&hashed));
    }
    store(&scene, "alpha", beta);
    store(&scene, "beta", alpha);
    let collector = scene.collector("a", live::NO_CONFIRMATION).unwrap();
    let finding = collector.until_finding("node-unconfirmed", "worker-1").unwrap();
    assert!(finding.contains("cloud-init"), "{finding}");
    for (tenant, other) in [(alpha, beta), (beta, alpha)] {
        let name = format!("{}/worker-1", tenant.name);
        collector.until_vm(&name, "userNode", &json!("worker-1")).unwrap();
        assert_eq!(other.writes(Mark::BEGIN).unwrap().len(), 0);
    }

    // Each its own again, and one VM alone has the UUID.
    collector.process.terminate(live::WAIT_TIMEOUT).unwrap();
    store(&scene, "alpha", alpha);
    store(&scene, "beta", beta);
    scene.infra.remove(&cluster::vmi(&beta.name, "worker-1")).unwrap();
    let _collector = scene.collector("b", live::NO_CONFIRMATION).unwrap();
    alpha
        .until_label("worker-1", "rack", Some("rack-of-alpha"))
        .unwrap();
    only_its_own(alpha);
    assert_eq!(beta.writes(Mark::BEGIN).unwrap().len(), 0);
}
