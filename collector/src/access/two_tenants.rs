//! A fleet of two tenants that share infra nodes and values that should be unique, for tests.
//!
//! Every name of the tenant beta contains `beta`, and its other values begin with those of
//! [`OF_BETA`]. Every name of the infra cluster begins with one of [`OF_INFRA`].

use std::{fmt::Write as _, path::Path, sync::Arc};

use jiff::Timestamp;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use virtfleet_collector_core::{
    dial::{DEFAULT_ALLOW, DialRules},
    labels::plan::plan,
    pull_result::{Answer, Failure, FailureClass, MetricsSummary, PullResult},
    report::KeptReport,
};
use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::VmKey,
};

use super::{AccessControl, AccessMetrics, StaticTokens};
use crate::{
    config::AccessSettings,
    fleet::{Fleet, FleetRead as _},
    inventory::folder::reader::FolderState,
    labels::{LabelStatus, LabelStatusStore},
};

/// What no answer for the tenant alpha may contain.
pub(crate) const OF_BETA: [&str; 4] = ["beta", "10.66.", "02:be:7a", "be7abe7a"];
/// Beginnings of names of the infra cluster.
pub(crate) const OF_INFRA: [&str; 4] = ["hx-", "zx-", "rgx-", "rkx-"];
/// A firmware UUID of two VMs.
const SHARED_UUID: &str = "5d307ca9-b3ef-428c-8861-06e72d69f223";

/// The firmware UUID of the second VM of a tenant.
fn second_uuid(tenant: &str) -> &'static str {
    if tenant == "alpha" {
        "a1fa0000-0000-4000-8000-000000000002"
    } else {
        "be7abe7a-0000-4000-8000-000000000002"
    }
}

/// Token of alpha, by namespace.
pub(crate) const ALPHA: &str = "token-of-alpha";
/// Token of alpha, by user cluster.
pub(crate) const ALPHA_CLUSTER: &str = "token-of-the-cluster-of-alpha";
/// Token of an admin.
pub(crate) const ADMIN: &str = "token-of-an-admin";

/// The whole fleet, with or without the tenant beta.
pub(crate) fn fleet(with_beta: bool) -> Arc<Fleet> {
    let rules = DialRules::new(DEFAULT_ALLOW.to_vec(), Vec::new(), 10911);
    let fleet = Arc::new(Fleet::new(rules, || Timestamp::UNIX_EPOCH));
    let mut folder = FolderState::default();
    let mut write = |path: &str, objects: &[Value]| {
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        for event in folder.update(Path::new(path), Some(&list.to_string())) {
            fleet.apply(event);
        }
    };
    fleet.apply(virtfleet_collector_core::facts::InventoryEvent::Init);
    write(
        "infra/nodes.json",
        &[host("shared"), host("alpha"), host("beta-only")],
    );
    write("policies/racks.json", &[policy()]);
    write("infra/alpha.json", &alpha_vms());
    write("clusters/uc-alpha/all.json", &user_cluster("alpha"));
    if with_beta {
        write("infra/beta.json", &beta_vms());
        write("clusters/uc-beta/all.json", &user_cluster("beta"));
    }
    fleet.apply(virtfleet_collector_core::facts::InventoryEvent::Synced);
    pulls(&fleet, "alpha");
    if with_beta {
        pulls(&fleet, "beta");
        let broken = |cluster: &str| {
            let path = format!("clusters/{cluster}/broken.yaml");
            let message = format!("{path}: the key \"beta\" occurs twice");
            Finding::new(
                "manifest-broken",
                Severity::Critical,
                ("Manifest", &path),
                "BrokenFile",
                message,
            )
        };
        let unreadable = broken("ns").with("namespace", "ns-beta");
        let found = vec![broken("uc-beta").with("cluster", "uc-beta"), unreadable];
        fleet.change(|index| index.set_inventory_findings(found));
    }
    fleet
}

/// The status of all labels, as the leader stores it.
pub(crate) fn label_statuses(fleet: &Fleet) -> Arc<LabelStatusStore> {
    let store = Arc::<LabelStatusStore>::default();
    for input in fleet.label_inputs() {
        let status = LabelStatus {
            cluster: input.cluster.clone(),
            node: input.node.clone(),
            infra_node: input.host.as_ref().map(|host| host.name.clone()),
            plan: plan(&input, None),
            planned_at: String::new(),
            written_at: None,
            error: Some("the Node of hx-shared was not written".to_owned()),
            contested: std::collections::BTreeSet::new(),
            contested_lately: std::collections::BTreeSet::new(),
            by_leader: true,
        };
        store.put(&input.vm, status);
    }
    store
}

