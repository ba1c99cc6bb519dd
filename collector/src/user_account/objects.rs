//! The objects in the user cluster, from the packaged manifests, reduced to the rights that are
//! needed.

use kube::Client;
use serde_json::Value;
use virtfleet_collector_core::{
    facts::{Labels, Selector},
    labels::policy::Mode,
};
use virtfleet_wire::layered::{Node, parse_yaml};

use super::{error::ObjectError, writer::ObjectWriter};
use crate::objects::LabelPropagation;

/// Account and rights, as packaged.
const RBAC: &str = include_str!("../../../packaging/collector/kubernetes/user-cluster/rbac.yaml");
/// The admission policy, as packaged.
const ADMISSION: &str = include_str!("../../../packaging/collector/kubernetes/user-cluster/admission.yaml");
/// The right to write conditions of Nodes, as packaged.
const NODE_CONDITIONS: &str =
    include_str!("../../../packaging/collector/kubernetes/user-cluster/node-conditions.yaml");
/// Resources that only the mode `FollowIfSafe` reads.
const FOLLOW_IF_SAFE: [&str; 4] = ["pods", "persistentvolumes", "persistentvolumeclaims", "csinodes"];

/// What the collector does in a user cluster, beside watching Nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClusterRights {
    /// Writes labels of Nodes.
    pub(crate) labels: bool,
    /// Reads pods and volumes, for the mode `FollowIfSafe`.
    pub(crate) follow_if_safe: bool,
    pub(crate) node_conditions: bool,
}

/// Whether a policy that selects a UserCluster with these labels has a rule with `FollowIfSafe`.
pub(crate) fn needs_pods(labels: &Labels, policies: &[LabelPropagation]) -> bool {
    policies.iter().any(|policy| {
        let selected = policy
            .spec
            .cluster_selector
            .as_ref()
            .is_none_or(|selector| Selector::from(selector).matches(labels));
        let mut rules = policy.spec.labels.iter();
        selected && rules.any(|rule| rule.mode.unwrap_or_default() == Mode::FollowIfSafe)
    })
}

impl ClusterRights {
    /// The rights of both.
    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            labels: self.labels || other.labels,
            follow_if_safe: self.follow_if_safe || other.follow_if_safe,
            node_conditions: self.node_conditions || other.node_conditions,
        }
    }
}

/// The objects in the user cluster, in the order in which they are created.
pub(crate) fn user_cluster_objects(rights: ClusterRights, has_policies: bool) -> Vec<Value> {
    let mut objects = documents(RBAC);
    for object in &mut objects {
        if let Some(rules) = object.get_mut("rules").and_then(Value::as_array_mut) {
            rules.retain_mut(|rule| keep(rule, rights));
        }
    }
    // Before the token exists, so that the rights are never without it.
    if has_policies {
        objects.extend(documents(ADMISSION));
    }
    if rights.node_conditions {
        objects.extend(documents(NODE_CONDITIONS));
    }
    objects
}

/// Whether an API server has ValidatingAdmissionPolicies.
pub(crate) async fn admission_policies(client: &Client) -> Result<bool, ObjectError> {
    match client
        .list_api_group_resources("admissionregistration.k8s.io/v1")
        .await
    {
        Ok(list) => Ok(list
            .resources
            .iter()
            .any(|one| one.name == "validatingadmissionpolicies")),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(ObjectError::of("read", "the API groups")(error)),
    }
}

/// The rights that the live objects of an account give.
///
/// # Errors
/// They cannot be read.
pub(crate) async fn live_rights(user: &ObjectWriter) -> Result<ClusterRights, ObjectError> {
    let mut live = Vec::new();
    for object in documents(RBAC).iter().chain(&documents(NODE_CONDITIONS)) {
        if object["kind"] == "ClusterRole" {
            live.extend(user.read(object).await?);
        }
    }
    Ok(rights_of(&live))
}

fn rights_of(roles: &[Value]) -> ClusterRights {
    let names =
        |value: &Value, wanted: &str| value.as_array().is_some_and(|all| all.contains(&wanted.into()));
    let has = |resource: &str, verb: &str| {
        let all = roles.iter().filter_map(|role| role["rules"].as_array()).flatten();
        all.into_iter()
            .any(|rule| names(&rule["resources"], resource) && names(&rule["verbs"], verb))
    };
    ClusterRights {
        labels: has("nodes", "patch"),
        follow_if_safe: has("pods", "list"),
        node_conditions: has("nodes/status", "patch"),
    }
}

