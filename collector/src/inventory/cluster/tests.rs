mod kept;

use kube::core::ObjectList;
use serde_json::{Value, json};
use virtfleet_collector_core::{
    facts::{Fact, FactKey, InfraNode, InventoryEvent},
    scheduling::{EvictionStrategy, TaintEffect},
};

use super::{
    WatchMetrics,
    failure::WatchFailure,
    kinds::Kind,
    object::Object,
    reflector::ReflectorEvent,
    resource_cache::ResourceCache,
    status_registry::{StatusRegistry, WatchId},
};
use crate::inventory::folder::reader::FolderState;

fn object(value: &Value) -> Object {
    serde_json::from_str(&value.to_string()).unwrap()
}

fn vmi(name: &str, node: &Value) -> Value {
    let devices = json!({
        "disks": [{ "name": "root", "serial": "root", "disk": { "bus": "virtio" }, "cache": "none" }],
        "interfaces": [{ "name": "default", "bridge": {}, "model": "virtio" }],
        "blockMultiQueue": true, "networkInterfaceMultiqueue": true, "rng": {}, "tpm": {}, "autoattachMemBalloon": true,
    });
    let domain = json!({
        "firmware": { "uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223" }, "chassis": { "asset": "kept nowhere" },
        "cpu": { "cores": 2, "model": "host-model", "features": [{ "name": "vmx" }] },
        "memory": { "guest": "2Gi", "hugepages": { "pageSize": "2Mi" } }, "ioThreadsPolicy": "auto",
        "resources": { "requests": { "memory": "1Gi" } }, "devices": devices,
    });
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {
            "namespace": "vms", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "7",
            "labels": { "md": "a" }, "annotations": { "long": "x" }, "deletionTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [
                { "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": name, "uid": "vm-1", "controller": true },
            ],
        },
        "spec": {
            "hostname": "h", "readinessProbe": { "guestAgentPing": {}, "periodSeconds": 10 }, "domain": domain, "dnsPolicy": "None", "dnsConfig": { "nameservers": ["10.0.0.1"] },
            "volumes": [
                { "name": "root", "persistentVolumeClaim": { "claimName": "root" } },
                { "name": "seed", "cloudInitNoCloud": { "userData": "kept nowhere" } },
            ],
            "nodeSelector": { "rack": "r1" }, "affinity": affinity(), "evictionStrategy": "External",
            "tolerations": [{ "key": "gpu", "operator": "Exists", "effect": "NoSchedule" }],
            "topologySpreadConstraints": [
                { "maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {} },
            ],
        },
        "status": {
            "phase": "Running", "nodeName": node, "guestOSInfo": { "prettyName": "Debian", "id": "debian" },
            "interfaces": [
                {
                    "name": "default", "mac": "02:00:00:00:00:01", "ipAddress": "10.0.0.1",
                    "ipAddresses": ["10.0.0.1", "fd00::1"], "infoSource": "domain, guest-agent",
                },
                { "mac": "02:00:00:00:00:02", "ipAddress": "10.9.0.1", "infoSource": "guest-agent" },
            ],
            "conditions": [{ "type": "Paused", "status": "True", "reason": "PausedByUser", "message": "m" }],
            "phaseTransitionTimestamps": [
                { "phase": "Running", "phaseTransitionTimestamp": "2026-01-01T00:00:00Z" },
            ],
            "evacuationNodeName": "host-1", "memory": { "guestCurrent": "2Gi" },
            "currentCPUTopology": { "cores": 2, "sockets": 1, "threads": 1 },
            "volumeStatus": [{ "name": "root", "size": 1000, "phase": "AttachedToNode", "hotplugVolume": {} }],
            "migrationState": {
                "sourceNode": "host-1", "targetNode": "host-2", "completed": true, "failed": true,
                "startTimestamp": "2026-01-01T00:00:00Z", "endTimestamp": "2026-01-01T00:00:09Z", "migrationUid": "u",
                "mode": "PreCopy", "failureReason": "timeout",
            },
        },
    })
}