/// Access by the tokens above.
pub(crate) fn access(redact: bool) -> Arc<AccessControl> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    let lines = [
        (ALPHA, "alpha,namespace:ns-alpha"),
        (ALPHA_CLUSTER, "alpha-cluster,cluster:uc-alpha"),
        (ADMIN, "root,admin"),
    ];
    let lines = lines.map(|(token, rest)| format!("sha256:{},{rest}", sha256(token)));
    crate::regular_file::write_private(&file, lines.join("\n").as_bytes()).unwrap();
    // The file goes at the end of this function: the next look for a change of it never comes.
    let read_at = std::time::Instant::now() + std::time::Duration::from_hours(1);
    let tokens = StaticTokens::open(&file, read_at).unwrap();
    let hash = redact.then(|| super::keyed_hash(None).unwrap());
    let settings = AccessSettings::default();
    let access = AccessControl::new(&settings, Some(tokens), None, hash, AccessMetrics::default());
    Arc::new(access.unwrap())
}

pub(crate) fn sha256(text: &str) -> String {
    let mut digits = String::new();
    for byte in digest(&SHA256, text.as_bytes()).as_ref() {
        write!(digits, "{byte:02x}").unwrap();
    }
    digits
}

fn host(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": format!("hx-{name}"), "uid": format!("hx-uid-{name}"), "labels": {
            "kubernetes.io/hostname": format!("hx-{name}"), "kubernetes.io/os": "linux",
            "topology.kubernetes.io/zone": format!("zx-{name}"), "topology.kubernetes.io/region": "rgx-1",
            "example.com/rack": format!("rkx-{name}"),
        } },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
    })
}

/// Selects both user clusters, and names the other one in its selector.
fn policy() -> Value {
    json!({
        "apiVersion": "virtfleet.io/v1alpha1", "kind": "LabelPropagation", "metadata": { "name": "racks" },
        "spec": {
            "clusterSelector": { "matchExpressions": [
                { "key": "team", "operator": "In", "values": ["alpha", "beta"] },
            ] },
            "labels": [
                { "key": "example.com/rack", "mode": "Follow" },
                { "key": "topology.kubernetes.io/zone", "mode": "Follow" },
            ],
        },
    })
}

struct TestVm<'a> {
    tenant: &'a str,
    name: &'a str,
    host: &'a str,
    address: &'a str,
    uuid: &'a str,
    labels: Value,
}

impl TestVm<'_> {
    fn objects(&self) -> [Value; 2] {
        let Self {
            tenant,
            name,
            host,
            address,
            uuid,
            labels,
        } = self;
        let (namespace, uid) = (format!("ns-{tenant}"), format!("uid-{name}"));
        let mac = if *tenant == "beta" {
            "02:be:7a:00:00:01"
        } else {
            "02:00:00:00:00:01"
        };
        let vmi = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": { "namespace": namespace, "name": name, "uid": uid, "labels": labels },
            "spec": { "domain": { "firmware": { "uuid": uuid }, "devices": {} } },
            "status": {
                "phase": "Running", "nodeName": format!("hx-{host}"),
                "interfaces": [{ "name": "default", "mac": mac, "ipAddress": address, "infoSource": "domain" }],
                "migrationState": { "sourceNode": "hx-old", "targetNode": format!("hx-{host}"), "completed": true },
            },
        });
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "namespace": namespace, "name": format!("virt-launcher-{name}"), "labels": { "kubevirt.io": "virt-launcher" },
                "ownerReferences": [{
                    "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": name, "uid": uid, "controller": true,
                }],
            },
            "spec": { "nodeName": format!("hx-{host}") },
            "status": { "phase": "Running", "podIP": address, "podIPs": [{ "ip": address }] },
        });
        [vmi, pod]
    }
}

fn alpha_vms() -> Vec<Value> {
    let vm = |name, host, address, uuid, labels| TestVm {
        tenant: "alpha",
        name,
        host,
        address,
        uuid,
        labels,
    };
    let ours = json!({ "team": "alpha" });
    let vms = [
        vm("vm-alpha-1", "shared", "10.1.0.1", SHARED_UUID, ours.clone()),
        vm("vm-alpha-2", "alpha", "10.1.0.2", second_uuid("alpha"), ours),
        // Names a user cluster that beta may have.
        vm(
            "vm-alpha-3",
            "gone",
            "10.1.0.3",
            "a1fa0000-0000-4000-8000-000000000003",
            json!({ "cluster.x-k8s.io/cluster-name": "uc-ghost" }),
        ),
    ];
    vms.iter().flat_map(TestVm::objects).collect()
}

