//! Tier 3: the chart on a real API server: installed, upgraded, removed, and installed again.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use virtfleet_tests::{
    cluster::ApiServer,
    install::{self, Helm, RELEASE, key, objects},
    parts, skip,
};

/// Kinds that stay when the release is removed.
const KEPT: &str = "CustomResourceDefinition";
/// All options of the chart that need no cert-manager.
const OPTIONS: &[&str] = &[
    "--set",
    "trustDomain=fleet.example.org,monitoring.enabled=true,monitoring.labels.release=prometheus",
    "--set",
    "dashboards.enabled=true,ingest.enabled=true,priorityClass.create=true,priorityClass.name=virtfleet",
    "--set-json",
    r#"relays=[{"namespace":"cluster-abcdefghij","allowCIDRs":["10.244.0.0/16"]}]"#,
];

/// An API server with the kinds of KubeVirt and prometheus-operator, and a tenant's namespace.
pub(crate) fn server(helm: &Helm, root: &Path) -> Result<ApiServer> {
    let server = install::server(helm, root)?;
    server.install(&install::prometheus_definitions()?)?;
    server.namespace("cluster-abcdefghij")?;
    Ok(server)
}

/// Runs `helm VERB virtfleet CHART` with [`OPTIONS`] and more.
fn helm(helm: &Helm, verb: &str, more: &[&str]) -> Result<String> {
    let chart = Helm::chart();
    let chart = chart.to_str().context("the path is not UTF-8")?;
    let arguments = [&[verb, RELEASE, chart, "--namespace", RELEASE], OPTIONS, more].concat();
    helm.run(&arguments)
}

/// The pod template of the collector, and the generated certificate.
fn state(server: &ApiServer) -> Result<(Value, Value)> {
    let get = |path: &str| server.admin().get(path)?.ok();
    let deployment = get("/apis/apps/v1/namespaces/virtfleet/deployments/virtfleet-collector")?;
    let secret = get("/api/v1/namespaces/virtfleet/secrets/virtfleet-collector-tls")?;
    Ok((deployment["spec"]["template"].clone(), secret["data"].clone()))
}

/// What the API server has of an object of the release. A namespace stays until a controller has
/// emptied it, and no controller runs here.
pub(crate) fn remains(server: &ApiServer, object: &Value) -> Result<bool> {
    let found = server.fetch(object)?;
    Ok(found.is_some_and(|found| {
        found["kind"] != "Namespace" || found["metadata"]["deletionTimestamp"].is_null()
    }))
}

/// Objects of users, which are not part of the release.
pub(crate) fn of_users() -> [Value; 4] {
    let ours = |kind: &str, metadata: Value, spec: Value| json!({ "apiVersion": "virtfleet.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec });
    [
        ours(
            "UserCluster",
            json!({ "name": "abcdefghij" }),
            json!({ "vmis": { "namespace": "cluster-abcdefghij" } }),
        ),
        ours(
            "LabelPropagation",
            json!({ "name": "topology" }),
            json!({ "labels": [{ "key": "topology.kubernetes.io/zone" }] }),
        ),
        json!({
            "apiVersion": "virtfleet.io/v1alpha1", "kind": "GuestHealth",
            "metadata": { "namespace": "cluster-abcdefghij", "name": "worker-1" },
        }),
        // A Node of a user cluster, as the collector has labelled it.
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": "worker-1",
                "labels": { "topology.kubernetes.io/zone": "a" },
                "annotations": { "virtfleet.io/owned-labels": "{}" },
            },
        }),
    ]
}

