//! Reads the objects that depend on a Node's labels, on demand and without a watch: its pods, the
//! volumes that they use, its CSI drivers.
//!
//! Only the needed fields are decoded. The list of a cluster's volumes is cached for a few seconds
//! and serves many Nodes; a claim that the cached list does not have causes another list.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume, Pod,
};
use kube::{
    Api, Client,
    api::{ApiResource, ListParams},
    core::{NotUsed, Object},
};
use serde::Deserialize;
use tokio::{sync::Mutex, time::Instant};
use virtfleet_collector_core::{
    facts::Labels,
    labels::evidence::{Dependent, Evidence, NodeOperator, NodeRequirement, Term},
};
use virtfleet_wire::ids::{ClusterName, NodeName};

use super::writer::SendError;
use crate::paged_list::list;

/// Time for which a list of volumes is cached.
const VOLUME_CACHE_TTL: Duration = Duration::from_secs(5);
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    #[serde(default)]
    node_selector: Labels,
    #[serde(default)]
    affinity: Option<Affinity>,
    #[serde(default)]
    volumes: Vec<Volume>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Affinity {
    #[serde(default)]
    node_affinity: Option<NodeAffinity>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeAffinity {
    #[serde(default)]
    required_during_scheduling_ignored_during_execution: Option<NodeSelector>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Volume {
    name: String,
    #[serde(default)]
    persistent_volume_claim: Option<Claim>,
    /// A generic ephemeral volume: its claim is named after the pod.
    #[serde(default)]
    ephemeral: Option<NotUsed>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Claim {
    claim_name: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PvSpec {
    #[serde(default)]
    claim_ref: Option<ClaimRef>,
    #[serde(default)]
    node_affinity: Option<PvAffinity>,
}

#[derive(Debug, Clone, Deserialize)]
struct ClaimRef {
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
}

#[derive(Debug, Clone, Deserialize)]
struct PvAffinity {
    #[serde(default)]
    required: Option<NodeSelector>,
}

#[derive(Debug, Clone, Deserialize)]
struct CsiSpec {
    #[serde(default)]
    drivers: Vec<CsiDriver>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CsiDriver {
    name: String,
    #[serde(default)]
    topology_keys: Option<Vec<String>>,
}

type PodFields = Object<PodSpec, NotUsed>;
type PvFields = Object<PvSpec, NotUsed>;
type CsiNodeFields = Object<CsiSpec, NotUsed>;

/// The bound volume and its required node affinity, by the claim's namespace and name.
type Volumes = BTreeMap<(String, String), (String, Option<NodeSelector>)>;

/// One cluster's volumes and the time of the list. The lock is held during the list, so that
/// concurrent readers share it.
type CachedVolumes = Arc<Mutex<Option<(Instant, Arc<Volumes>)>>>;

/// Cached volumes of each cluster.
#[derive(Debug, Default)]
pub(super) struct VolumeCache(std::sync::Mutex<BTreeMap<ClusterName, CachedVolumes>>);

impl VolumeCache {
    fn of(&self, cluster: &ClusterName) -> CachedVolumes {
        let mut all = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Arc::clone(all.entry(cluster.clone()).or_default())
    }
}

/// Reads all evidence about one Node. Partial evidence would be mistaken for all of it, so any
/// failure fails the read.
///
/// # Errors
/// The first request that failed.
pub(super) async fn read(
    client: Client,
    cluster: &ClusterName,
    node: &NodeName,
    cache: &VolumeCache,
) -> Result<Evidence, SendError> {
    let started = Instant::now();
    let (pods, csi) = tokio::try_join!(pods(client.clone(), node), csi(client.clone(), node))?;
    let claims = claims(&pods);
    let volumes = if claims.is_empty() {
        Arc::default()
    } else {
        volumes(client, &cache.of(cluster), &claims, started).await?
    };
    Ok(Evidence {
        volumes: used(&claims, &volumes, node),
        csi,
        pods: pods.iter().filter_map(|pod| dependent(pod, node)).collect(),
    })
}

async fn pods(client: Client, node: &NodeName) -> Result<Vec<PodFields>, SendError> {
    let api: Api<PodFields> = Api::all_with(client, &ApiResource::erase::<Pod>(&()));
    let fields = format!("spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed");
    Ok(list(&api, ListParams::default().fields(&fields)).await?)
}

async fn csi(client: Client, node: &NodeName) -> Result<Vec<(String, Vec<String>)>, SendError> {
    let resource = ApiResource::erase::<k8s_openapi::api::storage::v1::CSINode>(&());
    let api: Api<CsiNodeFields> = Api::all_with(client, &resource);
    let found = api.get_opt(node.as_str()).await?;
    let drivers = found.map(|found| found.spec.drivers).unwrap_or_default();
    let drivers = drivers.into_iter();
    Ok(drivers
        .map(|driver| (driver.name, driver.topology_keys.unwrap_or_default()))
        .collect())
}

async fn volumes(
    client: Client,
    kept: &CachedVolumes,
    claims: &BTreeSet<(String, String)>,
    started: Instant,
) -> Result<Arc<Volumes>, SendError> {
    let mut kept = kept.lock().await;
    if let Some((at, volumes)) = kept.as_ref() {
        let fresh = *at >= started;
        let complete =
            at.elapsed() < VOLUME_CACHE_TTL && claims.iter().all(|claim| volumes.contains_key(claim));
        if fresh || complete {
            return Ok(Arc::clone(volumes));
        }
    }
    let at = Instant::now();
    let api: Api<PvFields> = Api::all_with(client, &ApiResource::erase::<PersistentVolume>(&()));
    let bound = list(&api, ListParams::default())
        .await?
        .into_iter()
        .filter_map(|pv| {
            let claim = pv.spec.claim_ref?;
            let required = pv.spec.node_affinity.and_then(|affinity| affinity.required);
            let name = pv.metadata.name.unwrap_or_default();
            Some(((claim.namespace, claim.name), (name, required)))
        });
    let volumes = Arc::new(bound.collect::<Volumes>());
    *kept = Some((at, Arc::clone(&volumes)));
    Ok(volumes)
}

fn name_of(pod: &PodFields) -> (String, String) {
    let metadata = &pod.metadata;
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    (part(&metadata.namespace), part(&metadata.name))
}

fn claims(pods: &[PodFields]) -> BTreeSet<(String, String)> {
    let of = |pod: &PodFields| {
        let (namespace, name) = name_of(pod);
        let claims = pod.spec.volumes.iter().filter_map(|volume| {
            let own = || Some(format!("{name}-{}", volume.name)).filter(|_| volume.ephemeral.is_some());
            let named = volume.persistent_volume_claim.as_ref();
            named.map(|claim| claim.claim_name.clone()).or_else(own)
        });
        let claims: Vec<_> = claims.map(|claim| (namespace.clone(), claim)).collect();
        claims
    };
    pods.iter().flat_map(of).collect()
}

fn used(claims: &BTreeSet<(String, String)>, volumes: &Volumes, node: &NodeName) -> Vec<Dependent> {
    let used = claims.iter().filter_map(|claim| {
        let (pv, required) = volumes.get(claim)?;
        Some(Dependent {
            what: format!("PersistentVolume {pv} ({}/{})", claim.0, claim.1),
            selector: Labels::new(),
            terms: terms(required.as_ref()?, node),
        })
    });
    used.filter(|one| !one.terms.is_empty()).collect()
}

fn dependent(pod: &PodFields, node: &NodeName) -> Option<Dependent> {
    let (namespace, name) = name_of(pod);
    let affinity = pod.spec.affinity.as_ref();
    let required = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
    let required =
        required.and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
    let terms = required.map(|required| terms(required, node)).unwrap_or_default();
    (!pod.spec.node_selector.is_empty() || !terms.is_empty()).then(|| Dependent {
        what: format!("pod {namespace}/{name}"),
        selector: pod.spec.node_selector.clone(),
        terms,
    })
}

/// The terms that may match this Node. Empty if one of them matches whatever the labels are, as
/// that of a DaemonSet's pod does: it names its Node in `matchFields`.
fn terms(required: &NodeSelector, node: &NodeName) -> Vec<Term> {
    let mut terms = Vec::new();
    for term in &required.node_selector_terms {
        let fields = term.match_fields.as_deref().unwrap_or_default();
        if !fields.iter().all(|field| field_holds(field, node)) {
            continue;
        }
        let expressions = requirements(term);
        if !expressions.is_empty() {
            terms.push(Term { expressions });
        } else if !fields.is_empty() {
            return Vec::new();
        }
        // An empty term matches no Node.
    }
    terms
}

/// Whether a `matchFields` requirement holds on `node`; `metadata.name` is the only field that
/// Kubernetes supports.
fn field_holds(field: &NodeSelectorRequirement, node: &NodeName) -> bool {
    let named = field.values.iter().flatten().any(|value| value == node.as_str());
    match field.operator.as_str() {
        "In" => named,
        "NotIn" => !named,
        _ => true,
    }
}

fn requirements(term: &NodeSelectorTerm) -> Vec<NodeRequirement> {
    let all = term.match_expressions.iter().flatten();
    let one = |expression: &NodeSelectorRequirement| {
        let values = expression.values.clone().unwrap_or_default();
        let operator = match expression.operator.as_str() {
            "In" => NodeOperator::In,
            "NotIn" => NodeOperator::NotIn,
            "Exists" => NodeOperator::Exists,
            "DoesNotExist" => NodeOperator::DoesNotExist,
            "Gt" => NodeOperator::Gt,
            "Lt" => NodeOperator::Lt,
            // An operator of a later Kubernetes: assume that the pod depends on the key. `In`
            // without values matches no Node.
            _ => {
                return NodeRequirement {
                    key: expression.key.clone(),
                    operator: NodeOperator::In,
                    values: Vec::new(),
                };
            }
        };
        NodeRequirement {
            key: expression.key.clone(),
            operator,
            values,
        }
    };
    all.map(one).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(spec: &serde_json::Value) -> PodFields {
        serde_json::from_value(json!({"metadata": {"namespace": "shop", "name": "db-0"}, "spec": spec}))
            .unwrap()
    }

    fn node() -> NodeName {
        "n1".parse().unwrap()
    }

    #[test]
    fn claims_of_a_pod_include_its_ephemeral_volumes() {
        let found = claims(&[pod(&json!({"containers": [], "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
            {"name": "tmp", "emptyDir": {}},
        ]}))]);
        let names: Vec<_> = found.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["data-db-0", "db-0-scratch"]);
    }

    #[test]
    fn pods_without_requirement_and_daemon_pods_have_no_dependency() {
        let affinity = |terms: serde_json::Value| {
            pod(&json!({"affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
            }}}))
        };
        let zone = json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]});
        let named = |name: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]});
        assert_eq!(dependent(&pod(&json!({})), &node()), None);
        assert_eq!(dependent(&affinity(json!([named("n1"), zone])), &node()), None);
        let other = dependent(&affinity(json!([named("n2"), zone, {}])), &node()).unwrap();
        assert_eq!((other.what.as_str(), other.terms.len()), ("pod shop/db-0", 1));
        assert_eq!(other.terms[0].expressions[0].operator, NodeOperator::In);
        let selector = dependent(&pod(&json!({"nodeSelector": {"zone": "a"}})), &node()).unwrap();
        assert_eq!(&selector.selector["zone"], "a");
    }

    #[test]
    fn only_bound_volumes_of_the_nodes_pods_are_dependents() {
        let required: NodeSelector = serde_json::from_value(json!({"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}))
        .unwrap();
        let claim = |name: &str| ("shop".to_owned(), name.to_owned());
        let volumes = Volumes::from([
            (claim("data"), ("pv-1".to_owned(), Some(required.clone()))),
            (claim("other"), ("pv-2".to_owned(), Some(required))),
            (claim("free"), ("pv-3".to_owned(), None)),
        ]);
        let claims = BTreeSet::from([claim("data"), claim("free"), claim("unbound")]);
        let found = used(&claims, &volumes, &node());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].what, "PersistentVolume pv-1 (shop/data)");
    }
}
