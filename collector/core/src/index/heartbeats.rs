//! Heartbeats of Nodes: which VMs they concern.

use std::collections::BTreeMap;

use virtfleet_wire::ids::{ClusterName, NodeName, VmKey};

use super::FleetIndex;
use crate::{
    facts::NodeLeases,
    view::{ClusterState, ClusterStatus},
};

/// Whether the Nodes of a user cluster are read.
fn is_read(status: &ClusterStatus) -> bool {
    matches!(status.state, ClusterState::Ready | ClusterState::Suspended)
}

impl FleetIndex {
    /// Notes which user clusters are read, and were not before. The heartbeats since then may still
    /// be on their way: they come as events, and states do not.
    pub(super) fn note_reached(&mut self, before: Option<&BTreeMap<ClusterName, ClusterStatus>>) {
        let now = self.statuses.iter().flatten();
        for (name, _) in now.filter(|(_, status)| is_read(status)) {
            let was = before.and_then(|before| before.get(name));
            let was_read = was.is_some_and(is_read);
            if !was_read {
                self.store.heartbeats.reached(Some(name), self.now_ms);
            }
        }
    }

    /// Takes the Leases of a cluster. Most only renew what is known, and concern no VM before the
    /// last ones would have been too old.
    pub(super) fn put_leases(&mut self, leases: NodeLeases) {
        let cluster = leases.cluster.clone();
        if let Some(name) = &cluster
            && !self.store.clusters.contains_key(name)
        {
            // It was deleted meanwhile.
            return;
        }
        let news = self.store.heartbeats.set_leases(leases, self.now_ms);
        match cluster {
            Some(name) if !news.is_empty() => self.touch_clusters(|one| *one == name),
            Some(_) => {}
            None => self.touch_hosts(&news),
        }
    }