fn affinity() -> Value {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let expression = json!({ "key": "zone", "operator": "In", "values": ["a"] });
    let field = json!({ "key": "metadata.name", "operator": "NotIn", "values": ["h9"] });
    let node = json!({ "matchExpressions": [expression], "matchFields": [field] });
    let pods = json!({
        "labelSelector": { "matchLabels": { "md": "a" } }, "namespaces": ["vms"], "topologyKey": "zone",
    });
    json!({
        "nodeAffinity": {
            REQUIRED: { "nodeSelectorTerms": [node] }, PREFERRED: [{ "weight": 5, "preference": node }],
        },
        "podAffinity": { PREFERRED: [{ "weight": 7, "podAffinityTerm": pods }] },
        "podAntiAffinity": { REQUIRED: [pods] },
    })
}

fn node(name: &str) -> Value {
    let by_kubelet =
        json!({ "f:metadata": { "f:labels": { ".": {}, "f:a": {} }, "f:annotations": {} }, "f:status": {} });
    let by_kubectl = json!({ "f:metadata": { "f:labels": { "f:topology.kubernetes.io/zone": {} } } });
    let conditions = json!([
        { "type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "PLEG is not healthy",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z" },
        { "type": "DiskPressure", "status": "False", "message": "healthy", "lastHeartbeatTime": "2026-01-01T00:00:00Z" },
    ]);
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name, "uid": "u", "resourceVersion": "9", "labels": { "a": "b", "topology.kubernetes.io/zone": "z" },
            "annotations": { "virtfleet.io/owned-labels": "{}", "other": "x" },
            "managedFields": [
                { "manager": "kubelet", "fieldsV1": by_kubelet },
                { "manager": "kubectl", "fieldsV1": by_kubectl },
            ],
        },
        "spec": {
            "providerID": "kubevirt://vm-1", "unschedulable": true,
            "taints": [{ "key": "node.kubernetes.io/unschedulable", "value": "v", "effect": "NoSchedule" }],
        },
        "status": { "conditions": conditions, "allocatable": { "cpu": "15500m", "memory": "64Gi", "pods": "110", "hugepages-2Mi": "0" }, "images": [{ "names": ["x"] }],
            "nodeInfo": { "systemUUID": "5d307ca9-b3ef-428c-8861-06e72d69f223", "machineID": "x" } },
    })
}

fn every_kind() -> [(Kind, &'static str, Value); 9] {
    let vm = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": { "namespace": "vms", "name": "vm-1", "uid": "u", "labels": { "a": "b" } },
        "spec": {
            "runStrategy": "Halted",
            "template": {
                "metadata": { "labels": { "md": "a" } },
                "spec": {
                    "domain": { "firmware": { "uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223", "serial": "kept nowhere" } },
                    "volumes": [
                        { "name": "root", "dataVolume": { "name": "root" } },
                        { "name": "cloud", "cloudInitNoCloud": { "userData": "kept nowhere" } },
                    ],
                },
            },
        },
        "status": {
            "printableStatus": "Stopped",
            "conditions": [
                { "type": "RestartRequired", "status": "True", "reason": "R", "message": "memory" },
                { "type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z" },
            ],
        },
    });
    let moved = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": { "namespace": "vms", "name": "m", "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": { "vmiName": "vm-1" },
        "status": { "phase": "Running", "migrationState": { "sourceNode": "host-1", "startTimestamp": "2026-01-01T00:00:01Z" } },
    });
    let owners = json!([
        { "apiVersion": "v1", "kind": "Other", "name": "x", "uid": "x", "controller": false },
        {
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "vm-1", "uid": "uid-vm-1",
            "controller": true, "blockOwnerDeletion": true,
        },
    ]);
    let launcher = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": "vms", "name": "virt-launcher-vm-1-abcde", "uid": "p", "labels": { "kubevirt.io": "virt-launcher" },
            "annotations": { "kubevirt.io/ignitiondata": "a token" }, "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": owners,
        },
        "status": { "phase": "Running", "startTime": "2026-01-01T00:00:01Z", "podIP": "10.0.0.1", "podIPs": [{ "ip": "10.0.0.1" }, { "ip": "fd00::1" }] },
        "spec": { "nodeName": "host-2", "containers": [{
            "name": "compute", "env": [{ "name": "X", "value": "y" }], "resources": { "requests": { "cpu": "400m", "memory": "2Gi" } },
        }], "initContainers": [{ "name": "init", "restartPolicy": "Always" }] },
    });
    let selector = json!({ "matchExpressions": [{ "key": "k", "operator": "In", "values": ["v"] }] });
    let user_cluster = json!({
        "apiVersion": "virtfleet.io/v1alpha1", "kind": "UserCluster",
        "metadata": { "name": "prod", "labels": { "a": "b" } },
        "spec": {
            "vmis": { "namespace": "vms", "selector": selector }, "suspend": true,
            "relay": { "address": "relay.vms.svc:10915" },
            "kubeconfig": { "secret": { "namespace": "s", "name": "n" } },
        },
    });
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": "vms", "annotations": { "virtfleet.io/ignore": "true", "other": "x" } },
        "spec": { "finalizers": ["kubernetes"] }, "status": { "phase": "Active" },
    });
    let labels = json!([
        { "key": "a", "target": "b", "mode": "FollowIfSafe", "takeover": "Always" }, { "prefix": "rack/" },
    ]);
    let policy = json!({
        "apiVersion": "virtfleet.io/v1alpha1", "kind": "LabelPropagation",
        "metadata": { "name": "zone", "generation": 4 },
        "spec": { "clusterSelector": { "matchLabels": { "a": "b" } }, "dryRun": true, "labels": labels },
    });
    [
        (Kind::Vmi, "infra", vmi("vm-1", &json!("host-2"))),
        (Kind::Vm, "infra", vm),
        (Kind::Move, "infra", moved),
        (Kind::Launcher, "infra", launcher),
        (Kind::InfraNode, "infra", node("host-1")),
        (Kind::Namespace, "infra", namespace),
        (Kind::UserNode, "clusters/prod", node("vm-1")),
        (Kind::UserCluster, "clusters/prod", user_cluster),
        (Kind::Policy, "policies", policy),
    ]
}

