//! Tier 3: what `virtfleetctl drain` reads on demand, on real API servers and with the shipped
//! rights: volumes of the VMs and their zones, pods and PodDisruptionBudgets of the user cluster. A
//! right that is missing is named.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use virtfleet_tests::{
    bins,
    cluster::{
        self, ApiServer, Object,
        live::{self, Collector, WAIT_TIMEOUT},
    },
    parts,
    process::Launch,
    skip, wait,
};
use virtfleet_wire::layered::{Node, parse_yaml};

const ZONE: &str = "topology.kubernetes.io/zone";
const DRAIN: &str = "/api/v1/hosts/host-1/drain";

fn apply_shipped(server: &ApiServer, path: &str) {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/collector/kubernetes");
    let text = fs::read_to_string(top.join(path)).unwrap();
    for object in parse_yaml(&text).unwrap().iter().map(Node::to_json) {
        server.apply(&object).unwrap();
    }
}

/// A bound claim of a VM and its volume, which only `zone` can use.
fn volume(infra: &ApiServer, claim: &str, zone: Option<&str>) {
    let name = format!("pv-{claim}");
    let mut volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": name },
        "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteMany"], "storageClassName": "fast",
                  "csi": { "driver": "csi.example", "volumeHandle": claim } },
    });
    if let Some(zone) = zone {
        let term = json!({ "matchExpressions": [{ "key": ZONE, "operator": "In", "values": [zone] }] });
        volume["spec"]["nodeAffinity"] = json!({ "required": { "nodeSelectorTerms": [term] } });
    }
    infra.apply(&volume).unwrap();
    let bound = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "namespace": "tenant", "name": claim },
        "spec": { "accessModes": ["ReadWriteMany"], "storageClassName": "fast", "volumeName": name,
                  "resources": { "requests": { "storage": "1Gi" } } },
        "status": { "phase": "Bound" },
    });
    infra.apply(&bound).unwrap();
}

/// A running VM on `host-1` with a volume, and its Node.
fn vm(infra: &ApiServer, tenant: &ApiServer, name: &str, zone: Option<&str>) {
    let vmi = cluster::vmi("tenant", name)
        .phase("Running")
        .on("host-1")
        .with("/spec/evictionStrategy", "LiveMigrate")
        .condition("LiveMigratable", "True", "");
    let vmi = infra.apply(&vmi).unwrap();
    volume(infra, name, zone);
    let disk = json!([{ "name": "root", "persistentVolumeClaim": { "claimName": name } }]);
    infra
        .apply(&cluster::launcher(&vmi, &[]).with("/spec/volumes", disk))
        .unwrap();
    let node = cluster::user_node(name, &format!("kubevirt://{name}"), &["10.0.0.1"], &[]);
    tenant.apply(&node).unwrap();
}

/// A pod of the user cluster on the Node `vm-1`.
fn pod(tenant: &ApiServer, name: &str, owner: Option<&str>, claim: Option<&str>) {
    let volumes = claim.map(|claim| json!({ "name": "d", "persistentVolumeClaim": { "claimName": claim } }));
    let named =
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "namespace": "shop", "name": name } });
    let mut pod = Object(named)
        .label("app", name)
        .with("/spec/nodeName", "vm-1")
        .with("/spec/automountServiceAccountToken", false)
        .with("/spec/containers", json!([{ "name": "c", "image": "i" }]))
        .with("/spec/volumes", volumes.into_iter().collect::<Vec<_>>())
        .phase("Running")
        .condition("Ready", "True", "");
    if let Some(kind) = owner {
        pod.0["metadata"]["ownerReferences"] =
            json!([{ "apiVersion": "apps/v1", "kind": kind, "name": "n", "uid": "u", "controller": true }]);
    }
    tenant.apply(&pod).unwrap();
}

