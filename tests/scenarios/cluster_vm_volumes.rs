//! Tier 3: VMs that wait for their volumes, on a real API server and with the shipped rights: from
//! claims and DataVolumes to `virtfleetctl why`, the API and GuestHealth. Claims are read by name,
//! at once for VMs that wait, now and then for VMs that run. A missing right and a cluster without
//! CDI are named.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::{fs, path::Path};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use virtfleet_tests::{
    bins,
    cluster::{
        self, ApiServer,
        live::{self, Collector, WAIT_TIMEOUT},
    },
    parts,
    process::Launch,
    skip, wait,
};
use virtfleet_wire::layered::{Node, parse_yaml};

const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/virtfleet-collector";

fn apply_shipped(server: &ApiServer, path: &str) {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/collector/kubernetes");
    let text = fs::read_to_string(top.join(path)).unwrap();
    for object in parse_yaml(&text).unwrap().iter().map(Node::to_json) {
        server.apply(&object).unwrap();
    }
}

/// The kind DataVolume, as far as this test needs it.
fn definition() -> Value {
    let free = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "datavolumes.cdi.kubevirt.io" },
        "spec": {
            "group": "cdi.kubevirt.io", "scope": "Namespaced",
            "names": { "kind": "DataVolume", "listKind": "DataVolumeList", "singular": "datavolume",
                       "plural": "datavolumes", "shortNames": ["dv", "dvs"] },
            "versions": [{
                "name": "v1beta1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "properties": { "spec": free, "status": free } } },
            }],
        },
    })
}

fn claim(infra: &ApiServer, name: &str, phase: &str) {
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "namespace": "tenant", "name": name },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
                  "resources": { "requests": { "storage": "1Gi" } } },
        "status": { "phase": phase },
    });
    infra.apply(&claim).unwrap();
}

fn data_volume(infra: &ApiServer, name: &str, status: &Value) {
    let data_volume = json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": { "namespace": "tenant", "name": name },
        "spec": { "source": { "http": { "url": "https://user:secret@images.example/root.qcow2" } } },
        "status": status,
    });
    infra.apply(&data_volume).unwrap();
}

/// A VM of this name with one volume of this source, which KubeVirt does not start.
fn vm(infra: &ApiServer, name: &str, printable: &str, source: Value) {
    let mut volume = source;
    volume["name"] = "root".into();
    let vm = cluster::vm("tenant", name)
        .with("/spec/template/spec/volumes", json!([volume]))
        .with("/status/printableStatus", printable)
        .with("/status/ready", false);
    infra.apply(&vm).unwrap();
}

fn of_claim(name: &str) -> Value {
    json!({ "persistentVolumeClaim": { "claimName": name } })
}

fn of_data_volume(name: &str) -> Value {
    json!({ "dataVolume": { "name": name } })
}

/// Waits until the health of a VM has the cause storage, this reason, and this part of its message;
/// returns it.
fn until(collector: &Collector, vm: &str, reason: &str, part: &str) -> Value {
    wait::eventually(WAIT_TIMEOUT, part, || {
        let detail = collector.json(&format!("/api/v1/vms/tenant/{vm}"))?;
        let health = detail["health"].clone();
        let message = health["message"].as_str().unwrap_or_default();
        ensure!(
            health["cause"] == "storage" && health["reason"] == reason && message.contains(part),
            "{health:#}"
        );
        Ok(health)
    })
    .unwrap()
}

/// What `virtfleetctl why` says.
fn why(collector: &Collector, vm: &str) -> String {
    let ctl = Launch::new(bins::ctl().unwrap()).env("VIRTFLEET_SERVER", format!("http://{}", collector.api));
    let (_, said) = ctl
        .args(["why", &format!("tenant/{vm}")])
        .said(WAIT_TIMEOUT)
        .unwrap();
    said
}

