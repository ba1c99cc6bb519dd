//! User clusters and their Nodes.

use std::{collections::BTreeSet, sync::Arc};

use virtfleet_wire::ids::{ClusterName, Namespace, NodeName, Uid, Uuid, VmName};

use super::{Labels, Selector};
use crate::{
    host_port::HostPort, node_conditions::NodeConditionKind, reported::ReportedConditions, scheduling::Taint,
};

/// A `UserCluster`: selects the VMIs of one tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserCluster {
    pub name: ClusterName,
    /// `spec.vmis.namespace`: the namespace in the infra cluster that holds its VMIs; others may
    /// share it.
    pub namespace: Namespace,
    /// `spec.vmis.selector`: which of them; empty selects all in the namespace.
    pub selector: Selector,
    /// Its labels, by which a `LabelPropagation` selects it.
    pub labels: Labels,
    /// `spec.suspend`, or it is being deleted: nothing is written to the user cluster, but its
    /// Nodes' conditions are removed.
    pub suspend: bool,
    /// `spec.relay.address`: the agents of its VMs are dialled through this relay.
    pub relay: Option<HostPort>,
    /// `spec.nodeAuthorities`: the authorities of its kubelets' client certificates, in PEM.
    pub node_authorities: Option<Arc<str>>,
    /// `spec.nodeConditions`: conditions of the VMs' health that are written to their Nodes.
    pub node_conditions: BTreeSet<NodeConditionKind>,
}

impl UserCluster {
    /// The conditions that its Nodes shall have; none while it is suspended.
    pub fn requested_conditions(&self) -> BTreeSet<NodeConditionKind> {
        if self.suspend {
            BTreeSet::new()
        } else {
            self.node_conditions.clone()
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserNode {
    pub cluster: ClusterName,
    pub name: NodeName,
    pub uid: Option<Uid>,
    /// `metadata.creationTimestamp` in milliseconds since 1970.
    pub created_ms: Option<u64>,
    pub labels: Labels,
    /// `spec.providerID`, e.g. `kubevirt://worker-0`.
    pub provider_id: Option<String>,
    /// `status.nodeInfo.systemUUID`, the DMI product UUID that its kubelet read; none when it is no
    /// UUID.
    pub system_uuid: Option<Uuid>,
    /// The `Ready` condition; none when it is absent or `Unknown`.
    pub ready: Option<bool>,
    /// `status.conditions`.
    pub conditions: ReportedConditions,
    /// When its kubelet has reported last, by the kubelet's clock, in milliseconds since 1970
    /// (`lastHeartbeatTime` of `Ready`); of a live cluster only, and no change of the Node.
    pub reported_ms: Option<u64>,
    /// `spec.unschedulable`: the Node is cordoned.
    pub unschedulable: bool,
    /// `spec.taints`.
    pub taints: Box<[Taint]>,
    /// The text of the annotation `virtfleet.io/owned-labels`.
    pub owned: Option<String>,
    /// Keys of labels that its kubelet wrote last, from `metadata.managedFields`.
    pub kubelet_labels: BTreeSet<String>,
    /// `metadata.resourceVersion`, of a live cluster. Every heartbeat changes it, so a new version
    /// alone is not a change.
    pub resource_version: Option<String>,
}

impl UserNode {
    /// A Node of which only the names are known.
    pub fn new(cluster: ClusterName, name: NodeName) -> Self {
        Self {
            cluster,
            name,
            uid: None,
            created_ms: None,
            labels: Labels::new(),
            provider_id: None,
            system_uuid: None,
            ready: None,
            conditions: ReportedConditions::default(),
            reported_ms: None,
            unschedulable: false,
            taints: Box::default(),
            owned: None,
            kubelet_labels: BTreeSet::new(),
            resource_version: None,
        }
    }

    /// Whether `other` is equal or differs in the version and the time of the report only.
    pub fn same_except_version(&self, other: &Self) -> bool {
        let Self {
            cluster,
            name,
            uid,
            created_ms,
            labels,
            provider_id,
            system_uuid,
            ready,
            conditions,
            reported_ms: _,
            unschedulable,
            taints,
            owned,
            kubelet_labels,
            resource_version: _,
        } = self;
        (cluster, name, uid, labels) == (&other.cluster, &other.name, &other.uid, &other.labels)
            && (provider_id, ready, owned) == (&other.provider_id, &other.ready, &other.owned)
            && *created_ms == other.created_ms
            && (system_uuid, kubelet_labels) == (&other.system_uuid, &other.kubelet_labels)
            && (conditions, unschedulable, taints) == (&other.conditions, &other.unschedulable, &other.taints)
    }

    /// The VM's name in `kubevirt://<name>`.
    pub fn provider_vm(&self) -> Option<VmName> {
        self.provider_id
            .as_deref()?
            .strip_prefix("kubevirt://")?
            .parse()
            .ok()
    }
}