fn beta_vms() -> Vec<Value> {
    let vm = |name, host, address, uuid, labels| TestVm {
        tenant: "beta",
        name,
        host,
        address,
        uuid,
        labels,
    };
    let theirs = json!({ "team": "beta" });
    let ghost = json!({ "cluster.x-k8s.io/cluster-name": "uc-ghost" });
    let vms = [
        vm("vm-beta-1", "shared", "10.66.0.1", SHARED_UUID, theirs.clone()),
        vm("vm-beta-2", "beta-only", "10.66.0.2", second_uuid("beta"), theirs),
        vm(
            "vm-beta-3",
            "shared",
            "10.66.0.3",
            "be7abe7a-0000-4000-8000-000000000003",
            ghost,
        ),
    ];
    vms.iter().flat_map(TestVm::objects).collect()
}

/// A `UserCluster` that selects all VMs of a tenant that have its label, and two Nodes.
fn user_cluster(tenant: &str) -> Vec<Value> {
    let node = |number: u8| {
        let host = if number == 1 {
            "shared".to_owned()
        } else {
            format!("{tenant}-old")
        };
        let name = format!("vm-{tenant}-{number}");
        let uuid = if number == 1 {
            SHARED_UUID
        } else {
            second_uuid(tenant)
        };
        let owned = json!({ "v": 1, "labels": { "example.com/rack": {
            "value": format!("rkx-{host}"), "infraNodeUid": "hx-uid", "policy": "racks",
        } } });
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": name, "uid": format!("node-uid-{name}"),
                "labels": { "example.com/rack": format!("rkx-{host}"), "topology.kubernetes.io/zone": format!("zx-{host}") },
                "annotations": { "virtfleet.io/owned-labels": owned.to_string() },
            },
            "spec": { "providerID": format!("kubevirt://{name}") },
            "status": {
                "nodeInfo": { "systemUUID": uuid },
                "conditions": [{ "type": "Ready", "status": "True" }],
            },
        })
    };
    let cluster = json!({
        "apiVersion": "virtfleet.io/v1alpha1", "kind": "UserCluster",
        "metadata": { "name": format!("uc-{tenant}"), "labels": { "team": tenant } },
        "spec": { "vmis": { "namespace": format!("ns-{tenant}"), "selector": { "matchLabels": { "team": tenant } } } },
    });
    vec![cluster, node(1), node(2)]
}

/// The first VM answers with a report that names its infra node, and has the boot ID of the other
/// tenant's. Another tenant's agent answers at the address of the second.
fn pulls(fleet: &Fleet, tenant: &str) {
    let key = |number: u8| VmKey {
        namespace: format!("ns-{tenant}").parse().unwrap(),
        name: format!("vm-{tenant}-{number}").parse().unwrap(),
    };
    let sourced = |value: &str| json!({ "value": value, "source": "test" });
    let report = json!({
        "apiVersion": "report.virtfleet.io/v1", "kind": "GuestReport", "bootId": "boot-shared",
        "agent": { "version": "0.1.0" },
        "identity": { "hostname": sourced(&format!("vm-{tenant}-1")) },
        "claims": {
            "infraNode": sourced("hx-claimed"),
            "kubeletLabels": { "topology.kubernetes.io/zone": sourced("zx-claimed") },
        },
        "sections": { "system": { "status": "ok", "ageMs": 1, "truncated": false, "items": [
            { "note": "this guest was on hx-shared in zx-shared" },
        ] } },
        "findings": [{
            "id": "clock", "severity": "warning", "subject": { "kind": "Node", "name": "hx-shared" },
            "reason": "Clock", "message": "the clock of hx-shared differs",
        }],
    });
    let answer = Answer {
        report: Box::new(KeptReport::read(report.to_string().as_bytes()).unwrap()),
        metrics: MetricsSummary::default(),
        counters: virtfleet_collector_core::usage::UsageCounters::default(),
        queues: Box::default(),
        took_ms: 3,
        slow: false,
        certificate: None,
    };
    let address = |number: u8| {
        let net = if tenant == "beta" { "10.66" } else { "10.1" };
        format!("{net}.0.{number}:10911").parse().ok()
    };
    let other = "the certificate at 10.1.0.2:10911 is that of spiffe://d/vmi/ns-beta/vm-beta-1/uid-vm-beta-1";
    let pull = |number, outcome| PullResult {
        vm: key(number),
        at: 1_000,
        address: address(number),
        pushed: false,
        outcome,
    };
    fleet.record_pull(pull(1, Ok(answer)));
    fleet.record_pull(pull(2, Err(Failure::new(FailureClass::WrongVm, other))));
}