#[test]
fn a_vm_that_waits_for_its_volume_says_for_which_one_tier3() {
    let test = "a_vm_that_waits_for_its_volume_says_for_which_one_tier3";
    let Some(_) = skip::need(3, test, parts::kube_assets()).unwrap() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let infra = live::infra(root).unwrap();
    infra.namespace("tenant").unwrap();
    apply_shipped(&infra, "infra/namespace.yaml");
    apply_shipped(&infra, "infra/rbac.yaml");
    let account = infra.service_account("virtfleet", "virtfleet-collector").unwrap();
    claim(&infra, "pending", "Pending");
    claim(&infra, "lost", "Lost");
    claim(&infra, "of-stopped", "Pending");
    vm(&infra, "pending", "WaitingForVolumeBinding", of_claim("pending"));
    vm(&infra, "lost", "WaitingForVolumeBinding", of_claim("lost"));
    vm(&infra, "missing", "ErrorPvcNotFound", of_claim("nowhere"));
    vm(&infra, "stopped", "Stopped", of_claim("of-stopped"));
    vm(&infra, "no-cdi", "Provisioning", of_data_volume("no-cdi"));
    claim(&infra, "no-cdi", "Bound");
    // An invalid name must not become a part of a request.
    vm(
        &infra,
        "hostile",
        "Provisioning",
        of_claim("../secrets/virtfleet-ca"),
    );
    let inventory = live::settings(root, &infra.kubeconfig(&account), "").unwrap();
    let election = "leaderElection: { namespace: virtfleet, service: virtfleet-collector-leader }\n";
    let collector = Collector::start_with(&root.join("collector"), &inventory, election).unwrap();
    collector.until_ready().unwrap();

    let pending = until(
        &collector,
        "pending",
        "PvcPending",
        "PersistentVolumeClaim pending, which is Pending",
    );
    assert_eq!(pending["next"], "kubectl -n tenant describe pvc pending");
    let lost = until(&collector, "lost", "PvcLost", "PersistentVolumeClaim lost");
    assert_eq!(lost["verdict"], "Critical", "{lost:#}");
    until(
        &collector,
        "missing",
        "PvcNotFound",
        "PersistentVolumeClaim nowhere of the VM does not exist",
    );
    until(
        &collector,
        "no-cdi",
        "VolumesProvisioning",
        "so CDI is not installed",
    );
    until(&collector, "hostile", "VolumesProvisioning", "a DataVolume");
    names_data_volumes(&infra, &collector);
    names_a_lost_claim_of_a_vm_that_runs(&infra, &collector);
    names_missing_rights(&infra, &collector);
    reads_only_what_is_awaited(&infra);
}

/// With CDI: an import with its progress, and one that has failed, up to GuestHealth.
fn names_data_volumes(infra: &ApiServer, collector: &Collector) {
    infra.install(&[definition()]).unwrap();
    let importing = json!({ "phase": "ImportInProgress", "progress": "40.00%" });
    data_volume(infra, "importing", &importing);
    claim(infra, "importing", "Bound");
    let error = "Unable to connect to http data source: expected status code 200, got 404";
    let failed = json!({
        "phase": "ImportInProgress", "progress": "N/A",
        "conditions": [{ "type": "Running", "status": "False", "reason": "Error", "message": error }],
    });
    data_volume(infra, "failed", &failed);
    claim(infra, "failed", "Bound");
    vm(infra, "importing", "Provisioning", of_data_volume("importing"));
    vm(infra, "failed", "DataVolumeError", of_data_volume("failed"));
    let part = "DataVolume importing, which is ImportInProgress at 40.00%";
    until(collector, "importing", "VolumesProvisioning", part);
    until(collector, "failed", "DataVolumeError", error);
    let said = why(collector, "importing");
    let next = "kubectl -n tenant describe datavolume importing";
    for part in [part, "VolumesProvisioning", "storage", next] {
        assert!(said.contains(part), "{part} is missing in {said}");
    }
    let said = why(collector, "failed");
    for part in [
        error,
        "tenant/failed is Critical",
        "kubectl -n tenant describe datavolume failed",
    ] {
        assert!(said.contains(part), "{part} is missing in {said}");
    }
    assert!(!said.contains("secret"), "{said}");
    until_guest_health(infra, "failed", error).unwrap();
    until_guest_health(
        infra,
        "importing",
        "DataVolume importing, which is ImportInProgress",
    )
    .unwrap();
}

