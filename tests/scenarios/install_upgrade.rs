//! Tier 3: an upgrade from the chart of the previous release, in which every value was set, and the
//! removal after it. `tests/fixtures/previous-chart/Chart.yaml` says where that chart comes from.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::{collections::BTreeSet, fs};

use anyhow::ensure;
use serde_json::{Value, json};
use virtfleet_tests::{
    cluster::{ApiServer, ControllerManager, live::WAIT_TIMEOUT},
    install::{Helm, RELEASE, key, objects},
    parts, skip, wait,
};

use crate::{
    expressions::root,
    install_cluster::{nothing_else_remains, of_users, remains, server},
};

/// Secrets that must outlive an upgrade: what the chart made, and the fleet's authority.
const SECRETS: [&str; 3] = ["virtfleet-collector-tls", "virtfleet-client", "virtfleet-ca"];
/// The properties of `spec` in a CustomResourceDefinition.
const PROPERTIES: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";

fn get(server: &ApiServer, path: &str) -> Value {
    server.admin().get(path).unwrap().ok().unwrap()
}

fn secret_path(name: &str) -> String {
    format!("/api/v1/namespaces/virtfleet/secrets/{name}")
}

/// The contents of [`SECRETS`].
fn secrets(server: &ApiServer) -> [Value; 3] {
    SECRETS.map(|name| get(server, &secret_path(name))["data"].clone())
}

/// The objects of the release.
fn manifest(helm: &Helm) -> Vec<Value> {
    let manifest = helm.run(&["get", "manifest", RELEASE, "--namespace", RELEASE]);
    objects(&manifest.unwrap()).unwrap()
}

/// UID and version of each object, which change with every write. The definition of its kind may
/// show more fields.
fn stored(server: &ApiServer, objects: &[Value]) -> Vec<[Value; 2]> {
    let of = |object: &Value| {
        let found = server.fetch(object).unwrap().unwrap_or_default();
        ["uid", "resourceVersion"].map(|field| found["metadata"][field].clone())
    };
    objects.iter().map(of).collect()
}

/// Waits for this many generations of the collector's pods.
fn until_generations(server: &ApiServer, count: usize) {
    let path = "/apis/apps/v1/namespaces/virtfleet/replicasets";
    wait::eventually(WAIT_TIMEOUT, &format!("{count} generations of pods"), || {
        let sets = server.admin().get(path)?.ok()?;
        let found = sets["items"].as_array().map_or(0, Vec::len);
        ensure!(found == count, "{found}: {sets:#}");
        Ok(())
    })
    .unwrap();
}

/// Installs the previous chart, with its values, and what users and the collector make.
fn install_previous(helm: &Helm, server: &ApiServer, made_by_users: &[Value]) {
    let chart = root().join("tests/fixtures/previous-chart");
    let values = chart.join("values.yaml");
    helm.run(&[
        "install",
        RELEASE,
        chart.to_str().unwrap(),
        "--namespace",
        RELEASE,
        "--create-namespace",
        "--values",
        values.to_str().unwrap(),
    ])
    .unwrap();
    let authority = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "namespace": RELEASE, "name": "virtfleet-ca" },
        "stringData": { "clients.key": "a key that must not be lost" },
    });
    for object in made_by_users.iter().chain([&authority]) {
        server.apply_when_served(object).unwrap();
    }
}

/// What the present chart makes of the values of the previous one.
fn is_upgraded(server: &ApiServer) {
    let shipped = root().join("packaging/collector/crds/virtfleet.io.yaml");
    for shipped in objects(&fs::read_to_string(shipped).unwrap()).unwrap() {
        let now = server.fetch(&shipped).unwrap().unwrap();
        let fields = |definition: &Value| -> BTreeSet<String> {
            let properties = definition.pointer(PROPERTIES).and_then(Value::as_object);
            properties
                .into_iter()
                .flatten()
                .map(|(name, _)| name.clone())
                .collect()
        };
        assert_eq!(fields(&now), fields(&shipped), "{}", key(&shipped));
    }
    let deployment = get(
        server,
        "/apis/apps/v1/namespaces/virtfleet/deployments/virtfleet-collector",
    );
    let version = &deployment["metadata"]["labels"]["app.kubernetes.io/version"];
    assert_eq!(*version, env!("CARGO_PKG_VERSION"));
    let spec = &deployment["spec"];
    assert_eq!(spec["replicas"], 3);
    let container = &spec["template"]["spec"]["containers"][0];
    assert_eq!(
        container["image"],
        "registry.example.org/virtfleet-collector:9.9.9"
    );
    assert_eq!(container["resources"]["limits"]["memory"], "512Mi");
    let settings = get(
        server,
        "/api/v1/namespaces/virtfleet/configmaps/virtfleet-settings",
    );
    let settings = settings["data"]["collector.yaml"].as_str().unwrap();
    for kept in ["trustDomain: fleet.example.org", "redactInfra: true"] {
        assert!(settings.contains(kept), "{settings}");
    }
    // What the previous chart did not have.
    get(
        server,
        "/apis/policy/v1/namespaces/cluster-abcdefghij/poddisruptionbudgets/virtfleet-relay",
    );
    let role = get(
        server,
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/virtfleet-collector",
    );
    assert!(role["rules"].to_string().contains("\"namespaces\""), "{role}");
}

#[test]
fn tier3_install_upgrades_from_the_previous_chart_and_is_removed() {
    let test = "tier3_install_upgrades_from_the_previous_chart_and_is_removed";
    let needs = || {
        parts::kube_control_plane()?;
        parts::prometheus_operator()?;
        Helm::new()
    };
    let Some(helm) = skip::need(3, test, needs()).unwrap() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let server = server(&helm, folder.path()).unwrap();
    let made_by_users = of_users();
    install_previous(&helm, &server, &made_by_users);
    let previous = manifest(&helm);
    let manager = ControllerManager::start_with(&server, &["deployment-controller"]).unwrap();
    until_generations(&server, 1);
    let (kept, unchanged) = (secrets(&server), stored(&server, &made_by_users));

    // As docs/install.md says.
    let chart = Helm::chart();
    helm.run(&[
        "upgrade",
        RELEASE,
        chart.to_str().unwrap(),
        "-n",
        RELEASE,
        "--reset-then-reuse-values",
        "--set",
        "image.tag=9.9.9",
    ])
    .unwrap();
    until_generations(&server, 2);
    is_upgraded(&server);
    assert_eq!(secrets(&server), kept, "certificates and the authority");
    assert_eq!(stored(&server, &made_by_users), unchanged);

    drop(manager);
    let present = manifest(&helm);
    helm.run(&["uninstall", RELEASE, "--namespace", RELEASE]).unwrap();
    for object in previous.iter().chain(&present) {
        let stays = object["kind"] == "CustomResourceDefinition";
        assert_eq!(remains(&server, object).unwrap(), stays, "{}", key(object));
    }
    assert_eq!(get(&server, &secret_path("virtfleet-ca"))["data"], kept[2]);
    assert_eq!(stored(&server, &made_by_users), unchanged);
    // The rest of the authority's namespace is empty.
    let authority = secret_path("virtfleet-ca");
    server.admin().delete(&authority).unwrap().ok().unwrap();
    nothing_else_remains(&server).unwrap();
}
