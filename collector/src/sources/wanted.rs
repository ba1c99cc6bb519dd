//! The UserCluster and the Secret of one cluster of a source, as JSON.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use virtfleet_collector_core::cluster_source::{
    ClusterCondition, ExistingCluster, HIBERNATES_LABEL, KnownCredential, SOURCE_LABEL, WantedCluster,
};

use super::platform::Kubeconfig;
use crate::{
    clock::rfc3339,
    objects::{ClusterSource, UserCluster},
    user_account::{CREDENTIAL, Credential, EXPIRES, TO_REVOKE},
};

/// Annotation: key of the cluster in the source.
pub(super) const KEY_ANNOTATION: &str = "virtfleet.io/source-cluster";
/// Annotation: UID of the cluster in the source.
pub(super) const UID_ANNOTATION: &str = "virtfleet.io/source-uid";
/// Annotation of Secrets: when a kubeconfig was requested and when it ends, seconds since 1970.
pub(super) const VALIDITY_ANNOTATION: &str = "virtfleet.io/credential-validity";
/// Annotation of Secrets: which kubeconfig of the source it is.
pub(super) const CREDENTIALS_ANNOTATION: &str = "virtfleet.io/credentials";
/// Annotation of Secrets with an account: fingerprint of the objects in the user cluster.
pub(super) const OBJECTS_ANNOTATION: &str = "virtfleet.io/account-objects";
/// Annotation of Secrets with an account: version of the admin's kubeconfig that was read last.
pub(super) const VERSION_ANNOTATION: &str = "virtfleet.io/admin-kubeconfig-version";
pub(super) const KUBECONFIG_KEY: &str = "kubeconfig";

pub(super) fn secret_name(user_cluster: &str) -> String {
    format!("source-{user_cluster}")
}

/// What the plan needs of a live UserCluster.
pub(super) fn existing(object: &UserCluster) -> ExistingCluster {
    let annotation = |key: &str| {
        let all = object.metadata.annotations.as_ref();
        all.and_then(|all| all.get(key)).cloned().unwrap_or_default()
    };
    let labels = object.metadata.labels.as_ref();
    ExistingCluster {
        name: object.metadata.name.clone().unwrap_or_default(),
        source: labels.and_then(|all| all.get(SOURCE_LABEL)).cloned(),
        source_key: annotation(KEY_ANNOTATION),
        source_uid: annotation(UID_ANNOTATION),
        is_deleting: object.metadata.deletion_timestamp.is_some(),
        hibernates: labels
            .and_then(|all| all.get(HIBERNATES_LABEL))
            .is_some_and(|value| value == "true"),
    }
}

/// The wanted UserCluster. A field that the template does not have is null, so that a merge patch
/// removes it. Other fields stay as they are.
pub(super) fn user_cluster(source: &ClusterSource, one: &WantedCluster) -> Value {
    let spec = &source.spec;
    let mut labels: BTreeMap<&str, Value> = BTreeMap::new();
    for key in &spec.template.copy_labels {
        labels.insert(key, one.cluster.labels.get(key).into());
    }
    for (key, value) in &spec.template.labels {
        labels.insert(key, value.as_str().into());
    }
    labels.insert(
        SOURCE_LABEL,
        source.metadata.name.clone().unwrap_or_default().into(),
    );
    let hibernates = one.cluster.condition == ClusterCondition::Hibernated;
    labels.insert(HIBERNATES_LABEL, hibernates.then_some("true").into());
    let conditions = &spec.template.node_conditions;
    let conditions = (!conditions.is_empty()).then_some(conditions);
    json!({
        "apiVersion": "virtfleet.io/v1alpha1", "kind": "UserCluster",
        "metadata": {
            "name": one.name, "labels": labels,
            "annotations": { KEY_ANNOTATION: one.cluster.key, UID_ANNOTATION: one.cluster.uid },
        },
        "spec": {
            "vmis": {
                "namespace": one.vm_namespace,
                "selector": { "matchLabels": one.cluster.vm_labels },
            },
            "kubeconfig": { "secret": {
                "namespace": spec.secret_namespace, "name": secret_name(&one.name), "key": KUBECONFIG_KEY,
            } },
            "suspend": spec.template.suspend || one.is_suspended,
            "nodeConditions": conditions,
            "mla": spec.template.mla,
        },
    })
}

