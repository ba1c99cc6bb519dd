//! The UserCluster that is wanted: the present one with the options of the command line.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use virtfleet_collector_core::{facts::Labels, selector_text::parse_selector};

use super::args::SpecArgs;
use crate::{
    objects::{LabelPropagation, LabelSelector, UserCluster},
    user_account::{ClusterRights, needs_pods},
};

/// Annotation of objects in the infra cluster that were made here.
pub(super) const MADE_BY: &str = "virtfleet.io/made-by";
const KUBECONFIG_KEY: &str = "kubeconfig";

/// Namespace, name and key of the Secret with the kubeconfig.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SecretPlace {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) key: String,
}

impl SecretPlace {
    /// The Secret that the UserCluster names, else the usual one in `namespace`.
    pub(super) fn of(present: Option<&UserCluster>, name: &str, namespace: &str) -> Self {
        match present.and_then(|present| present.spec.kubeconfig.as_ref()) {
            Some(kubeconfig) => Self {
                namespace: kubeconfig.secret.namespace.clone(),
                name: kubeconfig.secret.name.clone(),
                key: kubeconfig.secret.key.clone(),
            },
            None => Self {
                namespace: namespace.to_owned(),
                name: format!("kubeconfig-{name}"),
                key: KUBECONFIG_KEY.to_owned(),
            },
        }
    }

    /// Namespace and name as an object without data.
    pub(super) fn object(&self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "namespace": self.namespace, "name": self.name },
        })
    }
}

/// The wanted UserCluster.
///
/// # Errors
/// An option is missing or invalid.
pub(super) fn user_cluster(
    name: &str,
    args: &SpecArgs,
    present: Option<&UserCluster>,
    secret: &SecretPlace,
) -> Result<Value, String> {
    let namespace = match (&args.namespace, present) {
        (Some(namespace), _) => namespace.clone(),
        (None, Some(present)) => present.spec.vmis.namespace.clone(),
        (None, None) => {
            return Err(format!(
                "there is no UserCluster {name} yet; set --namespace to the namespace of its VMs in the infra cluster \
                 (KKP: cluster-{name})"
            ));
        }
    };
    let mut vmis = json!({ "namespace": namespace });
    if let Some(text) = &args.selector {
        let selector = parse_selector(text).map_err(|error| format!("--selector: {error}"))?;
        vmis["selector"] = serde_json::to_value(LabelSelector::from(&selector)).unwrap_or_default();
    }
    let mut spec = json!({
        "vmis": vmis,
        "kubeconfig": { "secret": { "namespace": secret.namespace, "name": secret.name, "key": secret.key } },
    });
    if !args.node_conditions.is_empty() {
        let names: BTreeSet<_> = args.node_conditions.iter().map(|one| one.as_str()).collect();
        spec["nodeConditions"] = json!(names);
    }
    let mut object = json!({
        "apiVersion": "virtfleet.io/v1alpha1", "kind": "UserCluster",
        "metadata": { "name": name }, "spec": spec,
    });
    if present.is_none() {
        object["metadata"]["annotations"] = json!({ MADE_BY: "virtfleetctl" });
    }
    for label in &args.labels {
        let (key, value) = label
            .split_once('=')
            .filter(|(key, _)| !key.is_empty())
            .ok_or_else(|| format!("--label {label}: not of the form KEY=VALUE"))?;
        object["metadata"]["labels"][key] = value.into();
    }
    Ok(object)
}

