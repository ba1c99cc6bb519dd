//! Tier 3: what was read last is no evidence for long, although the watch that brought it stays
//! open: API servers that hang, credentials that end, kubelets that die. The limits themselves are
//! tested with tokio's paused time, in `inventory::cluster::probe`.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};
use virtfleet_tests::{
    cluster::{
        MERGE_PATCH,
        live::{self, Collector, WAIT_TIMEOUT},
        scene::{Scene, Tenant},
    },
    parts, skip, wait,
};

/// The reason of a condition of the only VM of a user cluster.
fn reason(collector: &Collector, tenant: &str, kind: &str) -> anyhow::Result<String> {
    let vm = collector.json(&format!("/api/v1/vms/{tenant}/vm-1"))?;
    let conditions = vm["conditions"].as_array().context("conditions")?;
    let found = conditions.iter().find(|one| one["type"] == kind);
    let reason = found.and_then(|one| one["reason"].as_str());
    Ok(reason.context("no such condition")?.to_owned())
}

/// Waits until the Node of the VM has this condition.
fn until_node(collector: &Collector, tenant: &Tenant, wanted: &str) {
    wait::eventually(WAIT_TIMEOUT * 2, &format!("{}: {wanted}", tenant.name), || {
        let found = reason(collector, &tenant.name, "NodeReady")?;
        ensure!(found == wanted, "{found}");
        Ok(())
    })
    .unwrap();
}

/// Nothing renews it again, so it lasts for `seconds`.
fn lease(tenant: &Tenant, renewed: Timestamp, seconds: u64) -> Value {
    let spec = json!({ "renewTime": format!("{renewed:.6}"), "leaseDurationSeconds": seconds });
    let metadata = json!({ "name": "vm-1", "namespace": "kube-node-lease" });
    let lease = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec });
    tenant.server.apply(&lease).unwrap()
}

/// Says that the kubelet is ready, without a heartbeat.
fn make_ready(tenant: &Tenant) {
    let ready = json!({ "type": "Ready", "status": "True", "reason": "KubeletReady" });
    let status = json!({ "status": { "conditions": [ready] } });
    let path = "/api/v1/nodes/vm-1/status";
    let patched = tenant.server.admin().patch(path, MERGE_PATCH, &status);
    patched.unwrap().ok().unwrap();
    // The API server sets the taint not-ready when a Node registers; a controller would remove it.
    let untainted = json!({ "spec": { "taints": null } });
    let patched = tenant
        .server
        .admin()
        .patch("/api/v1/nodes/vm-1", MERGE_PATCH, &untainted);
    patched.unwrap().ok().unwrap();
}

fn scene() -> Scene {
    let scene = Scene::new(&["hung", "revoked", "dead"]).unwrap();
    scene.host("host-1", &[]).unwrap();
    for tenant in &scene.tenants {
        scene.vmi(&tenant.name, "vm-1", "host-1").unwrap();
        tenant.node("vm-1", &[]).unwrap();
        make_ready(tenant);
        tenant.server.namespace("kube-node-lease").unwrap();
        lease(tenant, Timestamp::now(), 3600);
    }
    scene
}

#[test]
fn old_evidence_is_none_although_the_watch_is_open_tier3() {
    let test = "old_evidence_is_none_although_the_watch_is_open_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let scene = scene();
    let [hung, revoked, dead] = scene.tenants.as_slice() else {
        panic!("three user clusters")
    };
    // A token that can be revoked.
    revoked.server.namespace("system").unwrap();
    let account = revoked.server.service_account("system", "collector").unwrap();
    let rules = json!([{ "apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"] }]);
    revoked.server.grant("nodes", &account, None, &rules).unwrap();
    let kubeconfig = revoked.server.kubeconfig(&account);
    scene.infra.apply(&live::secret("revoked", &kubeconfig)).unwrap();

    let collector = scene.collector("collector", "").unwrap();
    collector.until_ready().unwrap();
    for tenant in [hung, revoked, dead] {
        until_node(&collector, tenant, "NodeReady");
    }

    // No connection is closed.
    hung.server.pause().unwrap();
    revoked
        .server
        .delete_service_account("system", "collector")
        .unwrap();
    until_node(&collector, revoked, "UserClusterUnreachable");
    until_node(&collector, hung, "UserClusterUnreachable");
    assert_eq!(reason(&collector, "dead", "NodeReady").unwrap(), "NodeReady");

    hung.server.resume().unwrap();
    until_node(&collector, hung, "NodeReady");

    // A kubelet dies, and no controller manager runs.
    lease(dead, Timestamp::now() - jiff::SignedDuration::from_mins(16), 40);
    // Of a collector that starts now, the Lease says how old it is, by a clock that may be late. So
    // it is read twice.
    drop(collector);
    let second = scene.collector("second", "").unwrap();
    second.until_leads().unwrap();
    until_node(&second, dead, "HeartbeatOld");
    lease(dead, Timestamp::now(), 3600);
    until_node(&second, dead, "NodeReady");

    scene.infra.pause().unwrap();
    second
        .until_finding("inventory-watch-failing", "the API server of the infra cluster")
        .unwrap();
    scene.infra.resume().unwrap();
    wait::eventually(WAIT_TIMEOUT, "the infra cluster is followed again", || {
        ensure!(
            second
                .finding("inventory-watch-failing", "the API server of the infra cluster")
                .is_err()
        );
        Ok(())
    })
    .unwrap();
}
