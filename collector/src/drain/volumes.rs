//! VmVolumes of the VMs on an infra node: claims of their virt-launcher pods, and of the pods that
//! attach hot-plugged volumes, with the PersistentVolumes to which they are bound.
//!
//! Both are read by name, so the right to list them is not needed.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::{
    NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume, PersistentVolumeClaim, Pod,
    VolumeNodeAffinity,
};
use kube::{
    Api, Client,
    api::{ApiResource, ListParams},
    core::{NotUsed, Object},
};
use serde::Deserialize;
use virtfleet_collector_core::{
    placement::VmVolume,
    scheduling::{MAX_RULES, MAX_VALUES, NodeComparison, NodeExpression, NodeTerm},
};
use virtfleet_wire::ids::{Namespace, NodeName, VmKey};

use super::{
    failure::gap,
    limits::MAX_CONCURRENT_REQUESTS,
    pods::{PodVolume, claim_names},
    riding_vm::RidingVm,
};
use crate::{
    bounded::bounded,
    paged_list::{ListError, list},
};

/// Label of the pods that have the volumes of a VM, with its values.
const POD_SELECTOR: &str = "kubevirt.io in (virt-launcher,hotplug-disk)";
/// Maximum claims of one drain.
const MAX_CLAIMS: usize = 2_000;
/// Maximum characters of a sentence about node affinity.
const MAX_AFFINITY_CHARS: usize = 200;
/// The manifest that grants the rights, and where.
const MANIFEST: (&str, &str) = ("the infra cluster", "infra/rbac.yaml");

/// The volumes of each VM, and gaps.
pub(super) type VmVolumes = (BTreeMap<VmKey, Vec<VmVolume>>, Vec<String>);

#[derive(Debug, Clone, Deserialize)]
struct VolumePodSpec {
    #[serde(default)]
    volumes: Vec<PodVolume>,
}

