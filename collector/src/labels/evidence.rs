//! Reads what depends on a Node's labels, on demand: its pods, the volumes that they use, its CSI drivers. No watch stands.
//!
//! Only what matters is decoded. The volumes of a cluster are listed for many Nodes at once and kept for a few seconds; who
//! has a claim that the kept list does not have lists again.

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
    core::{NotUsed, Object, Request},
};
use serde::Deserialize;
use tokio::{sync::Mutex, time::Instant};
use virtfleet_collector_core::{
    facts::Labels,
    labels::evidence::{Dependent, Evidence, NodeOperator, NodeRequirement, Term},
};
use virtfleet_wire::ids::{ClusterName, NodeName};

use super::writer::SendError;
use crate::page::Page;

/// How long a list of volumes serves further Nodes.
const KEPT: Duration = Duration::from_secs(5);
/// Objects in one page of a list: pods have some tens of KiB, and an answer may have 4 MiB.
const PAGE: u32 = 100;
/// Objects and bytes that a whole list may have. A cluster of 5,000 Nodes has some thousands of volumes, of 2 KiB each.
const MAX_LIST: (usize, usize) = (20_000, 32 << 20);

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
    /// A claim of the pod's own, named after it.
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

type NarrowPod = Object<PodSpec, NotUsed>;
type NarrowPv = Object<PvSpec, NotUsed>;
type NarrowCsi = Object<CsiSpec, NotUsed>;

/// A claim's namespace and name, and the volume that is bound to it.
type Volumes = BTreeMap<(String, String), (String, Option<NodeSelector>)>;

/// One cluster's volumes, and when they were asked for. Its lock is held while they are listed, so that Nodes that need them
/// together ask once.
type Kept = Arc<Mutex<Option<(Instant, Arc<Volumes>)>>>;

/// The volumes of each cluster; see the module.
#[derive(Debug, Default)]
pub(super) struct Cache(std::sync::Mutex<BTreeMap<ClusterName, Kept>>);

impl Cache {
    fn of(&self, cluster: &ClusterName) -> Kept {
        let mut all = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Arc::clone(all.entry(cluster.clone()).or_default())
    }
}

/// Everything at once; half of it would be taken for all.
pub(super) async fn read(
    client: Client,
    cluster: &ClusterName,
    node: &NodeName,
    cache: &Cache,
) -> Result<Evidence, SendError> {
    let asked = Instant::now();
    let (pods, csi) = tokio::try_join!(pods(client.clone(), node), csi(client.clone(), node))?;
    let claims = claims(&pods);
    let volumes = if claims.is_empty() {
        Arc::default()
    } else {
        volumes(client, &cache.of(cluster), &claims, asked).await?
    };
    Ok(Evidence {
        volumes: used(&claims, &volumes, node),
        csi,
        pods: pods.iter().filter_map(|pod| dependent(pod, node)).collect(),
    })
}

async fn pods(client: Client, node: &NodeName) -> Result<Vec<NarrowPod>, SendError> {
    let api: Api<NarrowPod> = Api::all_with(client, &ApiResource::erase::<Pod>(&()));
    let fields = format!("spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed");
    list(&api, ListParams::default().fields(&fields)).await
}

async fn csi(client: Client, node: &NodeName) -> Result<Vec<(String, Vec<String>)>, SendError> {
    let resource = ApiResource::erase::<k8s_openapi::api::storage::v1::CSINode>(&());
    let api: Api<NarrowCsi> = Api::all_with(client, &resource);
    let found = api.get_opt(node.as_str()).await?;
    let drivers = found.map(|found| found.spec.drivers).unwrap_or_default();
    let drivers = drivers.into_iter();
    Ok(drivers
        .map(|driver| (driver.name, driver.topology_keys.unwrap_or_default()))
        .collect())
}

async fn volumes(
    client: Client,
    kept: &Kept,
    claims: &BTreeSet<(String, String)>,
    asked: Instant,
) -> Result<Arc<Volumes>, SendError> {
    let mut kept = kept.lock().await;
    if let Some((at, volumes)) = kept.as_ref() {
        let fresh = *at >= asked;
        let complete = at.elapsed() < KEPT && claims.iter().all(|claim| volumes.contains_key(claim));
        if fresh || complete {
            return Ok(Arc::clone(volumes));
        }
    }
    let at = Instant::now();
    let api: Api<NarrowPv> = Api::all_with(client, &ApiResource::erase::<PersistentVolume>(&()));
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

async fn list<P, U>(api: &Api<Object<P, U>>, params: ListParams) -> Result<Vec<Object<P, U>>, SendError>
where
    P: Clone + std::fmt::Debug + for<'de> Deserialize<'de>,
    U: Clone + Default + std::fmt::Debug + for<'de> Deserialize<'de>,
{
    let mut params = params.limit(PAGE);
    let (mut all, mut pages, mut bytes) = (Vec::new(), 0, 0);
    loop {
        let request = Request::new(api.resource_url()).list(&params);
        let request = request.map_err(|error| SendError::Unreachable(error.to_string()))?;
        let text = api.clone().into_client().request_text(request).await?;
        let page: Page<Object<P, U>> =
            Page::read(&text, PAGE as usize).map_err(|error| SendError::Unreachable(error.to_string()))?;
        (pages, bytes) = (pages + 1, bytes + text.len());
        all.extend(page.items);
        if all.len().max(pages) > MAX_LIST.0 || bytes > MAX_LIST.1 {
            let (objects, bytes) = MAX_LIST;
            return Err(SendError::Unreachable(format!(
                "a list has more than {objects} objects or {bytes} bytes"
            )));
        }
        match page.more {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(all),
        }
    }
}

fn name_of(pod: &NarrowPod) -> (String, String) {
    let metadata = &pod.metadata;
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    (part(&metadata.namespace), part(&metadata.name))
}

fn claims(pods: &[NarrowPod]) -> BTreeSet<(String, String)> {
    let of = |pod: &NarrowPod| {
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

fn dependent(pod: &NarrowPod, node: &NodeName) -> Option<Dependent> {
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

/// The terms that may hold on this Node. None when one of them holds whatever the labels are, as that of a DaemonSet's pod
/// does, which names its Node in `matchFields`.
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
        // A term that asks for nothing matches nothing.
    }
    terms
}

/// `metadata.name` is the only field that there is.
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
            // Of a later Kubernetes. What it asks for is not known, so it is taken to ask for each value of now: `In` with
            // none holds nowhere, and the key counts as depended on.
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

    fn pod(spec: &serde_json::Value) -> NarrowPod {
        serde_json::from_value(json!({"metadata": {"namespace": "shop", "name": "db-0"}, "spec": spec}))
            .unwrap()
    }

    fn node() -> NodeName {
        "n1".parse().unwrap()
    }

    #[test]
    fn a_pods_claims_are_named_and_its_own() {
        let found = claims(&[pod(&json!({"containers": [], "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
            {"name": "tmp", "emptyDir": {}},
        ]}))]);
        let names: Vec<_> = found.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["data-db-0", "db-0-scratch"]);
    }

    #[test]
    fn pods_without_requirement_and_daemons_depend_on_nothing() {
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
    fn only_bound_volumes_that_a_pod_here_uses_count() {
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