/// What is kept of `node`.
fn check_infra_node(node: &InfraNode) {
    assert_eq!(
        node.conditions.get("Ready").unwrap().text(),
        "PLEG is not healthy"
    );
    let pressure = node.conditions.get("DiskPressure").unwrap();
    assert_eq!(
        pressure.message, None,
        "the text of a healthy condition is not kept"
    );
    let taint = &node.taints[0];
    assert_eq!(
        (node.unschedulable, &*taint.key, &*taint.value, taint.effect),
        (
            true,
            "node.kubernetes.io/unschedulable",
            "v",
            TaintEffect::NoSchedule
        )
    );
    let allocatable = node.allocatable.unwrap();
    assert_eq!(
        (allocatable.resources.cpu_milli, allocatable.pods),
        (15_500, Some(110))
    );
}

/// The folder's reader sees whole objects, and the cluster's what `object.rs` keeps of them.
#[test]
fn both_readers_give_the_same_fact() {
    let cluster = "prod".parse().unwrap();
    for (kind, folder, value) in every_kind() {
        let mut state = FolderState::default();
        state.update(format!("{folder}/x.json").as_ref(), Some(&value.to_string()));
        assert_eq!(state.findings(), [], "{kind:?}");
        let by_folder = state.facts().next().cloned().unwrap();
        let mut live = kind.fact(&object(&value), Some(&cluster)).unwrap();
        assert_eq!(kind.key(&object(&value), Some(&cluster)), Some(live.key()));
        if let Fact::UserNode(node) = &mut live {
            assert_eq!(node.resource_version.take().as_deref(), Some("9"));
            assert_eq!(node.reported_ms.take(), Some(1_767_225_600_000));
            assert_eq!(Vec::from_iter(&node.kubelet_labels), ["a"]);
            assert_eq!(node.owned.as_deref(), Some("{}"));
            assert!(node.system_uuid.is_some() && node.taints.len() == 1);
        }
        if let Fact::InfraNode(node) = &mut live {
            assert_eq!(node.reported_ms.take(), Some(1_767_225_600_000));
        }
        assert!(!format!("{:?}", object(&value)).contains("kept nowhere"));
        if let Fact::Vmi(vmi) = &live {
            let paused = vmi.conditions.get("Paused").unwrap();
            assert_eq!(
                (paused.reason.as_deref(), paused.text()),
                (Some("PausedByUser"), "m")
            );
            assert!(vmi.evacuation_node.is_some());
            let spec = vmi.spec.as_deref().unwrap();
            assert_eq!(
                (spec.cpu.current_vcpus, spec.disks[0].bytes),
                (Some(2), Some(1000))
            );
            assert!(spec.disks[0].is_pending && spec.interfaces[0].is_tap && spec.dns.is_some());
            assert!(spec.pings_guest);
            assert_eq!(vmi.volumes[0].claim.as_str(), "root");
            assert_eq!(vmi.plugging[0].claim.as_ref(), Some(&vmi.volumes[0].claim));
            let rules = &vmi.scheduling;
            assert_eq!(
                (&*rules.node_selector[0].0, rules.eviction),
                ("rack", EvictionStrategy::External)
            );
            assert_eq!(
                (rules.requests.cpu_milli, rules.requests.memory_bytes),
                (200, 1 << 30)
            );
            assert_eq!((rules.vcpus, rules.is_cut), (Some(2), false));
            let counts = (
                rules.required_apart.len(),
                rules.preferred_near.len(),
                rules.tolerations.len(),
            );
            assert_eq!(counts, (1, 1, 1));
            assert_eq!(rules.required_nodes.as_ref().unwrap()[0].0.len(), 2);
            assert!(!rules.spread[0].is_required && rules.spread[0].max_skew == 2);
            let migration = vmi.migration.as_ref().unwrap();
            let texts = (migration.mode.as_deref(), migration.failure_reason.as_deref());
            assert_eq!(texts, (Some("PreCopy"), Some("timeout")));
            let times = (vmi.running_since_ms, migration.start_ms, migration.end_ms);
            let new_year = 1_767_225_600_000;
            assert_eq!(times, (Some(new_year), Some(new_year), Some(new_year + 9_000)));
        }
        if let Fact::Vm(vm) = &live {
            assert_eq!(vm.conditions.get("RestartRequired").unwrap().text(), "memory");
            assert!(vm.is_halted() && vm.volumes[0].is_data_volume && vm.firmware_uuid.is_some());
        }
        if let Fact::InfraNode(node) = &live {
            check_infra_node(node);
        }
        if let Fact::LauncherPod(pod) = &live {
            let described = (
                pod.vm.as_ref().unwrap().as_str(),
                pod.addresses.len(),
                pod.running,
            );
            assert_eq!(described, ("vm-1", 2, true));
            assert_eq!(pod.requests.unwrap().memory_bytes, 2 << 30);
            let kept = format!("{:?}", object(&value));
            assert!(!kept.contains("token") && !kept.contains("compute"), "{kept}");
        }
        assert!(!matches!(&live, Fact::Namespace(one) if !one.is_ignored));
        assert_eq!(live, by_folder, "{kind:?}");
    }
}

