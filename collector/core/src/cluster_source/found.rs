//! A cluster as a source has it.

use std::collections::BTreeMap;

use crate::facts::Labels;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceCluster {
    /// `namespace/name`, or the name of a cluster-scoped object.
    pub key: String,
    /// Its namespace, if it has one.
    pub namespace: Option<String>,
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    pub labels: Labels,
    pub user_cluster: String,
    /// The namespace of its VMs in the infra cluster; none if the source does not say.
    pub vm_namespace: Option<String>,
    /// Labels of its VMs, for a namespace that several clusters share.
    pub vm_labels: BTreeMap<String, String>,
    /// Where the source keeps its kubeconfigs: the namespace of the Secrets.
    pub credential_namespace: Option<String>,
    /// Whether its nodes are VMs of KubeVirt, as far as the source says.
    pub is_on_kubevirt: bool,
    /// Whether it is reconciled, paused, off or being deleted.
    pub condition: ClusterCondition,
}

/// Whether a cluster is reconciled, paused, off or being deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterCondition {
    /// It is reconciled.
    Active,
    /// The platform leaves it as it is.
    Paused,
    /// Its control plane is off.
    Hibernated,
    Deleting,
}