/// The objects that an earlier run may have made and that these rights do not need.
pub(crate) fn unneeded_objects(rights: ClusterRights) -> Vec<Value> {
    if rights.node_conditions {
        return Vec::new();
    }
    let mut objects = documents(NODE_CONDITIONS);
    objects.reverse();
    objects
}

/// Reduces a rule to the rights; returns whether anything of it is left.
fn keep(rule: &mut Value, rights: ClusterRights) -> bool {
    let names = |value: &Value, wanted: &dyn Fn(&str) -> bool| {
        let names = value.as_array().into_iter().flatten().filter_map(Value::as_str);
        names.into_iter().any(wanted)
    };
    if !rights.follow_if_safe && names(&rule["resources"], &|one| FOLLOW_IF_SAFE.contains(&one)) {
        return false;
    }
    if !rights.labels
        && names(&rule["resources"], &|one| one == "nodes")
        && let Some(verbs) = rule["verbs"].as_array_mut()
    {
        verbs.retain(|verb| verb != "patch");
    }
    true
}

/// The documents of a packaged manifest.
fn documents(text: &str) -> Vec<Value> {
    let documents = parse_yaml(text).unwrap_or_default();
    documents.iter().map(Node::to_json).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ALL: ClusterRights = ClusterRights {
        labels: true,
        follow_if_safe: true,
        node_conditions: true,
    };
    const NONE: ClusterRights = ClusterRights {
        labels: false,
        follow_if_safe: false,
        node_conditions: false,
    };

    fn kinds(objects: &[Value]) -> Vec<&str> {
        objects
            .iter()
            .filter_map(|object| object["kind"].as_str())
            .collect()
    }

    /// The verbs on a resource in all roles.
    fn verbs(objects: &[Value], resource: &str) -> Vec<String> {
        let rules = objects
            .iter()
            .flat_map(|object| object["rules"].as_array().into_iter().flatten());
        let about = rules.filter(|rule| rule["resources"].as_array().unwrap().contains(&json!(resource)));
        let verbs = about.flat_map(|rule| rule["verbs"].as_array().unwrap());
        verbs.map(|verb| verb.as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn all_rights_are_the_packaged_ones() {
        let packaged: Vec<_> = [RBAC, ADMISSION, NODE_CONDITIONS]
            .into_iter()
            .flat_map(documents)
            .collect();
        assert_eq!(user_cluster_objects(ALL, true), packaged);
        assert_eq!(packaged.len(), 10);
        assert!(unneeded_objects(ALL).is_empty());
    }

    #[test]
    fn rights_are_those_of_the_options() {
        let objects = user_cluster_objects(NONE, true);
        assert_eq!(verbs(&objects, "nodes"), ["get", "list", "watch"]);
        assert_eq!(verbs(&objects, "leases"), ["list"]);
        for resource in ["pods", "persistentvolumes", "csinodes", "nodes/status"] {
            assert_eq!(verbs(&objects, resource), [""; 0], "{resource}");
        }
        assert!(kinds(&objects).contains(&"ValidatingAdmissionPolicyBinding"));
        assert_eq!(
            kinds(&unneeded_objects(NONE)),
            ["ClusterRoleBinding", "ClusterRole"]
        );
        let labels = ClusterRights { labels: true, ..NONE };
        let objects = user_cluster_objects(labels, false);
        assert_eq!(verbs(&objects, "nodes"), ["get", "list", "watch", "patch"]);
        assert_eq!(verbs(&objects, "pods"), [""; 0]);
        assert!(!kinds(&objects).contains(&"ValidatingAdmissionPolicy"));
        let safe = ClusterRights {
            follow_if_safe: true,
            ..labels
        };
        assert_eq!(verbs(&user_cluster_objects(safe, false), "pods"), ["get", "list"]);
    }

    #[test]
    fn rights_are_read_back_from_roles() {
        for rights in [
            ALL,
            NONE,
            ClusterRights { labels: true, ..NONE },
            ClusterRights {
                node_conditions: true,
                ..NONE
            },
        ] {
            assert_eq!(rights_of(&user_cluster_objects(rights, true)), rights);
            assert_eq!(rights.with(NONE), rights);
            assert_eq!(rights.with(ALL), ALL);
        }
    }
}
