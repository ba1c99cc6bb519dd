//! Objects of an infra cluster and its user clusters, as JSON.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    ops::{Deref, DerefMut},
};

use serde_json::{Value, json};
use virtfleet_wire::ids::Uuid;

use crate::sim::Guest;

/// Builder of an object. It derefs to its JSON, so it can be indexed and passed as a `&Value`.
#[derive(Debug, Clone, PartialEq)]
pub struct Object(pub Value);

impl Deref for Object {
    type Target = Value;
    fn deref(&self) -> &Value {
        &self.0
    }
}

impl DerefMut for Object {
    fn deref_mut(&mut self) -> &mut Value {
        &mut self.0
    }
}

impl Object {
    fn new(version: &str, kind: &str, namespace: Option<&str>, name: &str) -> Self {
        let mut object = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name } });
        if let Some(namespace) = namespace {
            object["metadata"]["namespace"] = namespace.into();
        }
        Self(object)
    }

    /// Sets the value at a JSON pointer of plain fields (`/status/phase`); creates missing objects
    /// on the path.
    #[must_use]
    pub fn with(mut self, pointer: &str, value: impl Into<Value>) -> Self {
        let mut place = &mut self.0;
        for field in pointer.split('/').skip(1) {
            place = &mut place[field];
        }
        *place = value.into();
        self
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["labels"][key] = value.into();
        self
    }

    /// Adds labels.
    #[must_use]
    pub fn labels(self, labels: &[(&str, &str)]) -> Self {
        labels
            .iter()
            .fold(self, |object, (key, value)| object.label(key, value))
    }

    /// Adds an annotation.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["annotations"][key] = value.into();
        self
    }

    /// Sets `status.phase`.
    #[must_use]
    pub fn phase(self, phase: &str) -> Self {
        self.with("/status/phase", phase)
    }

    /// Places a VMI on an infra node: sets `status.nodeName` and the label `kubevirt.io/nodeName`,
    /// which virt-handler writes together.
    #[must_use]
    pub fn on(self, node: &str) -> Self {
        self.with("/status/nodeName", node)
            .label("kubevirt.io/nodeName", node)
    }

    /// Adds an interface to a VMI, in spec and status.
    #[must_use]
    pub fn interface(mut self, name: &str, mac: &str, addresses: &[&str]) -> Self {
        let status = json!({
            "name": name, "mac": mac, "ipAddress": addresses.first(), "ipAddresses": addresses,
            "infoSource": "domain, guest-agent",
        });
        push(&mut self.0["status"]["interfaces"], status);
        push(
            &mut self.0["spec"]["domain"]["devices"]["interfaces"],
            json!({ "name": name, "bridge": {} }),
        );
        let network = if name == "default" {
            json!({ "pod": {} })
        } else {
            json!({ "multus": { "networkName": name } })
        };
        let mut network = network;
        network["name"] = name.into();
        push(&mut self.0["spec"]["networks"], network);
        self
    }

    /// Sets a VMI's `status.migrationState`, e.g. `{"sourceNode": …, "targetNode": …, "completed":
    /// true}`.
    #[must_use]
    pub fn migration_state(self, state: Value) -> Self {
        self.with("/status/migrationState", state)
    }

    /// Adds a condition to the status.
    #[must_use]
    pub fn condition(mut self, kind: &str, status: &str, reason: &str) -> Self {
        let condition = json!({
            "type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        push(&mut self.0["status"]["conditions"], condition);
        self
    }

    /// Sets the controlling owner; `owner` must have a UID from the server.
    #[must_use]
    pub fn owned_by(mut self, owner: &Value) -> Self {
        let reference = json!({
            "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
        });
        push(&mut self.0["metadata"]["ownerReferences"], reference);
        self
    }
}

fn push(list: &mut Value, value: Value) {
    match list {
        Value::Array(list) => list.push(value),
        _ => *list = json!([value]),
    }
}

/// A VirtualMachineInstance that is not scheduled yet: `.on(node).phase("Running").interface(…)`.
pub fn vmi(namespace: &str, name: &str) -> Object {
    Object::new("kubevirt.io/v1", "VirtualMachineInstance", Some(namespace), name)
        .with("/spec/hostname", name)
        .with("/spec/domain/devices", json!({}))
        .with("/spec/domain/firmware/uuid", machine(name).to_string())
        .phase("Pending")
        .label("kubevirt.io/vm", name)
}

/// The UUID of the machine of the VM with this name, of version 4: a random one, as KubeVirt makes
/// them since 1.5.
pub fn machine(name: &str) -> Uuid {
    uuid(name, 4)
}

/// The UUID that KubeVirt before 1.5 makes from the VM's name: VMs of one name share it.
pub fn machine_of_name(name: &str) -> Uuid {
    uuid(name, 5)
}

fn uuid(name: &str, version: u128) -> Uuid {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    let bits = u128::from(hasher.finish()) << 64;
    Uuid::from_u128(bits & !(0xf << 76) | version << 76 | 2 << 62 | 1)
}

/// The running VMI of a guest of a simulated fleet: in the namespace of its cluster, on the infra
/// node `host`.
pub fn vmi_of(guest: &Guest, host: &str) -> Object {
    vmi(&guest.cluster, &guest.name)
        .labels(&[
            ("cluster.x-k8s.io/cluster-name", &guest.cluster),
            ("cluster.x-k8s.io/role", "worker"),
        ])
        .with("/spec/domain/firmware/uuid", guest.firmware.to_string())
        .on(host)
        .phase("Running")
        .interface("default", &guest.mac, &[&guest.address.ip().to_string()])
        .condition("Ready", "True", "")
}

/// The virt-launcher pod of a VMI that has a UID from the server, on the VMI's node, with these
/// addresses.
pub fn launcher(vmi: &Value, addresses: &[&str]) -> Object {
    let text = |pointer: &str| vmi.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    let node = text("/status/nodeName");
    let ips: Vec<_> = addresses.iter().map(|ip| json!({ "ip": ip })).collect();
    let pod = format!("virt-launcher-{name}-{node}");
    Object::new("v1", "Pod", Some(namespace), &pod)
        .label("kubevirt.io", "virt-launcher")
        .label("kubevirt.io/created-by", text("/metadata/uid"))
        .owned_by(vmi)
        .with("/spec/nodeName", node)
        .with(
            "/spec/containers",
            json!([{ "name": "compute", "image": "virt-launcher" }]),
        )
        .with("/status/podIP", addresses.first().copied())
        .with("/status/podIPs", ips)
        .phase("Running")
}

/// A running VirtualMachine.
pub fn vm(namespace: &str, name: &str) -> Object {
    Object::new("kubevirt.io/v1", "VirtualMachine", Some(namespace), name)
        .with("/spec/runStrategy", "Always")
        .with("/spec/template/spec/domain/devices", json!({}))
        .with("/status/printableStatus", "Running")
        .with("/status/ready", true)
}

/// A migration of a VMI: `.phase("Running")`, `.phase("Succeeded")`, `.phase("Failed")`.
pub fn vmim(namespace: &str, name: &str, vmi: &str) -> Object {
    Object::new(
        "kubevirt.io/v1",
        "VirtualMachineInstanceMigration",
        Some(namespace),
        name,
    )
    .with("/spec/vmiName", vmi)
    .phase("Pending")
}

/// A ready node of an infra cluster.
pub fn infra_node(name: &str, labels: &[(&str, &str)]) -> Object {
    Object::new("v1", "Node", None, name)
        .label("kubernetes.io/hostname", name)
        .labels(labels)
        .condition("Ready", "True", "KubeletReady")
}

/// A ready node of a user cluster, with `addresses` as its InternalIPs (two of them: dual-stack)
/// and e.g. the provider id `kubevirt://worker-0`. Its kubelet runs on the [`machine`] of the VM
/// that the provider id names, else of its own name.
pub fn user_node(name: &str, provider_id: &str, addresses: &[&str], labels: &[(&str, &str)]) -> Object {
    let internal = addresses
        .iter()
        .map(|address| json!({ "type": "InternalIP", "address": address }));
    let hostname = json!({ "type": "Hostname", "address": name });
    let vm = provider_id.strip_prefix("kubevirt://").unwrap_or(name);
    infra_node(name, labels)
        .with("/spec/providerID", provider_id)
        .with("/status/nodeInfo/systemUUID", machine(vm).to_string())
        .with(
            "/status/addresses",
            internal.chain([hostname]).collect::<Vec<_>>(),
        )
}
