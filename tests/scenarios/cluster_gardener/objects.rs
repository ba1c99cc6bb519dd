//! Gardener's kind and its objects on a seed, as far as the webhook concerns them.

use serde_json::{Value, json};

/// The namespace of a shoot.
pub(super) const NAMESPACE: &str = "shoot--team--prod";
/// Path of the objects in it.
pub(super) const COLLECTION: &str =
    "/apis/extensions.gardener.cloud/v1alpha1/namespaces/shoot--team--prod/operatingsystemconfigs";

/// The definition of the kind: fields of Gardener's
/// `pkg/apis/extensions/v1alpha1/types_operatingsystemconfig.go`. Unknown fields of files and units
/// are dropped by the API server.
pub(super) fn definition() -> Value {
    let text = || json!({"type": "string"});
    let object = |fields: Value, required: &[&str]| json!({"type": "object", "properties": fields, "required": required});
    let list = |items: Value| json!({"type": "array", "items": items});
    let open = || json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let content = object(
        json!({
            "inline": object(json!({"encoding": text(), "data": text()}), &["data", "encoding"]),
            "secretRef": object(json!({"name": text(), "dataKey": text()}), &["dataKey", "name"]),
            "imageRef": object(json!({"image": text(), "filePathInImage": text()}), &["filePathInImage", "image"]),
            "transmitUnencoded": {"type": "boolean"},
        }),
        &[],
    );
    let file = object(
        json!({
            "path": text(), "permissions": {"type": "integer", "format": "int32"}, "content": content,
            "hostName": text(),
        }),
        &["content", "path"],
    );
    let drop_in = object(json!({"name": text(), "content": text()}), &["content", "name"]);
    let unit = object(
        json!({
            "name": text(), "command": text(), "enable": {"type": "boolean"}, "content": text(),
            "dropIns": list(drop_in), "filePaths": list(text()),
        }),
        &["name"],
    );
    let spec = object(
        json!({
            "type": text(), "purpose": text(), "criConfig": open(), "files": list(file), "units": list(unit),
        }),
        &["purpose", "type"],
    );
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "operatingsystemconfigs.extensions.gardener.cloud"},
        "spec": {
            "group": "extensions.gardener.cloud",
            "scope": "Namespaced",
            "names": {
                "kind": "OperatingSystemConfig", "listKind": "OperatingSystemConfigList",
                "plural": "operatingsystemconfigs", "singular": "operatingsystemconfig", "shortNames": ["osc"],
            },
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": object(json!({"spec": spec, "status": open()}), &["spec"])},
            }],
        },
    })
}

/// A namespace of a shoot with gardenlet's labels, and others that replace or extend them.
pub(super) fn namespace(name: &str, labels: &[(&str, &str)]) -> Value {
    let mut all = json!({"gardener.cloud/role": "shoot", "shoot.gardener.cloud/provider": "kubevirt"});
    for (key, value) in labels {
        all[*key] = (*value).into();
    }
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": all}})
}

/// An object as gardenlet writes it.
pub(super) fn osc(name: &str, purpose: &str) -> Value {
    json!({
        "apiVersion": "extensions.gardener.cloud/v1alpha1",
        "kind": "OperatingSystemConfig",
        "metadata": {
            "name": name, "namespace": NAMESPACE,
            "annotations": {"gardener.cloud/operation": "reconcile"},
        },
        "spec": {
            "type": "flatcar",
            "purpose": purpose,
            "criConfig": {"name": "containerd"},
            "units": [{
                "name": "kubelet.service", "enable": true, "content": "[Service]\nExecStart=/opt/bin/kubelet\n",
                "filePaths": ["/var/lib/kubelet/config/kubelet"],
            }],
            "files": [
                {
                    "path": "/var/lib/kubelet/config/kubelet", "permissions": 420,
                    "content": {"inline": {"encoding": "b64", "data": "eA=="}},
                },
                {
                    "path": "/opt/bin/kubelet", "permissions": 493,
                    "content": {"imageRef": {"image": "registry.example.org/hyperkube:1", "filePathInImage": "/kubelet"}},
                },
            ],
        },
    })
}