/// Waits until the drain of `host-1` is as `check` requires.
fn until_plan(collector: &Collector, what: &str, check: impl Fn(&Value) -> Result<()>) {
    wait::eventually(WAIT_TIMEOUT, what, || check(&collector.json(DRAIN)?)).unwrap();
}

#[test]
fn a_drain_names_volumes_pods_budgets_and_missing_rights_tier3() {
    let test = "a_drain_names_volumes_pods_budgets_and_missing_rights_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let (infra, tenant) = (live::infra(root).unwrap(), ApiServer::start(root).unwrap());
    infra.namespace("tenant").unwrap();
    tenant.namespace("shop").unwrap();
    apply_shipped(&infra, "infra/namespace.yaml");
    apply_shipped(&infra, "infra/rbac.yaml");
    apply_shipped(&tenant, "user-cluster/rbac.yaml");
    let [ours, theirs] = [&infra, &tenant].map(|server| {
        server
            .service_account("virtfleet", "virtfleet-collector")
            .unwrap()
    });
    for (name, zone) in [("host-1", "a"), ("host-2", "b"), ("host-3", "c")] {
        let capacity = json!({ "cpu": "16", "memory": "64Gi", "pods": "110" });
        let host = cluster::infra_node(name, &[(ZONE, zone)]);
        let host = host
            .with("/status/allocatable", capacity.clone())
            .with("/status/capacity", capacity);
        infra.apply(&host).unwrap();
    }
    vm(&infra, &tenant, "vm-1", Some("a"));
    vm(&infra, &tenant, "vm-2", Some("c"));
    vm(&infra, &tenant, "vm-3", None);
    pod(&tenant, "web", Some("ReplicaSet"), Some("orders"));
    pod(&tenant, "free", Some("ReplicaSet"), None);
    pod(&tenant, "bare", None, None);
    pod(&tenant, "log", Some("DaemonSet"), None);
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "namespace": "shop", "name": "web" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } },
        "status": { "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1, "observedGeneration": 1 },
    });
    tenant.apply(&budget).unwrap();
    let mut blue = live::user_cluster("blue", "tenant");
    blue["spec"]["kubeconfig"]["secret"]["namespace"] = "virtfleet-kubeconfigs".into();
    infra.apply(&blue).unwrap();
    let mut secret = live::secret("blue", &tenant.kubeconfig(&theirs));
    secret["metadata"]["namespace"] = "virtfleet-kubeconfigs".into();
    infra.apply(&secret).unwrap();
    let inventory = live::settings(root, &infra.kubeconfig(&ours), "").unwrap();
    let collector = Collector::start(&root.join("collector"), &inventory).unwrap();
    collector.until_ready().unwrap();

    // A request that takes too long on a busy machine leaves a gap in one plan.
    until_plan(
        &collector,
        "outcome, target, volumes and pods of each VM",
        is_complete,
    );
    wait::eventually(WAIT_TIMEOUT, "people are shown it", || {
        shows_it_to_people(&collector)
    })
    .unwrap();
    names_missing_rights(&infra, &tenant, &collector);
    assert!(
        !tenant
            .audit()
            .unwrap()
            .iter()
            .any(|entry| entry.verb == "watch" && entry.resource == "poddisruptionbudgets"),
        "they are read on demand"
    );
}

