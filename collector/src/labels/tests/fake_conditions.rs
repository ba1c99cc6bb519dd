//! Conditions of the fake Nodes.

use virtfleet_collector_core::{
    facts::{Fact, FactKey, InventoryEvent, RunStrategy, Vm},
    reported::{ReportedCondition, ReportedConditions, ReportedStatus},
};
use virtfleet_wire::ids::NodeName;

use super::{
    super::*,
    harness::{FakeClusters, Harness, vm_key},
};

impl FakeClusters {
    pub(super) fn reported(&self, id: &(ClusterName, NodeName)) -> ReportedConditions {
        let all = self.conditions.get(id).into_iter().flatten();
        ReportedConditions::new(all.map(|(kind, (status, reason, message))| {
            ReportedCondition::new(kind, ReportedStatus::of(status), Some(reason), Some(message))
        }))
    }

    /// Answers a patch of conditions as an API server does.
    pub(super) fn patch_conditions(
        &mut self,
        cluster: &ClusterName,
        targeted: &TargetedConditions,
    ) -> Result<(NodeMetadata, ReportedConditions), SendError> {
        let id = (cluster.clone(), targeted.node.clone());
        if self.conditions_denied {
            return Err(SendError::Denied("no".into()));
        }
        self.version += 1;
        let version = self.version.to_string();
        let node = self.nodes.get_mut(&id).ok_or(SendError::Gone)?;
        if node.resource_version.as_ref() != Some(&targeted.resource_version)
            || node.uid.as_ref() != Some(&targeted.uid)
        {
            return Err(SendError::Conflict);
        }
        node.resource_version = Some(version);
        let metadata = node.clone();
        let conditions = self.conditions.entry(id.clone()).or_default();
        for one in &targeted.patch.set {
            let texts = (
                one.status.as_str().to_owned(),
                one.reason.clone(),
                one.message.clone(),
            );
            conditions.insert(one.kind.clone(), texts);
        }
        conditions.retain(|kind, _| !targeted.patch.remove.contains(kind));
        Ok((metadata, self.reported(&id)))
    }
}

impl Harness {
    /// A VM is stopped: its VirtualMachine stays, whose template has no firmware UUID.
    pub(super) async fn stop_vm(&self, cluster: &str, name: &str) {
        let key = vm_key(cluster, name);
        self.apply(Fact::Vm(Vm {
            printable_status: Some("Stopped".to_owned()),
            run_strategy: Some(RunStrategy::Halted),
            ..Vm::new(key.clone())
        }))
        .await;
        self.event(InventoryEvent::Delete(FactKey::Vmi(key))).await;
    }

    /// Status and reason of a Node's condition.
    pub(super) fn condition(&self, cluster: &str, node: &str, kind: &str) -> Option<(String, String)> {
        let id = (cluster.parse().unwrap(), node.parse().unwrap());
        let clusters = self.fake.clusters();
        let (status, reason, _) = clusters.conditions.get(&id)?.get(kind)?;
        Some((status.clone(), reason.clone()))
    }
}
