//! Reads the objects of a source. Only the fields that are named here are read.
//!
//! - KKP (`kubermatic.k8c.io/v1`): `spec.cloud.kubevirt`, `spec.pause`, `status.namespaceName`. VMs
//!   are in the namespace `cluster-<id>` of the infra cluster, and have the label
//!   `kubermatic.k8c.io/cluster-id`.
//! - Cluster API (`cluster.x-k8s.io/v1beta1`, `v1beta2`): `spec.infrastructureRef.kind`,
//!   `spec.paused`. VMs are in the namespace of the Cluster unless the source says otherwise, and
//!   have the labels `cluster.x-k8s.io/cluster-name` and
//!   `capk.cluster.x-k8s.io/kubevirt-machine-namespace`, which is the namespace of the Cluster.
//! - Gardener (`core.gardener.cloud/v1beta1`): `status.technicalID`, `status.hibernated`,
//!   `status.lastErrors`, `spec.hibernation.enabled`. VMs have the label
//!   `mcm.gardener.cloud/cluster`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    found::{ClusterCondition, SourceCluster},
    kind::SourceKind,
};

/// A cluster from an object of the source.
///
/// # Errors
/// The field that is missing.
pub fn read_cluster(kind: SourceKind, object: &Value) -> Result<SourceCluster, String> {
    let metadata = &object["metadata"];
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let name = text(&metadata["name"]).ok_or("metadata.name is missing")?;
    let namespace = text(&metadata["namespace"]);
    let key = match &namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.clone(),
    };
    let uid = text(&metadata["uid"]).ok_or_else(|| format!("{key}: metadata.uid is missing"))?;
    let labels = metadata["labels"].as_object().into_iter().flatten();
    let labels = labels.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)));
    let label = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    let spec = &object["spec"];
    let mut cluster = SourceCluster {
        labels: labels.collect(),
        user_cluster: name.clone(),
        vm_namespace: None,
        vm_labels: BTreeMap::new(),
        credential_namespace: namespace.clone(),
        is_on_kubevirt: true,
        condition: ClusterCondition::Active,
        key,
        namespace,
        name,
        uid,
    };
    let condition = match kind {
        SourceKind::Kkp => {
            cluster.is_on_kubevirt = spec["cloud"]["kubevirt"].is_object();
            cluster.vm_namespace = Some(format!("cluster-{}", cluster.name));
            cluster.vm_labels = label("kubermatic.k8c.io/cluster-id", &cluster.name);
            cluster.credential_namespace = text(&object["status"]["namespaceName"]);
            paused_if(spec["pause"] == true)
        }
        SourceKind::ClusterApi => {
            cluster.is_on_kubevirt = spec["infrastructureRef"]["kind"] == "KubevirtCluster";
            cluster.vm_namespace.clone_from(&cluster.namespace);
            cluster.vm_labels = label("cluster.x-k8s.io/cluster-name", &cluster.name);
            // A name is unique only in its namespace, and VMs of several may be in one.
            if let Some(namespace) = &cluster.namespace {
                let key = "capk.cluster.x-k8s.io/kubevirt-machine-namespace";
                cluster.vm_labels.insert(key.to_owned(), namespace.clone());
            }
            paused_if(spec["paused"] == true)
        }
        SourceKind::Gardener => {
            let status = &object["status"];
            let id = text(&status["technicalID"])
                .ok_or_else(|| format!("{}: status.technicalID is missing", cluster.key))?;
            cluster.vm_labels = label("mcm.gardener.cloud/cluster", &id);
            cluster.user_cluster = id;
            of_shoot(spec, status)
        }
    };
    cluster.condition = if metadata["deletionTimestamp"].is_null() {
        condition
    } else {
        ClusterCondition::Deleting
    };
    Ok(cluster)
}

fn paused_if(is_paused: bool) -> ClusterCondition {
    if is_paused {
        ClusterCondition::Paused
    } else {
        ClusterCondition::Active
    }
}

/// The condition of a shoot. `status.hibernated` is true until it has woken up, so it stays true if
/// that fails: then it is not off on purpose any more.
fn of_shoot(spec: &Value, status: &Value) -> ClusterCondition {
    let has_errors = status["lastErrors"]
        .as_array()
        .is_some_and(|errors| !errors.is_empty());
    let wakes_up = status["hibernated"] == true && !has_errors;
    if spec["hibernation"]["enabled"] == true || wakes_up {
        ClusterCondition::Hibernated
    } else {
        ClusterCondition::Active
    }
}