type VolumePod = Object<VolumePodSpec, NotUsed>;

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimSpec {
    #[serde(default)]
    access_modes: Vec<String>,
    storage_class_name: Option<String>,
    volume_name: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct ClaimStatus {
    phase: Option<String>,
}

type ClaimFields = Object<ClaimSpec, ClaimStatus>;

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct VolumeSpec {
    node_affinity: Option<VolumeNodeAffinity>,
}

type VolumeFields = Object<VolumeSpec, NotUsed>;

/// The volumes of `vms`, which run on `host`.
pub(super) async fn read(client: &Client, vms: &[RidingVm], host: &NodeName) -> VmVolumes {
    let namespaces: BTreeSet<&Namespace> = vms.iter().map(|vm| &vm.key.namespace).collect();
    let pods = stream::iter(namespaces.into_iter().cloned()).map(|namespace| async move {
        let pods = pods(client.clone(), &namespace, host).await;
        (namespace, pods)
    });
    let (mut claims, mut gaps) = (BTreeSet::new(), Vec::new());
    for (namespace, pods) in pods.buffered(MAX_CONCURRENT_REQUESTS).collect::<Vec<_>>().await {
        match pods {
            Ok(pods) => claims.extend(claims_of(&pods, vms, &namespace)),
            Err(error) => {
                let what = format!("volumes of the VMs in {namespace}");
                gaps.push(gap(&what, &error, "list pods", MANIFEST));
            }
        }
    }
    if claims.len() > MAX_CLAIMS {
        let more = claims.len() - MAX_CLAIMS;
        gaps.push(format!("{more} volumes of VMs: only {MAX_CLAIMS} are read"));
    }
    let read = stream::iter(claims.into_iter().take(MAX_CLAIMS)).map(|(vm, claim)| async move {
        let volume = volume(client, &vm.namespace, claim).await;
        (vm, volume)
    });
    let mut found: BTreeMap<VmKey, Vec<VmVolume>> = BTreeMap::new();
    // Each missing right is one gap, not one per volume.
    let mut failures = BTreeMap::new();
    for (vm, (volume, failure)) in read.buffered(MAX_CONCURRENT_REQUESTS).collect::<Vec<_>>().await {
        if let Some(text) = failure {
            *failures.entry(text).or_insert(0) += 1;
        }
        found.entry(vm).or_default().push(volume);
    }
    gaps.extend(failures.into_iter().map(|(text, count)| match count {
        1 => text,
        count => format!("{text} ({count} volumes)"),
    }));
    (found, gaps)
}

async fn pods(client: Client, namespace: &Namespace, host: &NodeName) -> Result<Vec<VolumePod>, ListError> {
    let resource = ApiResource::erase::<Pod>(&());
    let api: Api<VolumePod> = Api::namespaced_with(client, namespace.as_str(), &resource);
    let fields = format!("spec.nodeName={host},status.phase!=Succeeded,status.phase!=Failed");
    list(&api, ListParams::default().fields(&fields).labels(POD_SELECTOR)).await
}

/// The claims of each VM: of pods that its VMI owns, and of pods that such a pod owns.
fn claims_of(pods: &[VolumePod], vms: &[RidingVm], namespace: &Namespace) -> BTreeSet<(VmKey, String)> {
    let owner = |pod: &VolumePod| {
        let owners = pod.metadata.owner_references.iter().flatten();
        let mut controllers = owners.filter(|owner| owner.controller == Some(true));
        controllers.next().map(|owner| owner.uid.clone())
    };
    let vms: BTreeMap<&str, &VmKey> = vms
        .iter()
        .filter(|vm| vm.key.namespace == *namespace)
        .filter_map(|vm| Some((vm.uid.as_deref()?, &vm.key)))
        .collect();
    let launchers: BTreeMap<String, &VmKey> = pods
        .iter()
        .filter_map(|pod| {
            let vm = vms.get(owner(pod)?.as_str())?;
            Some((pod.metadata.uid.clone()?, *vm))
        })
        .collect();
    let mut claims = BTreeSet::new();
    for pod in pods {
        let Some(owner) = owner(pod) else { continue };
        let vm = vms.get(owner.as_str()).or_else(|| launchers.get(&owner));
        let Some(vm) = vm else { continue };
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        for claim in claim_names(name, &pod.spec.volumes) {
            claims.insert(((*vm).clone(), claim));
        }
    }
    claims
}

/// A volume with what could be read about it, and what could not.
async fn volume(client: &Client, namespace: &Namespace, claim: String) -> (VmVolume, Option<String>) {
    let mut volume = VmVolume {
        claim,
        ..VmVolume::default()
    };
    let resource = ApiResource::erase::<PersistentVolumeClaim>(&());
    let api: Api<ClaimFields> = Api::namespaced_with(client.clone(), namespace.as_str(), &resource);
    let read = match api.get_opt(&volume.claim).await {
        Ok(read) => read,
        Err(error) => {
            let what = "storage classes and zones of volumes";
            let gap = gap(what, &error.into(), "get persistentvolumeclaims", MANIFEST);
            return (volume, Some(gap));
        }
    };
    let Some(read) = read else {
        return (volume, None);
    };
    volume.phase = read.status.and_then(|status| status.phase);
    volume.storage_class = read.spec.storage_class_name;
    volume.access_modes = read.spec.access_modes;
    volume.volume = read.spec.volume_name.filter(|name| !name.is_empty());
    let Some(name) = &volume.volume else {
        return (volume, None);
    };
    let api: Api<VolumeFields> = Api::all_with(client.clone(), &ApiResource::erase::<PersistentVolume>(&()));
    match api.get_opt(name).await {
        Ok(read) => {
            let affinity = read.and_then(|read| read.spec.node_affinity);
            if let Some(required) = affinity.and_then(|affinity| affinity.required) {
                let terms: Vec<NodeTerm> = required.node_selector_terms.iter().map(term).collect();
                volume.bound_to = Some(sentence(&terms));
                volume.terms = Some(terms.into());
            }
            (volume, None)
        }
        Err(error) => {
            let gap = gap(
                "zones of volumes",
                &error.into(),
                "get persistentvolumes",
                MANIFEST,
            );
            (volume, Some(gap))
        }
    }
}

/// A term of a volume's node affinity. An operator of a later Kubernetes matches no node, as the
/// scheduler of this one does.
fn term(read: &NodeSelectorTerm) -> NodeTerm {
    let expression = |one: &NodeSelectorRequirement, is_field| NodeExpression {
        key: one.key.clone().into(),
        operator: NodeComparison::of(&one.operator).unwrap_or(NodeComparison::In),
        values: one
            .values
            .iter()
            .flatten()
            .filter(|_| NodeComparison::of(&one.operator).is_some())
            .take(MAX_VALUES)
            .map(|value| value.clone().into_boxed_str())
            .collect(),
        is_field,
    };
    let labels = read.match_expressions.iter().flatten();
    let fields = read.match_fields.iter().flatten();
    let labels = labels.map(|one| expression(one, false));
    let all = labels.chain(fields.map(|one| expression(one, true)));
    NodeTerm(all.take(MAX_RULES).collect())
}

fn sentence(terms: &[NodeTerm]) -> String {
    let term = |term: &NodeTerm| {
        let parts: Vec<String> = term.0.iter().map(ToString::to_string).collect();
        parts.join(", ")
    };
    let all: Vec<String> = terms.iter().map(term).collect();
    bounded(&all.join(" or "), MAX_AFFINITY_CHARS)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, uid: &str, owner: &str, claims: &[&str]) -> VolumePod {
        let volumes: Vec<Value> = claims
            .iter()
            .map(|claim| json!({ "name": "v", "persistentVolumeClaim": { "claimName": claim } }))
            .collect();
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "namespace": "ns", "name": name, "uid": uid, "ownerReferences": [
                { "apiVersion": "v1", "kind": "K", "name": "n", "uid": owner, "controller": true }] },
            "spec": { "volumes": volumes },
        }))
        .unwrap()
    }

    #[test]
    fn claims_are_those_of_the_launcher_and_of_its_attachment_pods() {
        let key = VmKey {
            namespace: "ns".parse().unwrap(),
            name: "vm-1".parse().unwrap(),
        };
        let vms = [RidingVm {
            key: key.clone(),
            uid: Some("vmi-1".to_owned()),
        }];
        let pods = [
            pod("hp-volume-x", "p2", "p1", &["plugged"]),
            pod("virt-launcher-vm-1", "p1", "vmi-1", &["root", "data"]),
            // Whoever may create pods may set the label, but not the UID of the VMI as its owner's.
            pod("virt-launcher-fake", "p3", "vmi-9", &["of-another"]),
            pod("hp-volume-fake", "p4", "p3", &["of-another"]),
        ];
        let found = claims_of(&pods, &vms, &key.namespace);
        let names: Vec<&str> = found.iter().map(|(_, claim)| claim.as_str()).collect();
        assert_eq!(names, ["data", "plugged", "root"]);
        assert!(found.iter().all(|(vm, _)| *vm == key));
    }

    #[test]
    fn node_affinity_is_a_sentence_and_an_unknown_operator_matches_nothing() {
        let read = |terms: Value| -> Vec<NodeTerm> {
            let terms: Vec<NodeSelectorTerm> = serde_json::from_value(terms).unwrap();
            terms.iter().map(term).collect()
        };
        let terms = read(json!([
            { "matchExpressions": [{ "key": "zone", "operator": "In", "values": ["a", "b"] },
                                   { "key": "local", "operator": "Exists" }] },
            { "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["h1"] }] },
        ]));
        assert_eq!(sentence(&terms), "zone in (a, b), local or metadata.name in (h1)");
        let later =
            read(json!([{ "matchExpressions": [{ "key": "zone", "operator": "Near", "values": ["a"] }] }]));
        let labels = [("zone", "a")].into_iter().collect();
        let node = virtfleet_collector_core::scheduling::NodeTraits {
            name: "h1",
            labels: &labels,
        };
        assert!(!later[0].matches(node));
        let long = sentence(&vec![terms[0].clone(); 99]);
        assert_eq!(long.chars().count(), MAX_AFFINITY_CHARS + "…".chars().count());
    }
}
