//! Requests of the label writer to user clusters, behind a trait so that tests can inject faults.

pub use super::send_error::SendError;
use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Node, NodeCondition},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::Value;
use virtfleet_collector_core::{
    facts::Labels,
    labels::{evidence::Evidence, owned, plan::NodePatch},
    node_conditions::{NODE_CONDITION_PREFIX, NodeConditionPatch},
    reported::{ReportedCondition, ReportedConditions, ReportedStatus},
};
use virtfleet_wire::ids::{ClusterName, NodeName, Uid};

use super::evidence_reader::{VolumeCache, read};

/// Field manager of everything that the collector writes.
pub const FIELD_MANAGER: &str = "virtfleet";

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// A Node's metadata in the API server's answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeMetadata {
    pub uid: Option<Uid>,
    pub resource_version: Option<String>,
    pub labels: Labels,
    /// Text of its ownership annotation.
    pub owned: Option<String>,
}

/// A patch for one Node, valid only for that UID and version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetedPatch {
    pub node: NodeName,
    /// Its UID: a Node created again is not patched.
    pub uid: Uid,
    /// Its version: a Node that has changed since the plan is not patched.
    pub resource_version: String,
    pub patch: NodePatch,
}

impl TargetedPatch {
    /// The JSON merge patch; it contains metadata only.
    pub fn body(&self) -> Value {
        let version = Some(self.resource_version.as_str());
        self.patch.to_merge_patch(version, Some(self.uid.as_str()))
    }
}

/// A patch of the conditions of one Node, valid only for that UID and version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetedConditions {
    pub node: NodeName,
    /// Its UID: a Node created again is not patched.
    pub uid: Uid,
    /// Its version: a Node that has changed since the plan is not patched.
    pub resource_version: String,
    pub patch: NodeConditionPatch,
}

/// Reads and writes Nodes of user clusters.
pub trait NodeWriter: Send + Sync + 'static {
    /// Whether there is a client for this cluster.
    fn can_reach(&self, cluster: &ClusterName) -> bool;
    /// Sends a patch; returns the patched Node.
    fn patch(
        &self,
        cluster: &ClusterName,
        targeted: &TargetedPatch,
    ) -> impl Future<Output = Result<NodeMetadata, SendError>> + Send;
    /// Sends a patch of conditions; returns the Node's metadata and conditions afterwards.
    fn patch_conditions(
        &self,
        cluster: &ClusterName,
        targeted: &TargetedConditions,
    ) -> impl Future<Output = Result<(NodeMetadata, ReportedConditions), SendError>> + Send;
    fn get(
        &self,
        cluster: &ClusterName,
        node: &NodeName,
    ) -> impl Future<Output = Result<NodeMetadata, SendError>> + Send;
    /// Reads the objects that depend on a Node's labels.
    fn evidence(
        &self,
        cluster: &ClusterName,
        node: &NodeName,
    ) -> impl Future<Output = Result<Evidence, SendError>> + Send;
}

/// Provides the current client of each user cluster.
pub trait Clients: Send + Sync + 'static {
    /// The client; none without a usable kubeconfig.
    fn client(&self, cluster: &ClusterName) -> Option<Client>;
}

/// A manifest folder has no API servers.
impl Clients for () {
    fn client(&self, _cluster: &ClusterName) -> Option<Client> {
        None
    }
}

/// [`NodeWriter`] for real API servers.
pub struct KubeNodes<C> {
    clients: Arc<C>,
    volumes: VolumeCache,
}

impl<C: Clients> KubeNodes<C> {
    pub fn new(clients: Arc<C>) -> Self {
        Self {
            clients,
            volumes: VolumeCache::default(),
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

    async fn patch(
        &self,
        cluster: &ClusterName,
        targeted: &TargetedPatch,
    ) -> Result<NodeMetadata, SendError> {
        let api: Api<Node> = Api::all(self.client(cluster)?);
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let body = Patch::Merge(targeted.body());
        let sent = api.patch_metadata(targeted.node.as_str(), &params, &body);
        in_time(async { Ok(node_metadata(sent.await?.metadata)) }).await
    }

    async fn patch_conditions(
        &self,
        cluster: &ClusterName,
        targeted: &TargetedConditions,
    ) -> Result<(NodeMetadata, ReportedConditions), SendError> {
        let api: Api<Node> = Api::all(self.client(cluster)?);
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let now = format!("{:.0}", Timestamp::now());
        let body = targeted
            .patch
            .to_strategic_patch(&targeted.resource_version, targeted.uid.as_str(), &now);
        let body = Patch::Strategic(body);
        let sent = api.patch_status(targeted.node.as_str(), &params, &body);
        in_time(async {
            let node = sent.await?;
            let conditions = node.status.and_then(|status| status.conditions);
            Ok((
                node_metadata(node.metadata),
                reported(conditions.unwrap_or_default()),
            ))
        })
        .await
    }

    async fn get(&self, cluster: &ClusterName, node: &NodeName) -> Result<NodeMetadata, SendError> {
        let api: Api<Node> = Api::all(self.client(cluster)?);
        in_time(async { Ok(node_metadata(api.get_metadata(node.as_str()).await?.metadata)) }).await
    }

    async fn evidence(&self, cluster: &ClusterName, node: &NodeName) -> Result<Evidence, SendError> {
        let client = self.client(cluster)?;
        in_time(read(client, cluster, node, &self.volumes)).await
    }
}

async fn in_time<T>(request: impl Future<Output = Result<T, SendError>>) -> Result<T, SendError> {
    let late = |_| SendError::Unreachable(format!("no answer within {REQUEST_TIMEOUT:?}"));
    tokio::time::timeout(REQUEST_TIMEOUT, request)
        .await
        .map_err(late)?
}

fn node_metadata(metadata: ObjectMeta) -> NodeMetadata {
    let mut annotations = metadata.annotations.unwrap_or_default();
    NodeMetadata {
        uid: metadata.uid.and_then(|uid| uid.parse().ok()),
        resource_version: metadata.resource_version,
        labels: metadata.labels.into_iter().flatten().collect(),
        owned: annotations.remove(owned::ANNOTATION),
    }
}

/// The collector's own conditions of a Node.
fn reported(conditions: Vec<NodeCondition>) -> ReportedConditions {
    let ours = conditions.into_iter();
    let ours = ours.filter(|one| one.type_.starts_with(NODE_CONDITION_PREFIX));
    ReportedConditions::new(ours.map(|one| {
        let (reason, message) = (one.reason.as_deref(), one.message.as_deref());
        ReportedCondition::new(&one.type_, ReportedStatus::of(&one.status), reason, message)
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_patch_has_uid_and_version_and_only_metadata() {
        let targeted = TargetedPatch {
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
        let body = targeted.body();
        assert_eq!(
            body,
            json!({"metadata": {"uid": "u1", "resourceVersion": "7", "labels": {"rack": "r1", "old": null},
                "annotations": {"virtfleet.io/owned-labels": null}}})
        );
    }

    #[test]
    fn every_status_code_has_a_class() {
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
