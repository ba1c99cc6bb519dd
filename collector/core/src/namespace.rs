//! Namespaces of the infra cluster.

use virtfleet_wire::ids::Namespace;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InfraNamespace {
    pub name: Namespace,
    /// It has the annotation [`IGNORE_ANNOTATION`](crate::managed::IGNORE_ANNOTATION): the agents
    /// of its VMs are not to be dialled.
    pub is_ignored: bool,
}
