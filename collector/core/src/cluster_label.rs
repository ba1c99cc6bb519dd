//! The user cluster that labels name.

use virtfleet_wire::ids::ClusterName;

/// The label that names the user cluster of a VM that no `UserCluster` selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterLabel {
    /// Which of [`crate::pending::CLUSTER_LABELS`].
    pub key: &'static str,
    pub cluster: ClusterName,
}
