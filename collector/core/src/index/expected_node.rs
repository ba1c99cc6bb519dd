//! The Node whose kubelet may vouch for the agent of a VM.

use virtfleet_wire::ids::VmKey;

use super::FleetIndex;
use crate::{
    enrolment::{ExpectedNode, NoExpectedNode},
    join,
};

impl FleetIndex {
    /// Whether the authority of the kubelets of a VM's user cluster is known: only then can a node
    /// proof of its agent be checked.
    pub fn has_node_authority(&self, key: &VmKey) -> bool {
        let entry = self.store.vms.get(key);
        let cluster = entry.and_then(|entry| self.store.clusters.get(entry.keys.tenant.cluster()?));
        cluster.is_some_and(|cluster| cluster.node_authorities.is_some())
    }

    /// The Node whose kubelet may vouch for the agent of a VM: a confirmed one
    /// ([`join::confirmed_node`]). The guest chooses the host name that it reports, and a wrong
    /// kubeconfig leads to another tenant's Nodes.
    ///
    /// # Errors
    /// Why there is none.
    pub fn expected_node(&self, key: &VmKey) -> Result<ExpectedNode, NoExpectedNode> {
        let entry = self.store.vms.get(key).ok_or(NoExpectedNode::NoCluster)?;
        let name = entry.keys.tenant.cluster().ok_or(NoExpectedNode::NoCluster)?;
        let cluster = self.store.clusters.get(name).ok_or(NoExpectedNode::NoCluster)?;
        let authorities = cluster
            .node_authorities
            .clone()
            .ok_or_else(|| NoExpectedNode::NoAuthorities(name.clone()))?;
        let node = join::confirmed_node(&self.store, key, entry)
            .ok_or_else(|| NoExpectedNode::NoNode(name.clone()))?;
        Ok(ExpectedNode {
            cluster: name.clone(),
            node: node.name.clone(),
            authorities,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        facts::{Fact, UserCluster},
        index::tests::{apply, small},
        store::tests::{cluster, key, user_node, vmi},
    };

    fn with_authorities() -> UserCluster {
        UserCluster {
            node_authorities: Some("PEM".into()),
            ..cluster("c", "ns", &[])
        }
    }

    #[test]
    fn the_node_of_the_clusters_own_data_counts() {
        let mut index = small();
        let vm = key("ns", "w0");
        assert_eq!(
            index.expected_node(&vm),
            Err(NoExpectedNode::NoAuthorities("c".parse().unwrap()))
        );
        assert!(!index.has_node_authority(&vm));
        apply(&mut index, [Fact::UserCluster(with_authorities())]);
        assert!(index.has_node_authority(&vm) && !index.has_node_authority(&key("ns", "unknown")));
        let expected = index.expected_node(&vm).unwrap();
        assert_eq!(
            (
                expected.cluster.as_str(),
                expected.node.as_str(),
                &*expected.authorities
            ),
            ("c", "w0", "PEM")
        );
    }

    #[test]
    fn without_a_node_or_a_cluster_there_is_none() {
        let mut index = small();
        apply(
            &mut index,
            [
                Fact::UserCluster(with_authorities()),
                Fact::Vmi(Box::new(vmi("ns", "w1"))),
                Fact::UserNode(user_node("c", "w1", Some("kubevirt://w0"))),
                Fact::Vmi(Box::new(vmi("other", "w2"))),
            ],
        );
        let cluster = || "c".parse().unwrap();
        for (vm, reason) in [
            // Its Node's providerID names another VM.
            (key("ns", "w1"), NoExpectedNode::NoNode(cluster())),
            // Two Nodes name it.
            (key("ns", "w0"), NoExpectedNode::NoNode(cluster())),
            (key("other", "w2"), NoExpectedNode::NoCluster),
            (key("ns", "unknown"), NoExpectedNode::NoCluster),
        ] {
            assert_eq!(index.expected_node(&vm), Err(reason), "{vm}");
        }
    }
}
