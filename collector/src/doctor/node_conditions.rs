//! Checks whether the collector may write the conditions of Nodes that `UserCluster` objects
//! request. The running leader knows it and records it in their status: only it connects to user
//! clusters.

use kube::{Api, Client, api::ListParams};

use super::CheckResult;
use crate::objects::{ConditionStatus, UserCluster, status::NODE_CONDITIONS_WRITTEN};

/// What the check is called.
const WHAT: &str = "node conditions";
/// Maximum UserClusters that are read.
const MAX_CLUSTERS: u32 = 5_000;

const GRANT: &str =
    "in the user cluster: kubectl apply -f packaging/collector/kubernetes/user-cluster/node-conditions.yaml";

/// A warning for each user cluster whose conditions cannot be written, or one result if there is
/// none; nothing if UserClusters cannot be listed.
pub(super) async fn check(client: &Client) -> Vec<CheckResult> {
    let api: Api<UserCluster> = Api::all(client.clone());
    // Rights and definitions have checks of their own.
    let Ok(list) = api.list(&ListParams::default().limit(MAX_CLUSTERS)).await else {
        return Vec::new();
    };
    results(&list.items)
}

fn results(clusters: &[UserCluster]) -> Vec<CheckResult> {
    let requested = clusters
        .iter()
        .filter(|cluster| !cluster.spec.node_conditions.is_empty());
    let (mut results, mut count) = (Vec::new(), 0);
    for cluster in requested {
        count += 1;
        let status = cluster.status.as_ref();
        let mut conditions = status.into_iter().flat_map(|status| &status.conditions);
        let denied = conditions
            .find(|one| one.kind == NODE_CONDITIONS_WRITTEN && one.status == ConditionStatus::False);
        if let Some(denied) = denied {
            let name = cluster.metadata.name.as_deref().unwrap_or_default();
            results.push(CheckResult::warn(
                format!("{WHAT} of {name}"),
                denied.message.clone(),
                GRANT,
            ));
        }
    }
    if count == 0 {
        let detail = "not used: no UserCluster has spec.nodeConditions, so no Node gets conditions";
        let next = format!("{GRANT}; then set spec.nodeConditions (docs/node-conditions.md)");
        results.push(CheckResult::skip(WHAT, detail, next));
    } else if results.is_empty() {
        let detail = format!("{count} user clusters request conditions, and none refuses them");
        results.push(CheckResult::ok(WHAT, detail));
    }
    results
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::CheckStatus;

    #[test]
    fn only_clusters_that_request_conditions_are_checked() {
        let cluster = |name: &str, requested: &[&str], status: &str| -> UserCluster {
            serde_json::from_value(json!({
                "apiVersion": "virtfleet.io/v1alpha1", "kind": "UserCluster", "metadata": { "name": name },
                "spec": { "vmis": { "namespace": "ns" }, "nodeConditions": requested },
                "status": { "conditions": [{
                    "type": NODE_CONDITIONS_WRITTEN, "status": status, "reason": "r", "message": "not allowed",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }] },
            }))
            .unwrap()
        };
        let statuses = |clusters: &[UserCluster]| -> Vec<CheckStatus> {
            results(clusters).iter().map(|one| one.status).collect()
        };
        let (off, on) = (cluster("a", &[], "False"), cluster("b", &["DisksReady"], "True"));
        let unused = results(std::slice::from_ref(&off));
        assert_eq!(unused[0].status, CheckStatus::Skip);
        assert!(unused[0].next.contains("node-conditions.yaml"), "{unused:?}");
        assert_eq!(statuses(&[off.clone(), on.clone()]), [CheckStatus::Ok]);
        let denied = cluster("c", &["DNSReady"], "False");
        let found = results(&[off, on, denied]);
        assert_eq!((found.len(), found[0].status), (1, CheckStatus::Warn));
        assert!(found[0].what.ends_with(" c") && found[0].detail == "not allowed");
    }
}
