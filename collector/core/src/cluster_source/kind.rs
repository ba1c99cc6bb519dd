//! Platforms that are sources of user clusters.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A platform that is a source of user clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum SourceKind {
    /// The seed of a Kubermatic Kubernetes Platform: its `Cluster` objects on KubeVirt.
    #[serde(rename = "KKP")]
    Kkp,
    /// A Cluster API management cluster: its `Cluster` objects with a `KubevirtCluster`.
    #[serde(rename = "ClusterAPI")]
    ClusterApi,
    /// A garden: its `Shoot` objects.
    Gardener,
}

impl SourceKind {
    pub const ALL: [Self; 3] = [Self::Kkp, Self::ClusterApi, Self::Gardener];

    /// The name in a `ClusterSource`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kkp => "KKP",
            Self::ClusterApi => "ClusterAPI",
            Self::Gardener => "Gardener",
        }
    }

    /// API group, versions (the preferred one first), kind and plural of its objects.
    pub fn resource(self) -> (&'static str, &'static [&'static str], &'static str, &'static str) {
        match self {
            Self::Kkp => ("kubermatic.k8c.io", &["v1"], "Cluster", "clusters"),
            Self::ClusterApi => ("cluster.x-k8s.io", &["v1beta2", "v1beta1"], "Cluster", "clusters"),
            Self::Gardener => ("core.gardener.cloud", &["v1beta1"], "Shoot", "shoots"),
        }
    }
}
