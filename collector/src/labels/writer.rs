//! The requests that label propagation makes to a user cluster: behind a trait, so that faults can be played.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::Value;
use virtfleet_collector_core::{
    facts::Labels,
    labels::{evidence::Evidence, owned, plan::NodePatch},
};
use virtfleet_wire::ids::{ClusterName, NodeName, Uid};

use super::evidence::{Cache, read};
use crate::{bounded::bounded, page::not_kubernetes};

/// The field manager of everything that the collector writes.
pub const FIELD_MANAGER: &str = "virtfleet";

/// How long one request may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum characters of an API server's message.
const MAX_MESSAGE: usize = 512;

/// A Node's metadata as the API server has just told it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fresh {
    /// Its UID.
    pub uid: Option<Uid>,
    /// Its version.
    pub resource_version: Option<String>,
    /// Its labels.
    pub labels: Labels,
    /// The text of its ownership annotation.
    pub owned: Option<String>,
}

/// Why a request came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// 409: the Node has changed since, or is another one by now.
    #[error("the Node has changed meanwhile")]
    Conflict,
    /// 404.
    #[error("there is no such Node")]
    Gone,
    /// 401, 403: what was said.
    #[error("not allowed: {0}; see the RBAC of the user cluster's kubeconfig")]
    Denied(String),
    /// The request itself is refused (400, 422): what was said.
    #[error("refused: {0}")]
    Refused(String),
    /// 429, 5xx, no answer in time, no connection.
    #[error("{0}")]
    Unreachable(String),
    /// There is no client for this cluster now.
    #[error("the user cluster has no usable kubeconfig now")]
    NoClient,
}

impl SendError {
    /// As a metric's label.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Gone => "gone",
            Self::Denied(_) => "denied",
            Self::Refused(_) => "refused",
            Self::Unreachable(_) => "unreachable",
            Self::NoClient => "no_client",
        }
    }
    /// Every class, and `ok`.
    pub const ALL: [&'static str; 7] = [
        "ok",
        "conflict",
        "gone",
        "denied",
        "refused",
        "unreachable",
        "no_client",
    ];
    /// Whether the cluster, rather than the Node, is at fault.
    pub fn is_clusters(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::NoClient | Self::Denied(_))
    }
}

impl From<kube::Error> for SendError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => {
                let message = bounded(&status.message, MAX_MESSAGE);
                match status.code {
                    404 => Self::Gone,
                    409 => Self::Conflict,
                    401 | 403 => Self::Denied(message),
                    400 | 405..=428 => Self::Refused(message),
                    code => Self::Unreachable(format!("{code} {message}")),
                }
            }
            // It would repeat what was read.
            kube::Error::SerdeError(error) => Self::Unreachable(not_kubernetes(&error)),
            other => Self::Unreachable(bounded(&other.to_string(), MAX_MESSAGE)),
        }
    }
}

/// A patch and the Node that it is meant for, and for no other of that name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aimed {
    /// The Node's name.
    pub node: NodeName,
    /// Its UID: a Node that was made anew is left alone.
    pub uid: Uid,
    /// Its version: a Node that has changed since it was planned for is left alone.
    pub resource_version: String,
    /// What changes.
    pub patch: NodePatch,
}

impl Aimed {
    /// The JSON merge patch: of metadata only.
    pub fn body(&self) -> Value {
        let version = Some(self.resource_version.as_str());
        self.patch.to_merge_patch(version, Some(self.uid.as_str()))
    }
}

/// What reads from and writes to the Nodes of user clusters.
pub trait NodeWriter: Send + Sync + 'static {
    /// Whether there is anybody to ask.
    fn can_reach(&self, cluster: &ClusterName) -> bool;
    /// Sends a patch; the Node as it is then.
    fn patch(
        &self,
        cluster: &ClusterName,
        aimed: &Aimed,
    ) -> impl Future<Output = Result<Fresh, SendError>> + Send;
    /// The Node as it is now.
    fn get(
        &self,
        cluster: &ClusterName,
        node: &NodeName,
    ) -> impl Future<Output = Result<Fresh, SendError>> + Send;
    /// What depends on the Node's labels now.
    fn evidence(
        &self,
        cluster: &ClusterName,
        node: &NodeName,
    ) -> impl Future<Output = Result<Evidence, SendError>> + Send;
}