fn until_guest_health(infra: &ApiServer, name: &str, part: &str) -> Result<()> {
    let path = format!("/apis/virtfleet.io/v1alpha1/namespaces/tenant/guesthealths/{name}");
    wait::eventually(WAIT_TIMEOUT, "GuestHealth", || {
        let status = infra.admin().get(&path)?.ok()?["status"].clone();
        let message = status["message"].as_str().unwrap_or_default();
        ensure!(
            status["cause"] == "storage" && message.contains(part),
            "{status:#}"
        );
        ensure!(
            !message.contains("40.00%"),
            "the number would rewrite the object: {message}"
        );
        Ok(())
    })
}

/// Nothing but its claim says that the volume of a VM that runs is gone.
fn names_a_lost_claim_of_a_vm_that_runs(infra: &ApiServer, collector: &Collector) {
    let volume = json!({ "name": "root", "persistentVolumeClaim": { "claimName": "lost" } });
    let running = cluster::vmi("tenant", "running")
        .phase("Running")
        .with("/spec/volumes", json!([volume]));
    infra.apply(&running).unwrap();
    wait::eventually(WAIT_TIMEOUT, "the lost claim is named", || {
        let detail = collector.json("/api/v1/vms/tenant/running")?;
        let conditions = detail["conditions"].as_array().cloned().unwrap_or_default();
        let disks = conditions.into_iter().find(|one| one["type"] == "DisksReady");
        let disks = disks.unwrap_or_default();
        let message = disks["message"].as_str().unwrap_or_default();
        ensure!(
            disks["reason"] == "PvcLost" && message.contains("PersistentVolumeClaim lost"),
            "{disks:#}"
        );
        Ok(())
    })
    .unwrap();
}

/// Without the rights, KubeVirt's word counts, and the message says what grants them.
fn names_missing_rights(infra: &ApiServer, collector: &Collector) {
    let mut role = infra.admin().get(ROLE).unwrap().ok().unwrap();
    let rules = role["rules"].as_array_mut().unwrap();
    let names = |rule: &Value, name: &str| {
        rule["resources"]
            .as_array()
            .is_some_and(|all| all.contains(&name.into()))
    };
    rules.retain(|rule| !names(rule, "persistentvolumeclaims") && !names(rule, "datavolumes"));
    infra.admin().put(ROLE, &role).unwrap().ok().unwrap();
    // The API server takes a moment to use it; a VM that is new is read at once.
    vm(infra, "denied", "WaitingForVolumeBinding", of_claim("pending"));
    let gap = "the VM waits for a PersistentVolumeClaim, which is not bound; the collector may not get \
               persistentvolumeclaims: kubectl apply -f packaging/collector/kubernetes/infra/rbac.yaml";
    let health = until(collector, "denied", "PvcPending", gap);
    assert_eq!(health["verdict"], "Unknown", "{health:#}");
    // Its sentence begins with a capital letter.
    let said = why(collector, "denied");
    assert!(said.contains(gap.trim_start_matches("the ")), "{said}");
    apply_shipped(infra, "infra/rbac.yaml");
    until(
        collector,
        "denied",
        "PvcPending",
        "PersistentVolumeClaim pending, which is Pending",
    );
}

/// Each request was for an object of a VM that waits, by its name.
fn reads_only_what_is_awaited(infra: &ApiServer) {
    let entries = infra.audit().unwrap();
    let volumes = entries.iter().filter(|entry| {
        let is_volume = ["persistentvolumeclaims", "datavolumes"].contains(&entry.resource.as_str());
        is_volume && entry.user.contains("virtfleet-collector")
    });
    let mut count = 0;
    for entry in volumes {
        count += 1;
        assert_eq!(entry.verb, "get", "{entry:?}");
        assert_ne!(
            entry.name.as_str(),
            "of-stopped",
            "a VM that is stopped waits for nothing: {entry:?}"
        );
    }
    assert!(count > 0, "nothing was read");
    let is_hostile = |uri: &str| uri.contains("/tenant/") && uri.contains("secrets");
    assert!(
        !entries.iter().any(|entry| is_hostile(&entry.uri)),
        "a name became a path"
    );
}