#[test]
fn tier3_install_upgrade_and_removal_leave_what_users_made() {
    let test = "tier3_install_upgrade_and_removal_leave_what_users_made";
    let needs = || {
        parts::kube_assets()?;
        parts::prometheus_operator()?;
        Helm::new()
    };
    let Some(client) = skip::need(3, test, needs()).unwrap() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let server = server(&client, folder.path()).unwrap();

    let said = helm(&client, "install", &["--create-namespace"]).unwrap();
    assert!(said.contains("virtfleetctl install check"), "{said}");
    assert!(!said.contains("WARNING"), "the trust domain is set: {said}");
    let manifest = client
        .run(&["get", "manifest", RELEASE, "--namespace", RELEASE])
        .unwrap();
    let made = objects(&manifest).unwrap();
    assert!(made.len() > 40, "{}", made.len());
    for object in &made {
        assert!(server.fetch(object).unwrap().is_some(), "{}", key(object));
    }
    let made_by_users = of_users();
    for object in &made_by_users {
        server.apply_when_served(object).unwrap();
    }
    let before: Vec<Value> = made_by_users
        .iter()
        .map(|object| server.fetch(object).unwrap().unwrap())
        .collect();

    // An upgrade without a change of the settings starts no pod, and keeps the certificate.
    let (template, certificate) = state(&server).unwrap();
    helm(&client, "upgrade", &["--set", "monitoring.labels.team=infra"]).unwrap();
    assert_eq!(state(&server).unwrap(), (template.clone(), certificate.clone()));
    // A change of the settings starts new pods.
    helm(
        &client,
        "upgrade",
        &["--set", "config.server.access.redactInfra=true"],
    )
    .unwrap();
    let (changed, kept) = state(&server).unwrap();
    assert_ne!(changed, template);
    assert_ne!(
        changed["metadata"]["annotations"]["checksum/settings"],
        template["metadata"]["annotations"]["checksum/settings"]
    );
    assert_eq!(kept, certificate);
    // A new certificate is made on request only.
    helm(&client, "upgrade", &["--set", "tls.renew=2"]).unwrap();
    assert_ne!(state(&server).unwrap().1, certificate);

    disk_serials(&client, &server).unwrap();

    client
        .run(&["uninstall", RELEASE, "--namespace", RELEASE])
        .unwrap();
    for object in &made {
        let stays = object["kind"] == KEPT;
        assert_eq!(remains(&server, object).unwrap(), stays, "{}", key(object));
    }
    for (object, before) in made_by_users.iter().zip(&before) {
        let now = server.fetch(object).unwrap();
        assert_eq!(now.as_ref(), Some(before), "{}", key(object));
    }
    nothing_else_remains(&server).unwrap();

    // The kept definitions belong to the release, so it can be installed again. Its namespaces are
    // still being deleted here, so only the objects of the cluster are made again.
    let again = objects(&client.template(OPTIONS).unwrap()).unwrap();
    for definition in again.iter().filter(|object| object["kind"] == KEPT) {
        let there = server.fetch(definition).unwrap().unwrap();
        let metadata = &there["metadata"];
        assert_eq!(metadata["annotations"]["meta.helm.sh/release-name"], RELEASE);
        assert_eq!(metadata["labels"]["app.kubernetes.io/managed-by"], "Helm");
    }
}

/// The policy for disks comes and goes with its value, and is refused where the API server has no
/// such policies.
fn disk_serials(client: &Helm, server: &ApiServer) -> Result<()> {
    const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies";
    let enabled = ["--set", "diskSerials.enabled=true"];
    if server.admin().get(POLICIES)?.code == 404 {
        let refused = helm(client, "upgrade", &enabled)
            .err()
            .map(|error| error.to_string());
        let refused = refused.context("the chart accepts a cluster without the kind")?;
        ensure!(refused.contains("diskSerials.enabled"), "{refused}");
        return Ok(());
    }
    helm(client, "upgrade", &enabled)?;
    let policy = "virtfleet-disk-serials";
    for kind in ["policies", "policybindings"] {
        let path = format!("{}/{policy}", POLICIES.replace("policies", kind));
        ensure!(server.admin().get(&path)?.code == 200, "{path}");
    }
    helm(client, "upgrade", &[])?;
    let gone = server.admin().get(&format!("{POLICIES}/{policy}"))?;
    ensure!(gone.code == 404, "{}", gone.body);
    Ok(())
}

/// No cluster-scoped object is left, except namespaces that are being deleted.
pub(crate) fn nothing_else_remains(server: &ApiServer) -> Result<()> {
    for collection in [
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "/apis/rbac.authorization.k8s.io/v1/roles",
        "/apis/rbac.authorization.k8s.io/v1/rolebindings",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        "/apis/networking.k8s.io/v1/networkpolicies",
        "/apis/policy/v1/poddisruptionbudgets",
        "/apis/apps/v1/deployments",
        "/api/v1/configmaps",
        "/api/v1/secrets",
        "/api/v1/services",
    ] {
        let list = server.admin().get(collection)?.ok()?;
        let items = list["items"].as_array().context("items")?;
        let ours = items.iter().map(key).filter(|name| name.contains("virtfleet"));
        let ours: Vec<String> = ours.collect();
        ensure!(ours.is_empty(), "{collection}: {ours:?}");
    }
    Ok(())
}
