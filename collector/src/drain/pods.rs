//! Pods on the Nodes of a user cluster that a drain of the Node evicts, as `kubectl drain
//! --ignore-daemonsets` selects them.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{ApiResource, ListParams},
    core::{NotUsed, Object},
};
use serde::Deserialize;
use virtfleet_collector_core::placement::NodePod;
use virtfleet_wire::ids::{ClusterName, NodeName, VmKey};

use super::{
    budgets::{self, BudgetFields},
    failure::gap,
    limits::MAX_CONCURRENT_REQUESTS,
};
use crate::paged_list::{ListError, list};

/// Maximum pods that are kept of one Node.
const MAX_NODE_PODS: usize = 1_000;
/// Set on the copy of a static pod, which cannot be evicted.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// Pods of each VM's Node.
pub(super) type PodsOfVms = BTreeMap<VmKey, Vec<NodePod>>;

/// A volume of a pod, as far as it names a claim.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodVolume {
    name: String,
    #[serde(default)]
    persistent_volume_claim: Option<ClaimSource>,
    /// A generic ephemeral volume: its claim is named after the pod.
    #[serde(default)]
    ephemeral: Option<NotUsed>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimSource {
    claim_name: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct NodePodSpec {
    #[serde(default)]
    volumes: Vec<PodVolume>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct NodePodStatus {
    #[serde(default)]
    phase: Option<String>,
    #[serde(default)]
    conditions: Vec<NodePodCondition>,
}

#[derive(Debug, Clone, Deserialize)]
struct NodePodCondition {
    r#type: String,
    status: String,
}

/// A pod of a user cluster.
type NodePodFields = Object<NodePodSpec, NodePodStatus>;

pub(super) fn claim_names(pod: &str, volumes: &[PodVolume]) -> Vec<String> {
    let own = |volume: &PodVolume| {
        let is_ephemeral = volume.ephemeral.is_some();
        is_ephemeral.then(|| format!("{pod}-{}", volume.name))
    };
    let claimed = |volume: &PodVolume| {
        let claim = volume.persistent_volume_claim.as_ref();
        claim.map(|claim| claim.claim_name.clone())
    };
    let names = volumes
        .iter()
        .filter_map(|volume| claimed(volume).or_else(|| own(volume)));
    names.collect()
}

/// Pods of the Nodes of `cluster`, and gaps.
pub(super) async fn read(
    client: &Client,
    cluster: &ClusterName,
    nodes: BTreeSet<(NodeName, VmKey)>,
) -> (PodsOfVms, Vec<String>) {
    let manifest = (format!("the user cluster {cluster}"), "user-cluster/rbac.yaml");
    let manifest = (manifest.0.as_str(), manifest.1);
    let pods = stream::iter(nodes).map(|(node, vm)| async move { (vm, of_node(client, &node).await) });
    let pods = pods.buffered(MAX_CONCURRENT_REQUESTS).collect::<Vec<_>>();
    let (pods, budgets) = tokio::join!(pods, budgets::read(client));
    let mut gaps = BTreeSet::new();
    let budgets = budgets.unwrap_or_else(|error| {
        let what = format!("PodDisruptionBudgets of the user cluster {cluster}");
        gaps.insert(gap(&what, &error, "list poddisruptionbudgets.policy", manifest));
        Vec::new()
    });
    let mut found = BTreeMap::new();
    for (vm, pods) in pods {
        match pods {
            Ok(pods) => {
                let evicted = pods.iter().filter_map(|pod| evicted(pod, &budgets));
                found.insert(vm, evicted.take(MAX_NODE_PODS).collect());
            }
            Err(error) => {
                let what = format!("pods of the user cluster {cluster}");
                gaps.insert(gap(&what, &error, "list pods", manifest));
            }
        }
    }
    (found, gaps.into_iter().collect())
}

async fn of_node(client: &Client, node: &NodeName) -> Result<Vec<NodePodFields>, ListError> {
    let api: Api<NodePodFields> = Api::all_with(client.clone(), &ApiResource::erase::<Pod>(&()));
    let fields = format!("spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed");
    list(&api, ListParams::default().fields(&fields)).await
}

/// The pod, if a drain of its Node evicts it.
fn evicted(pod: &NodePodFields, budgets: &[BudgetFields]) -> Option<NodePod> {
    let metadata = &pod.metadata;
    let owners = metadata.owner_references.iter().flatten();
    let controller = owners.into_iter().find(|owner| owner.controller == Some(true));
    let annotations = metadata.annotations.as_ref();
    let is_static = annotations.is_some_and(|all| all.contains_key(MIRROR_ANNOTATION));
    if is_static || controller.is_some_and(|owner| owner.kind == "DaemonSet") {
        return None;
    }
    let name = metadata.name.clone().unwrap_or_default();
    let mut evicted = NodePod {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        unmanaged: controller.is_none(),
        claims: claim_names(&name, &pod.spec.volumes),
        name,
        ..NodePod::default()
    };
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    // A pod that has not started or is being deleted is evicted whatever its budgets say.
    let is_ignored = phase == Some("Pending") || metadata.deletion_timestamp.is_some();
    let conditions = status.into_iter().flat_map(|status| &status.conditions);
    let is_ready = conditions
        .into_iter()
        .any(|one| one.r#type == "Ready" && one.status == "True");
    let selecting = budgets::selecting(&evicted.namespace, metadata.labels.as_ref(), budgets);
    evicted.refused = budgets::refusal(&selecting, is_ready).filter(|_| !is_ignored);
    evicted.budgets = selecting.iter().map(|budget| budgets::name(budget)).collect();
    Some(evicted)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn budget(name: &str, spec: &Value, allowed: i32, healthy: [i32; 2]) -> BudgetFields {
        serde_json::from_value(json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": { "namespace": "shop", "name": name }, "spec": spec,
            "status": { "disruptionsAllowed": allowed, "currentHealthy": healthy[0], "desiredHealthy": healthy[1] },
        }))
        .unwrap()
    }

    fn pod(more: &Value, ready: &str) -> NodePodFields {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "namespace": "shop", "name": "web-0", "labels": { "app": "web" } },
            "spec": { "volumes": [{ "name": "d", "persistentVolumeClaim": { "claimName": "data" } },
                                  { "name": "s", "ephemeral": {} }, { "name": "t", "emptyDir": {} }] },
            "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": ready }] },
        });
        for (path, value) in more.as_object().unwrap() {
            *pod.pointer_mut(path).unwrap() = value.clone();
        }
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn a_budget_forbids_the_eviction_of_the_pods_that_it_selects() {
        let web = json!({ "selector": { "matchLabels": { "app": "web" } } });
        let always = json!({ "selector": {}, "unhealthyPodEvictionPolicy": "AlwaysAllow" });
        let not_in = json!({ "selector": { "matchExpressions": [
            { "key": "app", "operator": "NotIn", "values": ["web"] }] } });
        let ready = pod(&json!({}), "True");
        let unready = pod(&json!({}), "False");
        let pending = pod(&json!({ "/status/phase": "Pending" }), "False");
        let elsewhere = pod(&json!({ "/metadata/namespace": "other" }), "True");
        for (what, pod, budgets, part) in [
            ("no budget", &ready, vec![], None),
            ("one is allowed", &ready, vec![budget("b", &web, 1, [3, 2])], None),
            (
                "none is allowed",
                &ready,
                vec![budget("b", &web, 0, [2, 2])],
                Some("2 of 2 required"),
            ),
            (
                "an empty selector selects all",
                &ready,
                vec![budget("b", &json!({ "selector": {} }), 0, [1, 1])],
                Some("b allows"),
            ),
            (
                "no selector selects none",
                &ready,
                vec![budget("b", &json!({}), 0, [1, 1])],
                None,
            ),
            (
                "another label",
                &ready,
                vec![budget("b", &not_in, 0, [1, 1])],
                None,
            ),
            (
                "another namespace",
                &elsewhere,
                vec![budget("b", &web, 0, [1, 1])],
                None,
            ),
            (
                "not ready, and enough are healthy",
                &unready,
                vec![budget("b", &web, 0, [2, 2])],
                None,
            ),
            (
                "not ready, and too few are healthy",
                &unready,
                vec![budget("b", &web, 0, [1, 2])],
                Some("1 of 2"),
            ),
            (
                "not ready, which is always allowed",
                &unready,
                vec![budget("b", &always, 0, [1, 2])],
                None,
            ),
            ("pending", &pending, vec![budget("b", &web, 0, [1, 2])], None),
            (
                "two budgets",
                &ready,
                vec![budget("b", &web, 1, [2, 1]), budget("c", &web, 1, [2, 1])],
                Some("more than one"),
            ),
        ] {
            let found = evicted(pod, &budgets).unwrap();
            assert_eq!(found.claims, ["data", "web-0-s"]);
            match part {
                None => assert_eq!(found.refused, None, "{what}"),
                Some(part) => assert!(
                    found.refused.as_ref().is_some_and(|why| why.contains(part)),
                    "{what}: {found:?}"
                ),
            }
        }
    }

    #[test]
    fn daemon_pods_and_static_pods_are_not_evicted() {
        let owner = |kind: &str| {
            let owner =
                json!([{ "apiVersion": "v1", "kind": kind, "name": "n", "uid": "u", "controller": true }]);
            let mut pod = pod(&json!({}), "True");
            pod.metadata.owner_references = Some(serde_json::from_value(owner).unwrap());
            pod
        };
        assert_eq!(evicted(&owner("DaemonSet"), &[]), None);
        assert!(!evicted(&owner("ReplicaSet"), &[]).unwrap().unmanaged);
        let mut fixed = pod(&json!({}), "True");
        assert!(evicted(&fixed, &[]).unwrap().unmanaged);
        fixed.metadata.annotations =
            Some([("kubernetes.io/config.mirror".to_owned(), "x".to_owned())].into());
        assert_eq!(evicted(&fixed, &[]), None);
    }
}
