//! Storage of GuestHealth objects, behind a trait so that tests can inject errors.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
};
use serde_json::json;
use virtfleet_collector_core::index::Owners;
use virtfleet_wire::ids::{Namespace, VmKey};

use crate::{
    labels::{FIELD_MANAGER, SendError},
    objects::{GuestHealth, GuestHealthStatus},
};

/// Label of a GuestHealth with the user cluster of its VM: `kubectl get guesthealths -A -l
/// virtfleet.io/cluster=prod`.
pub(super) const CLUSTER_LABEL: &str = "virtfleet.io/cluster";

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum objects in one page of a list.
const PAGE_SIZE: u32 = 500;

/// A stored GuestHealth. There is one for each VM, so the status is kept as compact text.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Stored {
    /// UID of its owner; none without an owner.
    pub owner: Option<String>,
    /// The user cluster in its label [`CLUSTER_LABEL`].
    pub cluster: Option<String>,
    /// Its own UID.
    pub uid: Option<String>,
    /// Its status as JSON; empty without a status.
    described: Box<[u8]>,
}

impl Stored {
    /// A stored object with these values.
    pub fn new(
        owner: Option<String>,
        cluster: Option<String>,
        uid: Option<String>,
        status: &GuestHealthStatus,
    ) -> Self {
        // Only strings, lists and flags, which JSON can always represent.
        let described = serde_json::to_vec(status).unwrap_or_default().into();
        Self {
            owner,
            cluster,
            uid,
            described,
        }
    }

    pub fn status(&self) -> GuestHealthStatus {
        serde_json::from_slice(&self.described).unwrap_or_default()
    }
}

/// Storage of GuestHealth objects.
pub trait HealthStore: Send + Sync + 'static {
    /// Lists all objects.
    fn list(&self) -> impl Future<Output = Result<BTreeMap<VmKey, Stored>, SendError>> + Send;
    /// Creates the object, or updates its owner and its label [`CLUSTER_LABEL`].
    fn apply(
        &self,
        key: &VmKey,
        owner: &OwnerReference,
        cluster: Option<&str>,
    ) -> impl Future<Output = Result<(), SendError>> + Send;
    fn write_status(
        &self,
        key: &VmKey,
        status: &GuestHealthStatus,
    ) -> impl Future<Output = Result<(), SendError>> + Send;
    /// Deletes the object if it still has this UID.
    fn delete(&self, key: &VmKey, uid: Option<&str>) -> impl Future<Output = Result<(), SendError>> + Send;
}

/// The owner reference: the VirtualMachine, else the VMI; none if neither has a UID.
pub(super) fn owner(key: &VmKey, owners: &Owners) -> Option<OwnerReference> {
    let kinds = [
        ("VirtualMachine", &owners.vm),
        ("VirtualMachineInstance", &owners.vmi),
    ];
    let (kind, uid) = kinds
        .into_iter()
        .find_map(|(kind, uid)| Some((kind, uid.as_ref()?)))?;
    Some(OwnerReference {
        api_version: "kubevirt.io/v1".to_owned(),
        kind: kind.to_owned(),
        name: key.name.to_string(),
        uid: uid.to_string(),
        ..OwnerReference::default()
    })
}

/// Storage in the infra cluster.
pub struct KubeHealth {
    client: Client,
    namespaces: Vec<Namespace>,
}

impl KubeHealth {
    /// All namespaces if `namespaces` is empty, else these.
    pub fn new(client: Client, namespaces: Vec<Namespace>) -> Self {
        Self { client, namespaces }
    }

    fn api(&self, key: &VmKey) -> Api<GuestHealth> {
        Api::namespaced(self.client.clone(), key.namespace.as_str())
    }
}

impl HealthStore for KubeHealth {
    async fn list(&self) -> Result<BTreeMap<VmKey, Stored>, SendError> {
        let apis: Vec<Api<GuestHealth>> = if self.namespaces.is_empty() {
            vec![Api::all(self.client.clone())]
        } else {
            let namespaced = |name: &Namespace| Api::namespaced(self.client.clone(), name.as_str());
            self.namespaces.iter().map(namespaced).collect()
        };
        let mut all = BTreeMap::new();
        for api in apis {
            let mut params = ListParams::default().limit(PAGE_SIZE);
            loop {
                let page = with_timeout(api.list(&params)).await?;
                all.extend(page.items.into_iter().filter_map(stored));
                match page.metadata.continue_.filter(|token| !token.is_empty()) {
                    Some(token) => params = params.continue_token(&token),
                    None => break,
                }
            }
        }
        Ok(all)
    }

    async fn apply(
        &self,
        key: &VmKey,
        owner: &OwnerReference,
        cluster: Option<&str>,
    ) -> Result<(), SendError> {
        let labels: BTreeMap<_, _> = cluster
            .map(|cluster| (CLUSTER_LABEL, cluster))
            .into_iter()
            .collect();
        let body = json!({
            "apiVersion": "virtfleet.io/v1alpha1",
            "kind": "GuestHealth",
            "metadata": { "name": key.name, "namespace": key.namespace, "ownerReferences": [owner], "labels": labels },
        });
        let params = PatchParams::apply(FIELD_MANAGER).force();
        with_timeout(
            self.api(key)
                .patch(key.name.as_str(), &params, &Patch::Apply(&body)),
        )
        .await
        .map(drop)
    }

    async fn write_status(&self, key: &VmKey, status: &GuestHealthStatus) -> Result<(), SendError> {
        let body = json!({
            "apiVersion": "virtfleet.io/v1alpha1",
            "kind": "GuestHealth",
            "status": status,
        });
        let params = PatchParams::apply(FIELD_MANAGER).force();
        with_timeout(
            self.api(key)
                .patch_status(key.name.as_str(), &params, &Patch::Apply(&body)),
        )
        .await
        .map(drop)
    }

    async fn delete(&self, key: &VmKey, uid: Option<&str>) -> Result<(), SendError> {
        let params = DeleteParams {
            preconditions: uid.map(|uid| Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        with_timeout(self.api(key).delete(key.name.as_str(), &params))
            .await
            .map(drop)
    }
}

fn stored(object: GuestHealth) -> Option<(VmKey, Stored)> {
    let metadata = object.metadata;
    let key = VmKey {
        namespace: metadata.namespace?.parse().ok()?,
        name: metadata.name?.parse().ok()?,
    };
    let owner = metadata.owner_references.unwrap_or_default().into_iter().next();
    let cluster = metadata.labels.unwrap_or_default().remove(CLUSTER_LABEL);
    Some((
        key,
        Stored::new(
            owner.map(|owner| owner.uid),
            cluster,
            metadata.uid,
            &object.status.unwrap_or_default(),
        ),
    ))
}

async fn with_timeout<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, SendError> {
    match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(answer) => answer.map_err(SendError::from),
        Err(_) => Err(SendError::Unreachable(format!(
            "no answer within {REQUEST_TIMEOUT:?}"
        ))),
    }
}
