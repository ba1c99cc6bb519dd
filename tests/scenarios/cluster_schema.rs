//! Tier 3: KubeVirt's own objects are read in full, ours are valid for KubeVirt, and the API server
//! enforces the rules of our kinds.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use virtfleet_tests::{
    cluster::{
        self, ApiServer, kubevirt,
        live::{self, Collector, WAIT_TIMEOUT},
    },
    install::objects,
    parts, skip, wait,
};

const NAMESPACE: &str = "vms";
/// Firmware UUID of every VM: the API shows it only in a finding about VMs with the same one.
const UUID: &str = "5d307ca9-b3ef-428c-8861-06e72d69f223";
/// The fields of a `VirtualMachineInstance` that the collector reads.
const READ_OF_VMI: [&str; 27] = [
    "/metadata/labels",
    "/metadata/deletionTimestamp",
    "/spec/hostname",
    "/spec/domain/firmware/uuid",
    "/spec/readinessProbe/guestAgentPing",
    "/status/phase",
    "/status/phaseTransitionTimestamps/0/phase",
    "/status/nodeName",
    "/status/interfaces/0/name",
    "/status/interfaces/0/mac",
    "/status/interfaces/0/ipAddress",
    "/status/interfaces/0/ipAddresses/0",
    "/status/interfaces/0/infoSource",
    "/status/guestOSInfo/prettyName",
    "/status/conditions/0/type",
    "/status/conditions/0/status",
    "/status/conditions/0/reason",
    "/status/conditions/0/message",
    "/status/evacuationNodeName",
    "/status/migrationState/migrationUid",
    "/status/migrationState/mode",
    "/status/migrationState/sourceNode",
    "/status/migrationState/targetNode",
    "/status/migrationState/completed",
    "/status/migrationState/failed",
    "/status/migrationState/startTimestamp",
    "/status/migrationState/endTimestamp",
];
/// Those of a `VirtualMachine`.
const READ_OF_VM: [&str; 3] = [
    "/metadata/labels",
    "/spec/template/metadata/labels",
    "/status/printableStatus",
];

/// KubeVirt's example of a kind in a release; each field that is read is set in it.
fn example(folder: &Path, release: &str, kind: &str, read: &[&str]) -> Value {
    let path = folder.join(format!("examples/{release}/{kind}.json"));
    let object: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    for field in read {
        let found = object.pointer(field).is_some_and(|value| !value.is_null());
        assert!(found, "{kind} of KubeVirt {release} has no {field}");
    }
    object
}

/// Replaces the metadata, and placeholders where a name, an address or a UUID is needed.
fn fill_in(mut object: Value, name: &str, values: &[(&str, Value)]) -> Value {
    object["metadata"] = json!({
        "namespace": NAMESPACE, "name": name, "labels": object["metadata"]["labels"],
        "annotations": object["metadata"]["annotations"],
    });
    for (field, value) in values {
        *object.pointer_mut(field).unwrap() = value.clone();
    }
    object
}

fn releases(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder.join("examples")).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Applies KubeVirt's examples of a release, with the VM `name`, and checks that the collector has
/// every field that it reads.
fn read_in_full(infra: &ApiServer, collector: &Collector, folder: &Path, release: &str, number: usize) {
    let name = format!("vm-{}", release.replace('.', "-"));
    let mac = format!("02:00:00:00:00:{number:02x}");
    let address = format!("10.0.0.{number}");
    let vmi = fill_in(
        example(folder, release, "VirtualMachineInstance", &READ_OF_VMI),
        &name,
        &[
            ("/spec/hostname", json!(name)),
            ("/spec/domain/firmware/uuid", json!(UUID)),
            ("/status/phase", json!("Running")),
            ("/status/nodeName", json!("host-2")),
            ("/status/interfaces/0/mac", json!(mac)),
            ("/status/interfaces/0/ipAddress", json!(address)),
            (
                "/status/interfaces/0/ipAddresses/0",
                json!(format!("fd00::{number:x}")),
            ),
            ("/status/conditions/0/type", json!("Paused")),
            ("/status/conditions/0/status", json!("True")),
            ("/status/evacuationNodeName", json!("host-2")),
            ("/status/migrationState/sourceNode", json!("host-1")),
            ("/status/migrationState/targetNode", json!("host-2")),
            ("/status/migrationState/failed", json!(false)),
        ],
    );
    let vm = fill_in(
        example(folder, release, "VirtualMachine", &READ_OF_VM),
        &name,
        &[("/metadata/labels", json!({ "of": "the-vm" }))],
    );
    let applied = infra.apply(&vmi).unwrap();
    infra.apply(&vm).unwrap();
    let path = format!("/api/v1/vms/{NAMESPACE}/{name}");
    let state = &vmi["status"]["migrationState"];
    let expected = json!({
        "infraNode": "host-2",
        "state": "paused",
        "labels": { "of": "the-vm", "labelsKey": "labelsValue" },
        "interfaces": [{ "name": "nameValue", "mac": mac, "addresses": [address, format!("fd00::{number:x}")] }],
        "migration": {
            "source": "host-1", "target": "host-2", "completed": true, "failed": false,
            "start": state["startTimestamp"], "end": state["endTimestamp"], "mode": state["mode"],
        },
        "health": { "verdict": "Critical", "cause": "vm", "reason": "Paused" },
    });
    wait::eventually(WAIT_TIMEOUT, &path, || {
        let seen = collector.json(&path)?;
        ensure!(seen["uid"] == applied["metadata"]["uid"], "{}", seen["uid"]);
        contains(&seen, &expected, release)
    })
    .unwrap();
}

