//! Where GuestHealth objects are kept: behind a trait, so that faults can be played.

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

/// The label of a GuestHealth that names the user cluster of its VM: `kubectl get guesthealths -A -l virtfleet.io/cluster=prod`.
pub(super) const CLUSTER: &str = "virtfleet.io/cluster";

/// How long one request may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Objects in one page of a list.
const PAGE: u32 = 500;

/// A GuestHealth as it is kept. There is one for each VM, so what it says is kept as text.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Stored {
    /// UID of its owner; none when it has none.
    pub owner: Option<String>,
    /// The user cluster that its label [`CLUSTER`] names.
    pub cluster: Option<String>,
    /// Its own UID.
    pub uid: Option<String>,
    /// What it says, in JSON; empty when it says nothing.
    said: Box<[u8]>,
}

impl Stored {
    /// One that says this.
    pub fn new(
        owner: Option<String>,
        cluster: Option<String>,
        uid: Option<String>,
        status: &GuestHealthStatus,
    ) -> Self {
        // Words, lists and flags: there is nothing in it that JSON cannot hold.
        let said = serde_json::to_vec(status).unwrap_or_default().into();
        Self {
            owner,
            cluster,
            uid,
            said,
        }
    }

    /// What it says.
    pub fn status(&self) -> GuestHealthStatus {
        serde_json::from_slice(&self.said).unwrap_or_default()
    }
}

/// See the module.
pub trait HealthStore: Send + Sync + 'static {
    /// All that there are.
    fn list(&self) -> impl Future<Output = Result<BTreeMap<VmKey, Stored>, SendError>> + Send;
    /// Makes it be there with this owner, and with the label [`CLUSTER`] for this user cluster.
    fn own(
        &self,
        key: &VmKey,
        owner: &OwnerReference,
        cluster: Option<&str>,
    ) -> impl Future<Output = Result<(), SendError>> + Send;
    /// Says something else.
    fn say(
        &self,
        key: &VmKey,
        status: &GuestHealthStatus,
    ) -> impl Future<Output = Result<(), SendError>> + Send;
    /// Removes it, if it is still this one.
    fn delete(&self, key: &VmKey, uid: Option<&str>) -> impl Future<Output = Result<(), SendError>> + Send;
}

/// The VirtualMachine, else the VMI; none when neither has a UID.
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

/// The infra cluster.
pub struct KubeHealth {
    client: Client,
    namespaces: Vec<Namespace>,
}

impl KubeHealth {
    /// All namespaces, or these.
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
            let mut params = ListParams::default().limit(PAGE);
            loop {
                let page = in_time(api.list(&params)).await?;
                all.extend(page.items.into_iter().filter_map(stored));
                match page.metadata.continue_.filter(|token| !token.is_empty()) {
                    Some(token) => params = params.continue_token(&token),
                    None => break,
                }
            }
        }
        Ok(all)
    }

    async fn own(&self, key: &VmKey, owner: &OwnerReference, cluster: Option<&str>) -> Result<(), SendError> {
        let labels: BTreeMap<_, _> = cluster.map(|cluster| (CLUSTER, cluster)).into_iter().collect();
        let body = json!({
            "apiVersion": "virtfleet.io/v1alpha1",
            "kind": "GuestHealth",
            "metadata": { "name": key.name, "namespace": key.namespace, "ownerReferences": [owner], "labels": labels },
        });
        let params = PatchParams::apply(FIELD_MANAGER).force();
        in_time(
            self.api(key)
                .patch(key.name.as_str(), &params, &Patch::Apply(&body)),
        )
        .await
        .map(drop)
    }

    async fn say(&self, key: &VmKey, status: &GuestHealthStatus) -> Result<(), SendError> {
        let body = json!({
            "apiVersion": "virtfleet.io/v1alpha1",
            "kind": "GuestHealth",
            "status": status,
        });
        let params = PatchParams::apply(FIELD_MANAGER).force();
        in_time(
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
        in_time(self.api(key).delete(key.name.as_str(), &params))
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
    let cluster = metadata.labels.unwrap_or_default().remove(CLUSTER);
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

async fn in_time<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, SendError> {
    match tokio::time::timeout(PATIENCE, request).await {
        Ok(answer) => answer.map_err(SendError::from),
        Err(_) => Err(SendError::Unreachable(format!("no answer within {PATIENCE:?}"))),
    }
}
