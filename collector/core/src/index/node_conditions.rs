//! The index for the conditions that are written to Nodes.

use virtfleet_wire::ids::VmKey;

use super::FleetIndex;
use crate::{join, node_conditions::NodeConditionInput};

impl FleetIndex {
    /// Input of the plan of the conditions of a VM's Node. None before the inventory was read
    /// completely, and for a VM without user cluster or Node.
    ///
    /// Conditions are requested for a Node that is confirmed ([`join::confirmed_node`]): a guest
    /// could name another VM's Node and write its own health there. From a Node that has become
    /// unconfirmed, as the one of a VM that was stopped, the earlier ones are removed: they would
    /// stay as they are.
    pub fn node_condition_input(&self, key: &VmKey) -> Option<NodeConditionInput> {
        let (entry, name, cluster) = self.writable(key)?;
        let confirmed = join::confirmed_node(&self.store, key, entry);
        let requested = confirmed.map(|_| cluster.requested_conditions());
        let node = confirmed.or_else(|| join::unconfirmed_node(&self.store, key, entry))?;
        let health = entry.health.as_ref()?;
        Some(NodeConditionInput {
            vm: key.clone(),
            cluster: name.clone(),
            requested: requested.unwrap_or_default(),
            node: node.name.clone(),
            node_uid: node.uid.clone(),
            resource_version: node.resource_version.clone(),
            present: node.conditions.clone(),
            health: health.conditions(),
        })
    }

    /// Takes the VMs whose conditions have changed since the last call, of the clusters that
    /// request conditions on their Nodes; sorted.
    pub fn take_changed_conditions(&mut self) -> Vec<VmKey> {
        let changed = std::mem::take(&mut self.changed_conditions).into_iter();
        let is_requested = |vm: &VmKey| {
            let tenant = self.store.vms.get(vm).map(|entry| &entry.keys.tenant);
            let cluster = tenant.and_then(|tenant| self.store.clusters.get(tenant.cluster()?));
            cluster.is_some_and(|cluster| !cluster.node_conditions.is_empty())
        };
        changed.filter(is_requested).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        facts::{Fact, InventoryEvent, UserCluster},
        node_conditions::{NodeConditionKind, plan_conditions},
        store::tests::{cluster, key, user_node, vmi},
    };

    fn index(conditions: &[NodeConditionKind], suspend: bool) -> FleetIndex {
        let mut index = FleetIndex::default();
        index.apply(InventoryEvent::Init);
        let facts = [
            Fact::UserCluster(UserCluster {
                node_conditions: conditions.iter().copied().collect(),
                suspend,
                ..cluster("c", "ns", &[])
            }),
            Fact::Vmi(Box::new(vmi("ns", "a"))),
            Fact::UserNode(user_node("c", "a", Some("kubevirt://a"))),
        ];
        for fact in facts {
            index.apply(InventoryEvent::Apply(fact));
        }
        index.apply(InventoryEvent::Synced);
        index
    }

    #[test]
    fn only_requested_conditions_of_clusters_that_are_not_suspended() {
        let disks = [NodeConditionKind::DisksReady];
        let mut on = index(&disks, false);
        assert_eq!(on.take_changed_conditions(), [key("ns", "a")]);
        assert_eq!(on.take_changed_conditions(), []);
        let input = on.node_condition_input(&key("ns", "a")).unwrap();
        assert_eq!(input.requested, disks.into());

        let suspended = index(&disks, true);
        let input = suspended.node_condition_input(&key("ns", "a")).unwrap();
        assert!(input.requested.is_empty());
        assert_eq!(plan_conditions(&input), None);

        let mut off = index(&[], false);
        assert_eq!(off.take_changed_conditions(), []);
    }

    #[test]
    fn a_node_of_another_vm_is_never_the_input() {
        let mut index = index(&[NodeConditionKind::DisksReady], false);
        // The Node of the VM's name says that it is another VM.
        let foreign = user_node("c", "a", Some("kubevirt://b"));
        index.apply(InventoryEvent::Apply(Fact::UserNode(foreign)));
        assert_eq!(index.node_condition_input(&key("ns", "a")), None);
    }
}
