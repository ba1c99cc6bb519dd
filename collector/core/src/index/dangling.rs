//! Findings about names that lead nowhere, and about clusters that cannot be told apart.

use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::{ClusterName, NodeName},
};

use super::FleetIndex;
use crate::findings;

impl FleetIndex {
    /// Updates the finding about a node that VMIs name and that is not in the inventory.
    pub(super) fn check_host(&mut self, name: &NodeName) {
        let missing = !self.store.infra_nodes.contains_key(name) && self.store.vms_by_host.contains_key(name);
        let message = format!(
            "VMIs run on the node {name}, which is not in the inventory, so their zone and region are unknown"
        );
        let subject = ("InfraNode", name.as_str());
        let found = Finding::new(
            findings::INFRA_NODE_UNKNOWN,
            Severity::Warning,
            subject,
            "InfraNodeUnknown",
            message,
        )
        .remedy(format!(
            "add the Node to the inventory: kubectl get node {name} -o yaml"
        ));
        self.set_dangling(missing, found);
    }

    /// Updates the finding about a cluster that has Nodes and no `UserCluster`.
    pub(super) fn check_cluster(&mut self, name: &ClusterName) {
        let missing = !self.store.clusters.contains_key(name) && self.store.user_nodes.contains_key(name);
        let message = format!(
            "the inventory has Nodes of the cluster {name} but no UserCluster of that name, so no VM is assigned to this cluster"
        );
        let subject = ("UserCluster", name.as_str());
        let found = Finding::new(
            findings::USER_CLUSTER_MISSING,
            Severity::Warning,
            subject,
            "UserClusterMissing",
            message,
        )
        .remedy(format!(
            "add a UserCluster named {name} whose spec.vmis selects the cluster's VMIs"
        ));
        self.set_dangling(missing, found);
    }

    /// Updates the finding about a cluster that has Nodes in common with others.
    pub(super) fn check_shared(&mut self, name: &ClusterName) {
        let others: Vec<_> = self
            .store
            .shared_nodes
            .with(name)
            .map(ClusterName::as_str)
            .collect();
        let (is_shared, others) = (!others.is_empty(), others.join(", "));
        let message = format!(
            "the user clusters {name} and {others} have the same Nodes, so their kubeconfigs lead to one API server: no Node of \
             theirs is joined with a VM, and nothing is written to them"
        );
        let found = Finding::new(
            findings::USER_CLUSTERS_SHARE_NODES,
            Severity::Critical,
            ("UserCluster", name.as_str()),
            "UserClustersShareNodes",
            message,
        )
        .remedy(
            "give each UserCluster the kubeconfig of its own cluster; delete a UserCluster that is there twice. The Nodes of a cluster \
             that cannot be read are those that were read last, and count until it is read again or its UserCluster is deleted: \
             virtfleetctl clusters -o wide",
        );
        // The names of the others may have changed.
        self.set_dangling(false, found.clone());
        self.set_dangling(is_shared, found);
    }

    pub(super) fn set_dangling(&mut self, there: bool, mut finding: Finding) {
        let place = self
            .dangling
            .binary_search_by(|known| (&known.id, &known.subject).cmp(&(&finding.id, &finding.subject)));
        match (place, there) {
            (Err(at), true) => {
                finding.since.clone_from(&self.now);
                self.dangling.insert(at, finding);
            }
            (Ok(at), false) => {
                self.dangling.remove(at);
            }
            _ => {}
        }
    }
}