/// Checks outcome, target, volumes and pods of each VM.
fn is_complete(plan: &Value) -> Result<()> {
    let of = |name: &str| {
        let mut vms = plan["vms"].as_array().into_iter().flatten();
        let found = vms.find(|vm| vm["name"] == name);
        found.with_context(|| format!("no {name} in {plan:#}"))
    };
    let (bound, reaching, free) = (of("vm-1")?, of("vm-2")?, of("vm-3")?);
    let reason = bound["reason"].as_str().unwrap_or_default();
    ensure!(
        bound["outcome"] == "blocks" && reason.contains("2 out of reach of its volumes"),
        "{bound:#}"
    );
    ensure!(
        reaching["outcome"] == "migrates" && reaching["target"] == "host-3",
        "{reaching:#}"
    );
    ensure!(free["outcome"] == "migrates", "{free:#}");
    let expected = json!({
        "claim": "vm-1", "phase": "Bound", "storageClass": "fast", "accessModes": ["ReadWriteMany"],
        "volume": "pv-vm-1", "boundTo": format!("{ZONE} in (a)"),
    });
    ensure!(bound["volumes"][0] == expected, "{bound:#}");
    ensure!(
        free["volumes"][0].is_object() && free["volumes"][0]["boundTo"].is_null(),
        "{free:#}"
    );
    ensure!(bound["podsTotal"] == 3 && bound["podsRefused"] == 1, "{bound:#}");
    let web = &bound["pods"][0];
    ensure!(
        web["name"] == "web" && web["claims"] == json!(["orders"]) && web["budgets"] == json!(["web"]),
        "{web:#}"
    );
    ensure!(free["podsTotal"] == 0, "{free:#}");
    let notes = plan["notKnown"].to_string();
    ensure!(
        !notes.contains("volumes") && !notes.contains("PodDisruptionBudgets"),
        "{notes}"
    );
    Ok(())
}

fn shows_it_to_people(collector: &Collector) -> Result<()> {
    let ctl = Launch::new(bins::ctl()?).env("VIRTFLEET_SERVER", format!("http://{}", collector.api));
    let (code, said) = ctl.args(["drain", "host-1"]).said(WAIT_TIMEOUT)?;
    ensure!(code == 7, "{code}: {said}");
    for part in [
        "3 (1 held)",
        "PodDisruptionBudget web allows no eviction now: 1 of 1 required pods are healthy",
        "it is lost: it has no controller",
        "topology.kubernetes.io/zone in (a)",
    ] {
        ensure!(said.contains(part), "{part} is missing in {said}");
    }
    ensure!(!said.contains("shop/log"), "pods of DaemonSets stay: {said}");
    Ok(())
}

fn names_missing_rights(infra: &ApiServer, tenant: &ApiServer, collector: &Collector) {
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/virtfleet-collector";
    for (server, resources, gap) in [
        (
            tenant,
            &["poddisruptionbudgets"][..],
            "PodDisruptionBudgets of the user cluster blue: the collector may not list \
             poddisruptionbudgets.policy; in the user cluster blue: kubectl apply -f \
             packaging/collector/kubernetes/user-cluster/rbac.yaml",
        ),
        (
            infra,
            &["persistentvolumes"],
            "zones of volumes: the collector may not get persistentvolumes; in the infra cluster: \
             kubectl apply -f packaging/collector/kubernetes/infra/rbac.yaml (3 volumes)",
        ),
    ] {
        let mut now = server.admin().get(role).unwrap().ok().unwrap();
        for rule in now["rules"].as_array_mut().unwrap() {
            let list = rule["resources"].as_array_mut().unwrap();
            list.retain(|one| !resources.iter().any(|resource| one == resource));
        }
        let rules = now["rules"].as_array_mut().unwrap();
        rules.retain(|rule| rule["resources"].as_array().is_some_and(|list| !list.is_empty()));
        server.admin().put(role, &now).unwrap().ok().unwrap();
        until_plan(collector, gap, |plan| {
            let notes = plan["notKnown"].as_array().map_or(&[][..], Vec::as_slice);
            ensure!(notes.iter().any(|note| note == gap), "{notes:#?}");
            Ok(())
        });
    }
    until_plan(collector, "what can be read is still shown", |plan| {
        let mut vms = plan["vms"].as_array().into_iter().flatten();
        ensure!(
            vms.clone().all(|vm| vm["volumes"][0]["storageClass"] == "fast"),
            "{plan:#}"
        );
        ensure!(vms.any(|vm| vm["podsTotal"] == 3), "{plan:#}");
        Ok(())
    });
}