/// The Secret with a kubeconfig, owned by the UserCluster with this UID.
pub(super) fn secret(source: &ClusterSource, one: &WantedCluster, uid: &str, new: &Kubeconfig) -> Value {
    let validity = new
        .validity
        .map(|(issued, expires)| format!("{issued}/{expires}"));
    let annotations = json!({
        VALIDITY_ANNOTATION: validity,
        // Of an account that the source has had before.
        OBJECTS_ANNOTATION: null, VERSION_ANNOTATION: null, CREDENTIAL: null, TO_REVOKE: null, EXPIRES: null,
    });
    secret_with(source, one, uid, annotations, Some(&new.bytes))
}

pub(super) struct AccountSecret<'a> {
    pub(super) admin_version: &'a str,
    /// Fingerprint of the objects in the user cluster.
    pub(super) objects: &'a str,
    /// Secrets of the user cluster to which old tokens are bound.
    pub(super) to_revoke: &'a [String],
    /// A new token, with the time at which it was requested and its end, seconds since 1970.
    pub(super) new: Option<(&'a Credential, KnownCredential)>,
}

/// The Secret with the kubeconfig of an account, owned by the UserCluster with this UID. Without a
/// new token, it keeps its kubeconfig.
pub(super) fn account_secret(
    source: &ClusterSource,
    one: &WantedCluster,
    uid: &str,
    account: &AccountSecret<'_>,
) -> Value {
    let to_revoke = (!account.to_revoke.is_empty()).then(|| account.to_revoke.join(","));
    let mut annotations = json!({
        OBJECTS_ANNOTATION: account.objects, VERSION_ANNOTATION: account.admin_version, TO_REVOKE: to_revoke,
    });
    if let Some((new, validity)) = &account.new {
        annotations[CREDENTIAL] = new.marker.as_str().into();
        annotations[EXPIRES] = rfc3339(validity.expires).into();
        annotations[VALIDITY_ANNOTATION] = format!("{}/{}", validity.issued, validity.expires).into();
    }
    let kubeconfig = account.new.as_ref().map(|(new, _)| new.kubeconfig.as_bytes());
    secret_with(source, one, uid, annotations, kubeconfig)
}

fn secret_with(
    source: &ClusterSource,
    one: &WantedCluster,
    uid: &str,
    mut annotations: Value,
    kubeconfig: Option<&[u8]>,
) -> Value {
    annotations[UID_ANNOTATION] = one.cluster.uid.as_str().into();
    annotations[CREDENTIALS_ANNOTATION] = source.spec.credentials.as_str().into();
    let mut secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {
            "namespace": source.spec.secret_namespace, "name": secret_name(&one.name),
            "labels": { SOURCE_LABEL: source.metadata.name },
            "annotations": annotations,
            "ownerReferences": [{
                "apiVersion": "virtfleet.io/v1alpha1", "kind": "UserCluster", "name": one.name, "uid": uid,
            }],
        },
    });
    if let Some(kubeconfig) = kubeconfig {
        secret["data"] = json!({ KUBECONFIG_KEY: STANDARD.encode(kubeconfig) });
    }
    secret
}

#[cfg(test)]
mod tests {
    use virtfleet_collector_core::cluster_source::{SourceKind, read_cluster};

    use super::*;

    #[test]
    fn a_shoot_is_labelled_until_it_has_woken_up() {
        let source = json!({
            "apiVersion": "virtfleet.io/v1alpha1", "kind": "ClusterSource", "metadata": { "name": "garden" },
            "spec": { "kind": "Gardener" },
        });
        let source: ClusterSource = serde_json::from_value(source).unwrap();
        let (none, error) = (json!([]), json!([{ "description": "no quota" }]));
        for (requested, is_off, errors, label) in [
            (false, false, &none, Value::Null),
            (false, false, &error, Value::Null),
            (true, false, &error, "true".into()),
            (true, true, &none, "true".into()),
            (false, true, &none, "true".into()),
            // It should be awake, so that it does not answer is a problem.
            (false, true, &error, Value::Null),
        ] {
            let shoot = json!({
                "metadata": { "namespace": "garden-dev", "name": "prod", "uid": "u" },
                "spec": { "hibernation": { "enabled": requested } },
                "status": { "technicalID": "shoot--dev--prod", "hibernated": is_off, "lastErrors": errors },
            });
            let one = WantedCluster {
                name: "shoot--dev--prod".into(),
                cluster: read_cluster(SourceKind::Gardener, &shoot).unwrap(),
                vm_namespace: "shoots".into(),
                is_suspended: false,
            };
            let labels = &user_cluster(&source, &one)["metadata"]["labels"];
            assert_eq!(labels[HIBERNATES_LABEL], label, "{requested} {is_off} {errors}");
        }
    }
}
