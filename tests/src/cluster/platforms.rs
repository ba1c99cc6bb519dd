//! Objects of the platforms that a ClusterSource follows.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

/// A CustomResourceDefinition of a platform's `Cluster` that keeps every field and validates none.
pub fn definition(group: &str, scope: &str, versions: &[&str]) -> Value {
    let version = |(at, name): (usize, &&str)| {
        json!({
            "name": name, "served": true, "storage": at == 0,
            "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("clusters.{group}"), "annotations": {
            "api-approved.kubernetes.io": "unapproved, a test",
        } },
        "spec": {
            "group": group, "scope": scope,
            "names": { "kind": "Cluster", "listKind": "ClusterList", "singular": "cluster", "plural": "clusters" },
            "versions": versions.iter().enumerate().map(version).collect::<Vec<_>>(),
        },
    })
}

/// A `Cluster` of KKP on `cloud`, e.g. `kubevirt`.
pub fn kkp(id: &str, cloud: &str) -> Value {
    json!({
        "apiVersion": "kubermatic.k8c.io/v1", "kind": "Cluster",
        "metadata": { "name": id, "labels": { "project-id": "p1" } },
        "spec": { "humanReadableName": id, "cloud": { cloud: {} } },
        "status": { "namespaceName": format!("cluster-{id}") },
    })
}

/// The Secret with the kubeconfig of a cluster, as its platform keeps it.
pub fn secret(namespace: &str, name: &str, key: &str, kubeconfig: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": { "namespace": namespace, "name": name }, "data": { key: STANDARD.encode(kubeconfig) },
    })
}

/// A `ClusterSource`.
pub fn source(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "virtfleet.io/v1alpha1", "kind": "ClusterSource", "metadata": { "name": name }, "spec": spec,
    })
}