/// Who knows the client of a user cluster at this moment.
pub trait Clients: Send + Sync + 'static {
    /// None when there is no usable kubeconfig.
    fn client(&self, cluster: &ClusterName) -> Option<Client>;
}

/// The manifest folder has nobody to write to.
impl Clients for () {
    fn client(&self, _cluster: &ClusterName) -> Option<Client> {
        None
    }
}

/// The user clusters' API servers.
pub struct KubeNodes<C> {
    clients: Arc<C>,
    volumes: Cache,
}

impl<C: Clients> KubeNodes<C> {
    /// Those that `clients` knows.
    pub fn new(clients: Arc<C>) -> Self {
        Self {
            clients,
            volumes: Cache::default(),
        }
    }

    fn client(&self, cluster: &ClusterName) -> Result<Client, SendError> {
        self.clients.client(cluster).ok_or(SendError::NoClient)
    }
}

impl<C: Clients> NodeWriter for KubeNodes<C> {
    fn can_reach(&self, cluster: &ClusterName) -> bool {
        self.clients.client(cluster).is_some()
    }

    async fn patch(&self, cluster: &ClusterName, aimed: &Aimed) -> Result<Fresh, SendError> {
        let api: Api<Node> = Api::all(self.client(cluster)?);
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let body = Patch::Merge(aimed.body());
        let sent = api.patch_metadata(aimed.node.as_str(), &params, &body);
        in_time(async { Ok(fresh(sent.await?.metadata)) }).await
    }

    async fn get(&self, cluster: &ClusterName, node: &NodeName) -> Result<Fresh, SendError> {
        let api: Api<Node> = Api::all(self.client(cluster)?);
        in_time(async { Ok(fresh(api.get_metadata(node.as_str()).await?.metadata)) }).await
    }

    async fn evidence(&self, cluster: &ClusterName, node: &NodeName) -> Result<Evidence, SendError> {
        let client = self.client(cluster)?;
        in_time(read(client, cluster, node, &self.volumes)).await
    }
}

async fn in_time<T>(request: impl Future<Output = Result<T, SendError>>) -> Result<T, SendError> {
    let late = |_| SendError::Unreachable(format!("no answer within {PATIENCE:?}"));
    tokio::time::timeout(PATIENCE, request).await.map_err(late)?
}

fn fresh(metadata: ObjectMeta) -> Fresh {
    let mut annotations = metadata.annotations.unwrap_or_default();
    Fresh {
        uid: metadata.uid.and_then(|uid| uid.parse().ok()),
        resource_version: metadata.resource_version,
        labels: metadata.labels.into_iter().flatten().collect(),
        owned: annotations.remove(owned::ANNOTATION),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_patch_names_its_node_and_touches_metadata_only() {
        let aimed = Aimed {
            node: "n1".parse().unwrap(),
            uid: "u1".parse().unwrap(),
            resource_version: "7".into(),
            patch: NodePatch {
                labels: [
                    ("rack".to_owned(), Some("r1".to_owned())),
                    ("old".to_owned(), None),
                ]
                .into(),
                owned: None,
            },
        };
        let body = aimed.body();
        assert_eq!(
            body,
            json!({"metadata": {"uid": "u1", "resourceVersion": "7", "labels": {"rack": "r1", "old": null},
                "annotations": {"virtfleet.io/owned-labels": null}}})
        );
    }

    #[test]
    fn every_answer_has_its_class() {
        let class = |code: u16| {
            let status = kube::core::Status {
                code,
                message: "m".into(),
                ..kube::core::Status::default()
            };
            SendError::from(kube::Error::Api(status.boxed())).as_str()
        };
        let classes = [400, 401, 403, 404, 409, 422, 429, 500, 503].map(class);
        assert_eq!(
            classes,
            [
                "refused",
                "denied",
                "denied",
                "gone",
                "conflict",
                "refused",
                "unreachable",
                "unreachable",
                "unreachable"
            ]
        );
    }
}