/// Fails unless everything in `expected` is in `found`.
fn contains(found: &Value, expected: &Value, path: &str) -> Result<()> {
    match expected {
        Value::Object(fields) => {
            for (name, value) in fields {
                contains(&found[name], value, &format!("{path}.{name}"))?;
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                contains(&found[index], item, &format!("{path}[{index}]"))?;
            }
        }
        _ => ensure!(found == expected, "{path} is {found}, not {expected}"),
    }
    Ok(())
}

#[test]
fn kubevirts_own_examples_are_read_in_full_tier3() {
    let test = "kubevirts_own_examples_are_read_in_full_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let Some(folder) = skip::need(3, test, parts::kubevirt()).unwrap() else {
        return;
    };
    let root = tempfile::tempdir().unwrap();
    let infra = live::infra(root.path()).unwrap();
    infra.namespace(NAMESPACE).unwrap();
    for host in ["host-1", "host-2"] {
        infra.apply(&cluster::infra_node(host, &[])).unwrap();
    }
    let kubeconfig = infra.kubeconfig(infra.admin_user());
    let inventory = live::settings(root.path(), &kubeconfig, "").unwrap();
    let collector = Collector::start(&root.path().join("collector"), &inventory).unwrap();
    collector.until_ready().unwrap();
    let releases = releases(&folder);
    assert!(releases.len() >= 8, "{releases:?}");
    for (number, release) in releases.iter().enumerate() {
        read_in_full(&infra, &collector, &folder, release, number + 1);
    }
    let same = wait::eventually(
        WAIT_TIMEOUT,
        "a finding about the common UUID for each VM",
        || {
            let findings = collector.json("/api/v1/findings?limit=1000")?;
            let all = findings["items"].as_array().context("items")?.iter();
            let ids: Vec<_> = all
                .filter_map(|one| one["id"].as_str().map(str::to_owned))
                .collect();
            let same = ids.iter().filter(|id| *id == "duplicate-firmware-uuid").count();
            ensure!(same == releases.len(), "{ids:?}");
            ensure!(!ids.iter().any(|id| id.starts_with("inventory-")), "{ids:?}");
            Ok(same)
        },
    );
    same.unwrap();

    // The objects that the tests create, and the shipped example of a VM, are valid for the oldest
    // and the newest release of KubeVirt.
    let mut checked = 0;
    for entry in fs::read_dir(folder.join("schemas")).unwrap() {
        let schemas = entry.unwrap().path();
        kubevirt::install_release(&infra, &schemas).unwrap();
        for object in objects_of_the_tests() {
            let release = schemas.file_name().unwrap().to_string_lossy().into_owned();
            infra.remove(&object).unwrap();
            // A field that is not in the schema is dropped.
            let applied = infra
                .apply(&object)
                .unwrap_or_else(|error| panic!("{release}: {error:#}"));
            contains(&applied, &object, &release).unwrap();
            checked += 1;
        }
    }
    assert!(checked >= 10, "{checked}");
}