/// The rights that the wanted UserCluster needs, with the policies of the infra cluster.
pub(super) fn rights(
    args: &SpecArgs,
    wanted: &Value,
    present: Option<&UserCluster>,
    policies: &[LabelPropagation],
) -> ClusterRights {
    let before = present.and_then(|present| present.metadata.labels.clone());
    let mut labels: BTreeMap<String, String> = before.unwrap_or_default();
    if let Some(wanted) = wanted["metadata"]["labels"].as_object() {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        labels.extend(wanted.iter().map(|(key, value)| (key.clone(), text(value))));
    }
    let labels: Labels = labels.into_iter().collect();
    let has_conditions = !args.node_conditions.is_empty()
        || present.is_some_and(|present| !present.spec.node_conditions.is_empty());
    ClusterRights {
        labels: !args.read_only,
        follow_if_safe: !args.read_only && (args.follow_if_safe || needs_pods(&labels, policies)),
        node_conditions: has_conditions,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> SpecArgs {
        SpecArgs {
            namespace: Some("cluster-blue".into()),
            selector: None,
            labels: Vec::new(),
            node_conditions: Vec::new(),
            read_only: false,
            follow_if_safe: false,
        }
    }

    fn present(labels: &Value) -> UserCluster {
        let object = json!({
            "apiVersion": "virtfleet.io/v1alpha1", "kind": "UserCluster",
            "metadata": { "name": "blue", "labels": labels },
            "spec": { "vmis": { "namespace": "old" }, "nodeConditions": ["DisksReady"],
                      "kubeconfig": { "secret": { "namespace": "n", "name": "s", "key": "k" } } },
        });
        serde_json::from_value(object).unwrap()
    }

    fn policy(selector: Option<&Value>, mode: Option<&str>) -> LabelPropagation {
        let mut object = json!({
            "apiVersion": "virtfleet.io/v1alpha1", "kind": "LabelPropagation",
            "metadata": { "name": "p" }, "spec": { "labels": [{ "key": "rack" }] },
        });
        if let Some(selector) = selector {
            object["spec"]["clusterSelector"] = selector.clone();
        }
        if let Some(mode) = mode {
            object["spec"]["labels"][0]["mode"] = mode.into();
        }
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn options_overlay_the_present_object() {
        let place = SecretPlace::of(None, "blue", "kubeconfigs");
        assert_eq!(
            (place.name.as_str(), place.key.as_str()),
            ("kubeconfig-blue", "kubeconfig")
        );
        let mut args = args();
        args.selector = Some("pool in (a,b),!spot".into());
        args.labels = vec!["tier=gold".into()];
        let wanted = user_cluster("blue", &args, None, &place).unwrap();
        assert_eq!(
            wanted["spec"]["vmis"]["selector"]["matchExpressions"][0]["values"],
            json!(["a", "b"])
        );
        assert_eq!(wanted["metadata"]["labels"], json!({ "tier": "gold" }));
        let present = present(&json!({}));
        let place = SecretPlace::of(Some(&present), "blue", "kubeconfigs");
        args.namespace = None;
        let wanted = user_cluster("blue", &args, Some(&present), &place).unwrap();
        assert_eq!(
            (
                &wanted["spec"]["vmis"]["namespace"],
                &wanted["spec"]["kubeconfig"]["secret"]["name"]
            ),
            (&json!("old"), &json!("s"))
        );
        assert!(
            wanted["spec"].get("nodeConditions").is_none(),
            "it stays as it is"
        );
        let error = user_cluster("blue", &args, None, &place).unwrap_err();
        assert!(
            error.contains("--namespace") && error.contains("cluster-blue"),
            "{error}"
        );
        args.namespace = Some("x".into());
        args.labels = vec!["tier".into()];
        assert!(
            user_cluster("blue", &args, None, &place)
                .unwrap_err()
                .contains("--label tier")
        );
    }

    #[test]
    fn rights_follow_options_and_policies() {
        let place = SecretPlace::of(None, "blue", "kubeconfigs");
        let gold = json!({ "matchLabels": { "tier": "gold" } });
        let mut args = args();
        args.labels = vec!["tier=gold".into()];
        let wanted = user_cluster("blue", &args, None, &place).unwrap();
        for (policies, expected) in [
            (vec![], false),
            (vec![policy(None, Some("Follow"))], false),
            (vec![policy(None, None)], true),
            (vec![policy(Some(&gold), None)], true),
            (
                vec![policy(Some(&json!({ "matchLabels": { "tier": "lead" } })), None)],
                false,
            ),
        ] {
            let rights = rights(&args, &wanted, None, &policies);
            assert_eq!(
                (rights.labels, rights.follow_if_safe),
                (true, expected),
                "{policies:?}"
            );
        }
        // The label of the command line replaces that of the object.
        let present = present(&json!({ "tier": "lead" }));
        let found = rights(&args, &wanted, Some(&present), &[policy(Some(&gold), None)]);
        assert!(found.follow_if_safe && found.node_conditions);
        args.read_only = true;
        let found = rights(&args, &wanted, None, &[policy(None, None)]);
        assert_eq!(
            (found.labels, found.follow_if_safe, found.node_conditions),
            (false, false, false)
        );
    }
}