#[test]
fn taints_count_for_the_limit_of_a_user_cluster() {
    let taint = |n| json!({ "key": format!("t-{n}"), "value": "x".repeat(2000), "effect": "NoSchedule" });
    let mut value = node("vm-1");
    value["spec"]["taints"] = (0..8).map(taint).collect();
    let cache = ResourceCache::new(Kind::UserNode, Some("prod".parse().unwrap()));
    let listed = ReflectorEvent::Listed(object(&value));
    let why = cache.exceeds(&listed, 1);
    assert!(why.is_some_and(|why| why.contains("taints of more than 8192 bytes")));
    assert_eq!(cache.exceeds(&listed, 4), None);
}

#[test]
fn a_watch_of_one_namespace_selects_it_by_name() {
    let vms = "vms".parse().unwrap();
    let fields = |kind: Kind| kind.fields(Some(&vms));
    assert_eq!(fields(Kind::Namespace).as_deref(), Some("metadata.name=vms"));
    assert_eq!(Kind::Namespace.fields(None), None);
    assert_eq!(fields(Kind::Vmi), None, "it is watched in the namespace");
}

/// The index tells by it whether migrations are followed.
#[test]
fn the_kind_that_cannot_be_watched_is_evidence() {
    let (found, findings) = tokio::sync::watch::channel(Vec::new());
    let id = WatchId {
        kind: Kind::Namespace,
        cluster: None,
        namespace: Some("vms".parse().unwrap()),
    };
    let registry = StatusRegistry::new(std::slice::from_ref(&id), found, WatchMetrics::default());
    for code in [403, 404] {
        let failure = WatchFailure {
            code: Some(code),
            message: "m".to_owned(),
            count: 1,
            over_limit: false,
        };
        registry.failed(&id, &failure);
        let known = findings.borrow().clone();
        assert_eq!(known[0].id, "inventory-kind-absent", "{code}");
        assert_eq!(known[0].evidence["kind"], "Namespace", "{code}");
    }
}