/// The VM that is shipped as an example.
fn example_vm() -> cluster::Object {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cloud-init/virtual-machine.yaml");
    let mut vm = objects(&fs::read_to_string(file).unwrap()).unwrap().remove(0);
    vm["metadata"]["namespace"] = NAMESPACE.into();
    cluster::Object(vm)
}

/// One object of each kind with all that the tests set, and the example.
fn objects_of_the_tests() -> Vec<cluster::Object> {
    let state = json!({
        "sourceNode": "host-1", "targetNode": "host-2", "completed": true, "failed": false,
        "startTimestamp": "2026-01-01T00:00:00Z", "endTimestamp": "2026-01-01T00:00:09Z",
    });
    let vmi = cluster::vmi(NAMESPACE, "ours")
        .with(
            "/spec/domain/firmware/uuid",
            "5d307ca9-b3ef-428c-8861-06e72d69f223",
        )
        .with("/status/evacuationNodeName", "host-1")
        .with("/status/guestOSInfo/prettyName", "Debian GNU/Linux 13 (trixie)")
        .on("host-1")
        .phase("Running")
        .interface("default", "52:54:00:00:00:01", &["10.0.0.1", "fd00::1"])
        .interface("storage", "52:54:00:00:00:02", &["10.1.0.1"])
        .migration_state(state.clone())
        .condition("Ready", "True", "");
    vec![
        vmi,
        cluster::vmi(NAMESPACE, "pending"),
        cluster::vm(NAMESPACE, "ours"),
        cluster::vmim(NAMESPACE, "move", "ours").with("/status/migrationState", state),
        example_vm(),
    ]
}

#[test]
fn the_api_server_enforces_the_rules_of_our_kinds_tier3() {
    let test = "the_api_server_enforces_the_rules_of_our_kinds_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let root = tempfile::tempdir().unwrap();
    let infra = live::infra(root.path()).unwrap();
    let collection = "/apis/virtfleet.io/v1alpha1/labelpropagations";
    let policy = |name: &str, labels: &Value| cluster::scene::policy(name, labels);
    for (name, rule) in [
        ("both", json!({ "key": "rack", "prefix": "rack.example.com/" })),
        ("neither", json!({ "mode": "Follow" })),
    ] {
        let answer = infra
            .admin()
            .post(collection, &policy(name, &json!([{ "key": "row" }, rule])))
            .unwrap();
        let message = answer.body["message"].as_str().unwrap_or_default();
        assert_eq!(answer.code, 422, "{name}: {}", answer.body);
        assert!(message.contains("spec.labels[1]"), "{name}: {message}");
        println!("{name}: {message}");
        // CRD validation rules are enforced since 1.25, where the schema alone finds nothing wrong
        // with a field.
        if name == "both" && infra.minor().unwrap() >= 25 {
            let rule = "exactly one of key and prefix must be set";
            assert!(message.contains(rule), "{name}: {message}");
        }
    }
    // A target that is reserved for Kubernetes.
    for rule in [
        json!({ "key": "kubernetes.io/hostname" }),
        json!({ "key": "rack", "target": "node-role.kubernetes.io/rack" }),
        json!({ "prefix": "node.kubernetes.io/" }),
        json!({ "prefix": "rack.", "target": "sub.k8s.io/" }),
    ] {
        let never = policy("never", &json!([{ "key": "row" }, rule]));
        let answer = infra.admin().post(collection, &never).unwrap();
        let message = answer.body["message"].as_str().unwrap_or_default();
        if infra.minor().unwrap() >= 25 {
            assert_eq!(answer.code, 422, "{rule}: {}", answer.body);
            assert!(message.contains("reserved for Kubernetes"), "{rule}: {message}");
        }
    }
    let none = infra
        .admin()
        .post(collection, &policy("none", &json!([])))
        .unwrap();
    assert_eq!(none.code, 422, "{}", none.body);
    let right = json!([
        { "key": "rack" },
        { "prefix": "rack.example.com/" },
        { "key": "kubernetes.io/hostname", "target": "infra.node-restriction.kubernetes.io/host" },
        { "key": "topology.kubernetes.io/zone" },
        { "prefix": "topology.kubernetes.io/" },
        { "prefix": "kubernetes.io/", "target": "infra.example.com/" },
    ]);
    infra.apply(&policy("right", &right)).unwrap();
}
