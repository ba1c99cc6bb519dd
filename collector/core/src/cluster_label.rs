//! The user cluster that labels name.

use virtfleet_wire::ids::ClusterName;

/// The label that names the user cluster of a VM that no `UserCluster` selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClusterLabel {
    /// Which of [`CLUSTER_LABELS`].
    pub(crate) key: &'static str,
    /// Its value.
    pub(crate) cluster: ClusterName,
}
