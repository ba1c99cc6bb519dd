//! Nodes whose conditions cannot be written, as findings about their user clusters.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use virtfleet_collector_core::findings::NODE_CONDITIONS_DENIED;
use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::{ClusterName, VmKey},
};

/// The VMs whose Nodes' conditions the API server refuses to change.
#[derive(Debug, Default)]
pub(super) struct ConditionProblems(Mutex<BTreeMap<VmKey, (ClusterName, String)>>);

impl ConditionProblems {
    /// Sets or removes the problem of one VM. Returns all findings if they have changed.
    pub(super) fn set(&self, vm: &VmKey, problem: Option<(&ClusterName, String)>) -> Option<Vec<Finding>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = findings(&all);
        match problem {
            Some((cluster, message)) => drop(all.insert(vm.clone(), (cluster.clone(), message))),
            None => drop(all.remove(vm)?),
        }
        let after = findings(&all);
        (before != after).then_some(after)
    }

    /// Removes all problems: another process leads. Returns whether there were any.
    pub(super) fn clear(&self) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        !std::mem::take(&mut *all).is_empty()
    }
}

/// One finding per user cluster.
fn findings(all: &BTreeMap<VmKey, (ClusterName, String)>) -> Vec<Finding> {
    let mut clusters: BTreeMap<&ClusterName, (&str, usize)> = BTreeMap::new();
    for (cluster, message) in all.values() {
        clusters.entry(cluster).or_insert((message, 0)).1 += 1;
    }
    let finding = |(cluster, (message, nodes)): (&ClusterName, (&str, usize))| {
        Finding::new(
            NODE_CONDITIONS_DENIED,
            Severity::Warning,
            ("UserCluster", cluster.as_str()),
            "NodeConditionsDenied",
            format!(
                "conditions of Nodes of the user cluster {cluster} cannot be written, so they may be outdated: {message}"
            ),
        )
        .with("nodes", nodes)
        .remedy(
            "grant the kubeconfig's user the verb patch on nodes/status: kubectl apply -f \
             packaging/collector/kubernetes/user-cluster/node-conditions.yaml in the user cluster",
        )
    };
    clusters.into_iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_finding_per_cluster_until_the_last_node_is_written() {
        let vm = |name: &str| VmKey {
            namespace: "ns".parse().unwrap(),
            name: name.parse().unwrap(),
        };
        let cluster = "c".parse().unwrap();
        let denied = || Some((&cluster, "not allowed: x".to_owned()));
        let problems = ConditionProblems::default();
        assert_eq!(problems.set(&vm("a"), None), None);
        let found = problems.set(&vm("a"), denied()).unwrap();
        assert_eq!((found.len(), found[0].subject.name.as_str()), (1, "c"));
        assert_eq!(problems.set(&vm("a"), denied()), None, "no change");
        assert_eq!(problems.set(&vm("b"), denied()).unwrap().len(), 1);
        assert_eq!(problems.set(&vm("a"), None).unwrap().len(), 1);
        assert_eq!(problems.set(&vm("b"), None).unwrap(), []);
        problems.set(&vm("a"), denied());
        assert!(problems.clear() && !problems.clear());
    }
}