    /// Updates the health of the VMs on these infra nodes.
    pub(super) fn touch_hosts(&mut self, hosts: &[NodeName]) {
        let placed = hosts.iter().filter_map(|host| self.store.vms_by_host.get(host));
        let placed: Vec<VmKey> = placed.flatten().cloned().collect();
        for vm in &placed {
            self.refresh_health(vm);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use virtfleet_wire::finding::{Finding, Severity};

    use crate::{
        facts::{Fact, InventoryEvent, NodeLease},
        findings::INVENTORY_WATCH_FAILING,
        index::tests::{apply, small},
        reported::{ReportedCondition, ReportedConditions, ReportedStatus},
        store::tests::{infra_node, key, user_node},
    };

    const NOW_MS: u64 = 1_800_000_000_000;

    fn ready() -> ReportedConditions {
        let ready = ReportedCondition::new("Ready", ReportedStatus::True, None, None);
        ReportedConditions::new([ready])
    }

    fn node(reported_ms: u64) -> Fact {
        let mut node = infra_node("n1", "z1");
        node.conditions = ready();
        node.reported_ms = Some(reported_ms);
        Fact::InfraNode(node)
    }

    /// Reason and whether it is undecided, of a condition of the VM `w0`.
    fn shown(index: &FleetIndex, kind: &str) -> (String, bool) {
        let conditions = index.detail(&key("ns", "w0")).unwrap().conditions;
        let found = conditions.into_iter().find(|one| one.kind == kind);
        let found = found.unwrap();
        (found.reason, found.is_undecided)
    }

    fn go_on(index: &mut FleetIndex, seconds: u64) {
        index.set_time(String::new(), NOW_MS + seconds * 1000);
        index.settle();
    }

    /// The Lease of `n1`, or of the Node `w0`, is read, as it was renewed last.
    fn read(index: &mut FleetIndex, cluster: Option<&str>, renewed_seconds: u64) {
        let node = if cluster.is_some() { "w0" } else { "n1" };
        let lease = NodeLease {
            node: node.parse().unwrap(),
            renewed_ms: NOW_MS + renewed_seconds * 1000,
            lasts_ms: Some(40_000),
        };
        index.apply(InventoryEvent::Leases(NodeLeases {
            cluster: cluster.map(|name| name.parse().unwrap()),
            leases: vec![lease],
        }));
    }

    fn set_state(index: &mut FleetIndex, state: ClusterState) {
        let status = ClusterStatus { state, message: None };
        index.set_cluster_statuses(BTreeMap::from([("c".parse().unwrap(), status)]));
    }

    /// A server that is away, and credentials that have expired: the inventory learns of both in
    /// the same way. It is reached before the Leases that were read since have arrived.
    #[test]
    fn a_user_cluster_that_is_reached_again_awaits_heartbeats() {
        for before in [ClusterState::Unreachable, ClusterState::Connecting] {
            let mut index = small();
            let mut node = user_node("c", "w0", Some("kubevirt://w0"));
            node.conditions = ready();
            apply(&mut index, [Fact::UserNode(node)]);
            set_state(&mut index, ClusterState::Ready);
            go_on(&mut index, 60);
            read(&mut index, Some("c"), 55);
            assert_eq!(shown(&index, "NodeReady"), ("NodeReady".to_owned(), false));
            set_state(&mut index, before);
            go_on(&mut index, 400);
            set_state(&mut index, ClusterState::Ready);
            let awaited = ("HeartbeatAwaited".to_owned(), true);
            assert_eq!(shown(&index, "NodeReady"), awaited, "{before:?}");
            // It was renewed after the last read before.
            read(&mut index, Some("c"), 65);
            assert_eq!(shown(&index, "NodeReady"), awaited, "{before:?}");
            go_on(&mut index, 430);
            assert_eq!(shown(&index, "NodeReady"), awaited, "{before:?}");
            read(&mut index, Some("c"), 425);
            assert_eq!(shown(&index, "NodeReady").0, "NodeReady", "{before:?}");
            go_on(&mut index, 440);
            read(&mut index, Some("c"), 425);
            go_on(&mut index, 551);
            assert_eq!(shown(&index, "NodeReady").0, "HeartbeatOld", "{before:?}");
        }
    }

    #[test]
    fn an_infra_cluster_that_is_followed_again_awaits_heartbeats() {
        let mut index = small();
        go_on(&mut index, 0);
        apply(&mut index, [node(NOW_MS)]);
        go_on(&mut index, 60);
        read(&mut index, None, 55);
        assert_eq!(shown(&index, "HostReady").0, "HostReady");
        let failing = Finding::new(
            INVENTORY_WATCH_FAILING,
            Severity::Critical,
            ("Watch", "API server"),
            "R",
            "m",
        );
        index.set_inventory_findings(vec![failing]);
        go_on(&mut index, 400);
        assert_eq!(shown(&index, "HostReady").0, "InventoryStale");
        index.set_inventory_findings(Vec::new());
        read(&mut index, None, 65);
        assert_eq!(
            shown(&index, "HostReady"),
            ("HostHeartbeatAwaited".to_owned(), true)
        );
        // The kubelet does not renew it any more.
        go_on(&mut index, 434);
        read(&mut index, None, 65);
        assert_eq!(shown(&index, "HostReady").0, "HostHeartbeatAwaited");
        go_on(&mut index, 436);
        read(&mut index, None, 65);
        assert_eq!(shown(&index, "HostReady").0, "HostHeartbeatOld");
    }

    #[test]
    fn without_leases_the_status_of_an_infra_node_is_its_heartbeat() {
        let mut index = small();
        let reason = |index: &FleetIndex| shown(index, "HostReady").0;
        index.set_time(String::new(), NOW_MS);
        apply(&mut index, [node(NOW_MS)]);
        assert_eq!(reason(&index), "HostReady");
        let generation = index.infra_generation;
        index.set_time(String::new(), NOW_MS + 600_001);
        index.settle();
        assert_eq!(reason(&index), "HostHeartbeatOld");
        apply(&mut index, [node(NOW_MS + 590_000)]);
        assert_eq!(reason(&index), "HostReady");
        assert_eq!(
            index.infra_generation, generation,
            "a heartbeat alone is no change"
        );
    }
}
