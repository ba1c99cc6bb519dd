//! Tests of the patch: each is applied by json-patch, as an API server would.

mod properties;
mod table;

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash as _, Hasher as _},
};

use serde_json::{Value, json};

use super::*;
use crate::{
    payload::{Outside, build},
    spec,
};

const AUTHORITY: &str = "-----BEGIN CERTIFICATE-----\nfleet\n-----END CERTIFICATE-----\n";

/// The items of an image, with further keys of the Delivery.
fn items(image: &str, more: &str) -> AgentItems {
    let text = format!(
        "apiVersion: virtfleet.io/v1alpha1\nkind: Delivery\ntls: {{enrolment: true, clientCA: ca.crt}}\n{more}"
    );
    let checked = spec::read("d.yaml", &text).unwrap();
    let mut outside = Outside {
        read: &mut |name| match name {
            "ca.crt" => Ok(AUTHORITY.into()),
            _ => Ok(vec![0xff, 0xfe]),
        },
        sha256: &mut |_| Err("not used".to_owned()),
        fleet_ca: &mut || Err("not used".to_owned()),
    };
    let payload = build(&checked, &mut outside).unwrap();
    AgentItems::new(&payload, &AgentImage::new(image, PATH_IN_IMAGE).unwrap())
}

fn first() -> AgentItems {
    items("registry.example.org/agent:1", "")
}

/// Another image, other settings, and a file more.
fn second() -> AgentItems {
    items(
        "registry.example.org/agent:2",
        "settings: {metrics: {profile: default}}\nfiles: [{path: /etc/virtfleet/extra, content: x}]\n",
    )
}

fn digest(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// An object as gardenlet writes it.
fn object(purpose: &str) -> Value {
    json!({
        "apiVersion": "extensions.gardener.cloud/v1alpha1",
        "kind": "OperatingSystemConfig",
        "metadata": {
            "name": "gardener-node-agent-pool-1-77ac3-original",
            "namespace": "shoot--team--prod",
            "annotations": {"gardener.cloud/operation": "reconcile"},
        },
        "spec": {
            "type": "flatcar",
            "purpose": purpose,
            "units": [{"name": "kubelet.service", "content": "[Service]\n", "filePaths": ["/var/lib/kubelet/config"]}],
            "files": [{"path": "/var/lib/kubelet/config", "permissions": 420, "content": {"inline": {"encoding": "b64", "data": "eA=="}}}],
        },
    })
}

/// The object after the patch.
fn applied(object: &Value, plan: &OscPlan) -> Value {
    let patch: json_patch::Patch = serde_json::from_value(Value::Array(plan.patch.clone())).unwrap();
    let mut result = object.clone();
    json_patch::patch(&mut result, &patch).unwrap();
    result
}

/// The object after its admission.
fn admitted(object: &Value, items: &AgentItems) -> Value {
    applied(object, &plan(object, items, &digest))
}

fn ignoring(mut object: Value) -> Value {
    object["metadata"]["annotations"][IGNORE_ANNOTATION] = "true".into();
    object
}