/// KubeVirt reads a guest's Ignition config, including tokens, from an annotation of the VMI and
/// copies it to its pod.
#[test]
fn an_ignition_config_is_never_kept_or_shown() {
    const SECRET: &str = "hunter2";
    let cluster = "prod".parse().unwrap();
    let config =
        json!({ "ignition": { "version": "3.4.0" }, "storage": { "files": [{ "contents": SECRET }] } });
    for (kind, folder, mut value) in every_kind() {
        for text in [json!(config.to_string()), config.clone(), json!([SECRET])] {
            let annotations = &mut value["metadata"]["annotations"];
            annotations["kubevirt.io/ignitiondata"] = text.clone();
            annotations["kubectl.kubernetes.io/last-applied-configuration"] = text;
            let live = object(&value);
            assert!(!format!("{live:?}").contains(SECRET), "{kind:?}");
            let fact = kind.fact(&live, Some(&cluster)).unwrap();
            assert!(!format!("{fact:?}").contains(SECRET), "{kind:?}");
            let mut state = FolderState::default();
            state.update(format!("{folder}/x.json").as_ref(), Some(&value.to_string()));
            assert_eq!(state.findings(), [], "{kind:?}");
            assert!(!format!("{state:?}").contains(SECRET), "{kind:?}");
        }
    }
}

#[test]
fn one_malformed_object_hides_no_other() {
    let list = json!({
        "kind": "VirtualMachineInstanceList", "apiVersion": "kubevirt.io/v1", "metadata": { "resourceVersion": "7" },
        "items": [vmi("a", &json!({})), vmi("b", &json!("host-1")), [1], null],
    });
    let list: ObjectList<Object> = serde_json::from_str(&list.to_string()).unwrap();
    let facts: Vec<_> = list.items.iter().map(|one| Kind::Vmi.fact(one, None)).collect();
    assert_eq!(facts.len(), 4);
    assert!(facts[0].as_ref().unwrap_err().contains("status.nodeName"));
    facts[1].as_ref().unwrap();
    facts[2].as_ref().unwrap_err();
    facts[3].as_ref().unwrap_err();
}

fn deletes(events: &[InventoryEvent]) -> Vec<String> {
    let names = events.iter().filter_map(|event| match event {
        InventoryEvent::Delete(FactKey::Vmi(key)) => Some(key.name.to_string()),
        _ => None,
    });
    names.collect()
}

#[test]
fn only_a_complete_list_or_a_deletion_removes_objects() {
    let good = |name: &str| object(&vmi(name, &json!("host-1")));
    let odd = |name: &str| object(&vmi(name, &json!("no node")));
    let mut cache = ResourceCache::new(Kind::Vmi, None);
    let mut say = |described: ReflectorEvent<Object>| cache.take(&described);
    say(ReflectorEvent::ListStarted);
    for name in ["a", "b", "c"] {
        assert_eq!(say(ReflectorEvent::Listed(good(name))).len(), 1);
    }
    assert_eq!(say(ReflectorEvent::Complete), []);
    // A list that fails half-way, repeatedly, deletes nothing.
    for _ in 0..3 {
        say(ReflectorEvent::ListStarted);
        say(ReflectorEvent::Listed(good("a")));
        let failed = ReflectorEvent::Failed(WatchFailure {
            code: Some(500),
            message: "x".to_owned(),
            count: 1,
            over_limit: false,
        });
        assert_eq!(say(failed), []);
    }
    // An unreadable object still exists.
    say(ReflectorEvent::ListStarted);
    say(ReflectorEvent::Listed(good("a")));
    assert_eq!(say(ReflectorEvent::Listed(odd("b"))), []);
    assert_eq!(deletes(&say(ReflectorEvent::Complete)), ["c"]);
    assert_eq!(cache.unreadable().len(), 1);
    // Deleted by the watch; a second deletion has no effect.
    assert_eq!(deletes(&cache.take(&ReflectorEvent::Deleted(odd("b")))), ["b"]);
    assert_eq!(cache.take(&ReflectorEvent::Deleted(good("b"))), []);
    assert_eq!((cache.unreadable().len(), cache.len()), (0, 1));
    assert_eq!(deletes(&cache.drain()), ["a"]);
}
