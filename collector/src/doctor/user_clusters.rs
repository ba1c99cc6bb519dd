//! Checks each user cluster: whether the collector is connected to it, as its status says. How long
//! its credentials are valid, the collector reports itself: no kubeconfig is read here. What it may
//! write there is in `node_conditions`; only the collector connects there.

use kube::{Api, Client, api::ListParams};

use super::{CheckResult, CheckStatus};
use crate::objects::{ClusterPhase, UserCluster};

/// What the result about all of them is called.
const WHAT: &str = "user clusters";
/// Maximum UserClusters that are read.
const MAX_CLUSTERS: u32 = 5_000;
const LIST: &str = "kubectl get userclusters";

/// The severity of a problem that so many of all have: a cluster belongs to its tenant, who may
/// have broken it. If half of them have it, the cause is on the infra cluster.
pub(crate) fn severity_of(affected: usize, all: usize) -> CheckStatus {
    if affected * 2 >= all {
        CheckStatus::Fail
    } else {
        CheckStatus::Warn
    }
}

/// A result for each user cluster that needs action, or one result if there is none.
pub(super) async fn check(client: &Client) -> Vec<CheckResult> {
    let api: Api<UserCluster> = Api::all(client.clone());
    match api.list(&ListParams::default().limit(MAX_CLUSTERS)).await {
        Ok(list) => {
            let is_cut = list.metadata.continue_.is_some_and(|token| !token.is_empty());
            results(&list.items, is_cut)
        }
        Err(error) => {
            let detail = format!("cannot be listed: {error}");
            vec![CheckResult::skip(WHAT, detail, LIST)]
        }
    }
}

/// `is_cut`: there are more.
fn results(clusters: &[UserCluster], is_cut: bool) -> Vec<CheckResult> {
    if clusters.is_empty() {
        let next = "virtfleetctl cluster add NAME --kubeconfig FILE";
        return vec![CheckResult::skip(WHAT, "there is no UserCluster", next)];
    }
    let away = clusters.iter().filter(|cluster| is_away(cluster)).count();
    let severity = severity_of(away, clusters.len());
    let mut results: Vec<CheckResult> = clusters
        .iter()
        .filter_map(|cluster| connection(cluster, severity))
        .collect();
    if is_cut {
        let detail = format!("there are more than the {} that are checked", clusters.len());
        results.push(CheckResult::skip(WHAT, detail, LIST));
    } else if results.is_empty() {
        results.push(CheckResult::ok(WHAT, counts(clusters)));
    }
    results
}

/// How many are connected, suspended and hibernated, if none needs action.
fn counts(clusters: &[UserCluster]) -> String {
    let of = |wanted: ClusterPhase| {
        let clusters = clusters.iter();
        clusters.filter(|cluster| phase(cluster) == Some(wanted)).count()
    };
    let (suspended, hibernated) = (of(ClusterPhase::Suspended), of(ClusterPhase::Hibernated));
    let mut parts = vec![format!("{} connected", clusters.len() - suspended - hibernated)];
    for (count, state) in [(suspended, "suspended"), (hibernated, "hibernated")] {
        parts.extend((count > 0).then(|| format!("{count} {state}")));
    }
    parts.join(", ")
}

fn phase(cluster: &UserCluster) -> Option<ClusterPhase> {
    cluster.status.as_ref().map(|status| status.phase)
}

/// Whether the collector is not connected to it, although it has a kubeconfig.
fn is_away(cluster: &UserCluster) -> bool {
    matches!(
        phase(cluster),
        Some(ClusterPhase::Unreachable | ClusterPhase::Failed)
    )
}

/// The result about the connection, if it needs action. `severity` is that of a cluster without
/// connection.
fn connection(cluster: &UserCluster, severity: CheckStatus) -> Option<CheckResult> {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    let what = format!("user cluster {name}");
    let describe = format!("kubectl describe usercluster {name}");
    let Some(status) = &cluster.status else {
        let detail = "it has no status yet: no collector leads, or it cannot write the status";
        return Some(CheckResult::warn(what, detail, describe));
    };
    let detail = format!("{}: {}", status.phase.as_str(), status.message);
    if is_away(cluster) {
        return Some(CheckResult::new(severity, what, detail, describe));
    }
    (status.phase == ClusterPhase::Pending).then(|| {
        let next = format!("virtfleetctl cluster add {name} --kubeconfig FILE");
        CheckResult::warn(what, detail, next)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cluster(name: &str, status: &Value) -> UserCluster {
        serde_json::from_value(json!({
            "apiVersion": "virtfleet.io/v1alpha1", "kind": "UserCluster", "metadata": { "name": name },
            "spec": { "vmis": { "namespace": "ns" } }, "status": status,
        }))
        .unwrap()
    }

    fn lines(clusters: &[UserCluster], is_cut: bool) -> Vec<String> {
        let line = |result: CheckResult| {
            assert!(
                result.status == CheckStatus::Ok || !result.next.is_empty(),
                "{result:?}"
            );
            format!("{:?} {}: {}", result.status, result.what, result.detail)
        };
        results(clusters, is_cut).into_iter().map(line).collect()
    }

    #[test]
    fn user_clusters_that_need_action_are_named() {
        assert_eq!(lines(&[], false), ["Skip user clusters: there is no UserCluster"]);
        let ready = || cluster("blue", &json!({ "phase": "Ready" }));
        let suspended = || cluster("green", &json!({ "phase": "Suspended" }));
        assert_eq!(
            lines(&[ready(), ready()], false),
            ["Ok user clusters: 2 connected"]
        );
        assert_eq!(
            lines(&[suspended(), ready()], false),
            ["Ok user clusters: 1 connected, 1 suspended"]
        );
        let off = || cluster("white", &json!({ "phase": "Hibernated" }));
        assert_eq!(
            lines(&[ready(), off()], false),
            ["Ok user clusters: 1 connected, 1 hibernated"]
        );
        assert_eq!(
            lines(&[off(), suspended(), ready(), suspended()], false),
            ["Ok user clusters: 1 connected, 2 suspended, 1 hibernated"]
        );
        assert_eq!(
            lines(&[ready()], true),
            ["Skip user clusters: there are more than the 1 that are checked"]
        );
        let silent = cluster("red", &Value::Null);
        let pending = cluster("red", &json!({ "phase": "Pending", "message": "no Secret" }));
        assert!(lines(&[silent], false)[0].starts_with("Warn user cluster red: it has no status"));
        assert_eq!(
            lines(&[pending], false),
            ["Warn user cluster red: Pending: no Secret"]
        );
    }

    #[test]
    fn the_broken_cluster_of_one_tenant_is_no_failure_of_the_installation() {
        let ready = || cluster("blue", &json!({ "phase": "Ready" }));
        let down = || cluster("red", &json!({ "phase": "Unreachable", "message": "no answer" }));
        let failed = || cluster("white", &json!({ "phase": "Failed", "message": "too large" }));
        assert_eq!(
            lines(&[ready(), down(), ready()], false),
            ["Warn user cluster red: Unreachable: no answer"]
        );
        assert_eq!(
            lines(&[ready(), down(), failed(), ready()], false),
            [
                "Fail user cluster red: Unreachable: no answer",
                "Fail user cluster white: Failed: too large",
            ]
        );
        assert!(lines(&[down()], false)[0].starts_with("Fail "));
    }
}
