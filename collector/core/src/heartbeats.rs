//! Heartbeats of Nodes, by the collector's clock. A kubelet's clock may be wrong, so a heartbeat is
//! as old as the moment at which the collector has seen it with another time than before.
//!
//! That the last one is old says something only if its kubelet had the time for another one since
//! the collector has reached the API server, and that one would have been read.

use std::collections::HashMap;

use virtfleet_wire::ids::{ClusterName, NodeName};

use crate::{
    facts::{NodeLease, NodeLeases},
    pull_result::UnixMs,
};

/// Age of a Lease, in milliseconds, after which it is no evidence any more. Kubelets renew it every
/// ten seconds, and the collector reads it every 40.
const MAX_LEASE_AGE_MS: u64 = 120_000;
/// As many times as long as its duration an unusual Lease is evidence.
const LEASE_DURATIONS: u64 = 3;
/// But not for longer: the writer of a Lease chooses its duration.
const LONGEST_LEASE_AGE_MS: u64 = 900_000;
/// Age of a Node's status, in milliseconds, after which it is no evidence any more. Kubelets write
/// it every five minutes.
const MAX_STATUS_AGE_MS: u64 = 600_000;
/// Time in milliseconds that a kubelet has for another heartbeat, since the collector has reached
/// the API server: its request times out after 10 s, and is repeated after 7. It is less than the
/// time between two reads of the Leases.
const AWAITED_MS: u64 = 35_000;
/// The same for a status after the first one that is read: kubelets write it every five minutes.
const NEXT_STATUS_MS: u64 = 330_000;

/// What the heartbeats of a kubelet say, as far as they are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hearing {
    /// It lives.
    Heard,
    /// It had no time for a heartbeat since the collector has reached the API server.
    Awaited,
    /// It has given no sign of life for too long.
    Silent,
}

/// Until when a heartbeat counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeartbeatLimits {
    /// Until when it is evidence.
    pub(crate) ends_ms: UnixMs,
    /// Until when the next one is awaited.
    pub(crate) awaited_ms: UnixMs,
}

impl HeartbeatLimits {
    /// What the heartbeat says at this time.
    pub(crate) fn hearing(self, now_ms: UnixMs) -> Hearing {
        if now_ms <= self.ends_ms {
            Hearing::Heard
        } else if now_ms <= self.awaited_ms {
            Hearing::Awaited
        } else {
            Hearing::Silent
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Heartbeat {
    /// Its time by the kubelet's clock.
    said_ms: UnixMs,
    /// When the collector saw it.
    seen_ms: UnixMs,
    /// The latest time by the collector's clock at which it can have been given.
    heard_ms: UnixMs,
    limits: HeartbeatLimits,
}

impl Heartbeat {
    /// After the one `before`. `next_ms` is the time for another one than the first.
    fn seen(before: Option<&Self>, said_ms: UnixMs, limit_ms: u64, next_ms: u64, now_ms: UnixMs) -> Self {
        let heard_ms = match before {
            Some(before) if before.said_ms == said_ms => return *before,
            // It may be almost as old as the one before, of which the difference between both
            // clocks is known. One that comes soon afterwards ends a wrong guess.
            Some(before) if now_ms.saturating_sub(before.seen_ms) > limit_ms => {
                let later_ms = said_ms.saturating_sub(before.said_ms);
                before.heard_ms.saturating_add(later_ms).min(now_ms)
            }
            Some(_) => now_ms,
            // Only its own time says how old the first one is, by a clock that may be late.
            None => said_ms.min(now_ms),
        };
        let limits = HeartbeatLimits {
            ends_ms: heard_ms.saturating_add(limit_ms),
            // One that was given before an outage, and is read afterwards, is awaited as well.
            awaited_ms: before.map_or(now_ms.saturating_add(next_ms), |before| before.limits.awaited_ms),
        };
        Self {
            said_ms,
            seen_ms: now_ms,
            heard_ms,
            limits,
        }
    }

    /// The limits of a Lease, if all Leases were read last at `read_ms`: the next one is awaited
    /// until they are read after its time.
    fn of_lease(&self, read_ms: UnixMs) -> HeartbeatLimits {
        let is_awaited = read_ms < self.limits.awaited_ms;
        HeartbeatLimits {
            awaited_ms: if is_awaited { UnixMs::MAX } else { 0 },
            ..self.limits
        }
    }
}

/// Heartbeats of Nodes of one kind.
type OfNodes = HashMap<NodeName, Heartbeat>;

#[derive(Debug, Default)]
struct OfCluster {
    leases: OfNodes,
    /// When they were read last.
    read_ms: UnixMs,
    /// They count for Nodes whose Leases cannot be read.
    statuses: OfNodes,
}

/// Heartbeats of all Nodes.
#[derive(Debug, Default)]
pub(crate) struct Heartbeats {
    infra: OfCluster,
    clusters: HashMap<ClusterName, OfCluster>,
}

impl Heartbeats {
    /// Those of a user cluster; none: of the infra cluster.
    fn of(&mut self, cluster: Option<&ClusterName>) -> &mut OfCluster {
        match cluster {
            None => &mut self.infra,
            Some(cluster) => self.clusters.entry(cluster.clone()).or_default(),
        }
    }

    /// The same, if any heartbeat of the cluster was seen.
    fn known(&mut self, cluster: Option<&ClusterName>) -> Option<&mut OfCluster> {
        match cluster {
            None => Some(&mut self.infra),
            Some(cluster) => self.clusters.get_mut(cluster),
        }
    }

    /// The API server of a cluster can be read, and could not before: kubelets may not have reached
    /// it either. So no heartbeat that is known now, or was given before, says that a kubelet is
    /// silent. The heartbeats since then may arrive later than this.
    pub(crate) fn reached(&mut self, cluster: Option<&ClusterName>, now_ms: UnixMs) {
        let Some(OfCluster { leases, statuses, .. }) = self.known(cluster) else {
            return;
        };
        for one in leases.values_mut().chain(statuses.values_mut()) {
            let awaited_ms = now_ms.saturating_add(AWAITED_MS);
            one.limits.awaited_ms = one.limits.awaited_ms.max(awaited_ms);
        }
    }

    /// Replaces the Leases of a cluster. Returns the Nodes about which this is news: what they say
    /// has changed, or they were not known, or are not known any more.
    pub(crate) fn set_leases(&mut self, new: NodeLeases, now_ms: UnixMs) -> Vec<NodeName> {
        let OfCluster { leases, read_ms, .. } = self.of(new.cluster.as_ref());
        let before = std::mem::take(leases);
        let read_before_ms = std::mem::replace(read_ms, now_ms);
        let mut news = Vec::new();
        for NodeLease {
            node,
            renewed_ms,
            lasts_ms,
        } in new.leases
        {
            let limit_ms = lasts_ms.map_or(0, |lasts| lasts.saturating_mul(LEASE_DURATIONS));
            let limit_ms = limit_ms.clamp(MAX_LEASE_AGE_MS, LONGEST_LEASE_AGE_MS);
            let earlier = before.get(&node);
            let seen = Heartbeat::seen(earlier, renewed_ms, limit_ms, AWAITED_MS, now_ms);
            let was = earlier.map(|earlier| earlier.of_lease(read_before_ms).hearing(now_ms));
            if was != Some(seen.of_lease(now_ms).hearing(now_ms)) {
                news.push(node.clone());
            }
            leases.insert(node, seen);
        }
        news.extend(before.into_keys().filter(|node| !leases.contains_key(node)));
        news
    }

    /// Sets when the status of a Node was reported. Returns whether this is news.
    pub(crate) fn set_status(
        &mut self,
        cluster: Option<&ClusterName>,
        node: &NodeName,
        said_ms: UnixMs,
        now_ms: UnixMs,
    ) -> bool {
        let known = &mut self.of(cluster).statuses;
        let before = known.get(node);
        let seen = Heartbeat::seen(before, said_ms, MAX_STATUS_AGE_MS, NEXT_STATUS_MS, now_ms);
        let was = before.map(|before| before.limits.hearing(now_ms));
        known.insert(node.clone(), seen);
        was != Some(seen.limits.hearing(now_ms))
    }

    /// Forgets the status of a Node that is gone.
    pub(crate) fn remove_node(&mut self, cluster: Option<&ClusterName>, node: &NodeName) {
        if let Some(of) = self.known(cluster) {
            of.statuses.remove(node);
        }
    }

    /// Forgets a user cluster.
    pub(crate) fn remove_cluster(&mut self, cluster: &ClusterName) {
        self.clusters.remove(cluster);
    }

    /// Until when the last heartbeat of a Node counts; none if no heartbeat is known, as of a
    /// folder. Without a user cluster, it is an infra node.
    pub(crate) fn limits(&self, cluster: Option<&ClusterName>, node: &NodeName) -> Option<HeartbeatLimits> {
        let of = match cluster {
            None => &self.infra,
            Some(cluster) => self.clusters.get(cluster)?,
        };
        let lease = of.leases.get(node).map(|one| one.of_lease(of.read_ms));
        lease.or_else(|| Some(of.statuses.get(node)?.limits))
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    const NOW_MS: u64 = 1_800_000_000_000;

    fn leases(renewed: &[(&str, u64)]) -> NodeLeases {
        let lease = |(node, renewed_ms): &(&str, u64)| NodeLease {
            node: node.parse().unwrap(),
            renewed_ms: *renewed_ms,
            lasts_ms: Some(40_000),
        };
        NodeLeases {
            cluster: Some("c".parse().unwrap()),
            leases: renewed.iter().map(lease).collect(),
        }
    }

    fn ends_ms(all: &Heartbeats, node: &str) -> Option<u64> {
        let found = all.limits(Some(&"c".parse().unwrap()), &node.parse().unwrap());
        found.map(|limits| limits.ends_ms)
    }

    #[test]
    fn a_heartbeat_counts_from_when_it_was_seen() {
        let node: NodeName = "n".parse().unwrap();
        let mut all = Heartbeats::default();
        let ends = |all: &Heartbeats| ends_ms(all, "n");
        // A kubelet whose clock is an hour late.
        let hour = 3_600_000;
        assert_eq!(
            all.set_leases(leases(&[("n", NOW_MS - hour)]), NOW_MS),
            slice::from_ref(&node)
        );
        assert_eq!(
            ends(&all),
            Some(NOW_MS - hour + MAX_LEASE_AGE_MS),
            "the first one may be old"
        );
        let later = NOW_MS + 40_000;
        assert_eq!(
            all.set_leases(leases(&[("n", later - hour)]), later),
            slice::from_ref(&node)
        );
        assert_eq!(ends(&all), Some(later + MAX_LEASE_AGE_MS));
        // It does not renew it any more.
        for after in [80_000, 120_000, 400_000] {
            assert_eq!(all.set_leases(leases(&[("n", later - hour)]), NOW_MS + after), []);
            assert_eq!(ends(&all), Some(later + MAX_LEASE_AGE_MS));
        }
        let back = NOW_MS + 440_000;
        assert_eq!(
            all.set_leases(leases(&[("n", back - hour)]), back),
            slice::from_ref(&node)
        );
        // A clock that is early makes nothing last longer.
        assert_eq!(
            all.set_leases(leases(&[("n", back + hour), ("m", back + hour)]), back)
                .len(),
            1
        );
        assert_eq!(ends(&all), Some(back + MAX_LEASE_AGE_MS));
        assert_eq!(ends_ms(&all, "m"), ends(&all));
    }

    #[test]
    fn without_leases_the_status_counts() {
        let (blue, node) = ("c".parse().unwrap(), "n".parse().unwrap());
        let mut all = Heartbeats::default();
        let cluster = Some(&blue);
        assert!(all.set_status(cluster, &node, NOW_MS, NOW_MS));
        let of_status = Some(NOW_MS + MAX_STATUS_AGE_MS);
        assert_eq!(ends_ms(&all, "n"), of_status);
        all.set_leases(leases(&[("n", NOW_MS)]), NOW_MS);
        assert_eq!(ends_ms(&all, "n"), Some(NOW_MS + MAX_LEASE_AGE_MS));
        assert_eq!(
            all.set_leases(leases(&[]), NOW_MS),
            slice::from_ref(&node),
            "they cannot be read any more"
        );
        assert_eq!(ends_ms(&all, "n"), of_status);
        assert!(!all.set_status(cluster, &node, NOW_MS + 1000, NOW_MS + 1000));
        all.remove_node(cluster, &node);
        assert_eq!(ends_ms(&all, "n"), None);
        all.remove_cluster(&blue);
        all.remove_node(cluster, &node);
        assert!(all.clusters.is_empty());
        assert_eq!(all.limits(None, &node), None);
        assert!(all.set_status(None, &node, NOW_MS, NOW_MS));
        let of_host = all.limits(None, &node).map(|limits| limits.ends_ms);
        assert_eq!(of_host, of_status);
    }

    #[test]
    fn a_lease_that_lasts_long_is_evidence_for_longer() {
        for (lasts_ms, longest) in [(200_000, 600_000), (86_400_000, 900_000), (u64::MAX, 900_000)] {
            let mut all = Heartbeats::default();
            let mut long = leases(&[("n", NOW_MS)]);
            long.leases[0].lasts_ms = Some(lasts_ms);
            all.set_leases(long, NOW_MS);
            assert_eq!(ends_ms(&all, "n"), Some(NOW_MS + longest));
        }
    }

    fn hearing(all: &Heartbeats, node: &str, now_ms: u64) -> Hearing {
        let found = all.limits(Some(&"c".parse().unwrap()), &node.parse().unwrap());
        found.unwrap().hearing(now_ms)
    }

    #[test]
    fn after_an_outage_old_leases_say_nothing_until_they_were_read_late_enough() {
        let cluster = "c".parse().unwrap();
        let node = |name: &str| -> NodeName { name.parse().unwrap() };
        let mut all = Heartbeats::default();
        // For long the collector has read them now and then. Both kubelets renew theirs once more
        // before nothing reaches the API server any more.
        for ago in [80_000, 40_000, 0] {
            let read_ms = NOW_MS - ago;
            all.set_leases(
                leases(&[("n", read_ms - 3000), ("dead", read_ms - 3000)]),
                read_ms,
            );
        }
        all.set_status(Some(&cluster), &node("s"), NOW_MS, NOW_MS);
        let (last, back) = (NOW_MS + 17_000, NOW_MS + 800_000);
        for node in ["n", "dead", "s"] {
            assert_eq!(hearing(&all, node, back), Hearing::Silent, "{node}");
        }
        // The Leases may arrive later than that the cluster is reached.
        all.reached(Some(&cluster), back);
        assert_eq!(hearing(&all, "n", back), Hearing::Awaited);
        assert_eq!(all.set_leases(leases(&[("n", last), ("dead", last)]), back), []);
        for node in ["n", "dead", "s"] {
            assert_eq!(hearing(&all, node, back), Hearing::Awaited, "{node}");
        }
        let news = all.set_leases(leases(&[("n", back + 8000), ("dead", last)]), back + 10_000);
        assert_eq!(news, [node("n")]);
        all.set_leases(leases(&[("n", back + 28_000), ("dead", last)]), back + 30_000);
        let late = back + 45_000;
        assert_eq!(hearing(&all, "n", late), Hearing::Heard);
        assert_eq!(
            hearing(&all, "dead", late),
            Hearing::Awaited,
            "it was not read since"
        );
        assert_eq!(hearing(&all, "s", late), Hearing::Silent, "a watch brings it");
        let news = all.set_leases(leases(&[("n", late - 2000), ("dead", last)]), late);
        assert_eq!(news, [node("dead")]);
        assert_eq!(hearing(&all, "dead", late), Hearing::Silent);
        assert_eq!(
            all.set_leases(leases(&[("n", late + 2000), ("dead", last)]), late + 5000),
            []
        );
        // A cluster of which nothing is known.
        all.reached(Some(&"d".parse().unwrap()), late);
    }

    #[test]
    fn the_first_heartbeat_by_a_clock_that_is_late_is_no_silence() {
        let (cluster, hour) = ("c".parse().unwrap(), 3_600_000);
        let mut all = Heartbeats::default();
        all.set_leases(leases(&[("n", NOW_MS - hour), ("dead", NOW_MS - hour)]), NOW_MS);
        all.set_status(Some(&cluster), &"s".parse().unwrap(), NOW_MS - hour, NOW_MS);
        let later = NOW_MS + 40_000;
        for (node, now_ms) in [("n", NOW_MS), ("dead", later), ("s", NOW_MS + 330_000)] {
            assert_eq!(hearing(&all, node, now_ms), Hearing::Awaited, "{node}");
        }
        let read = leases(&[("n", later - hour), ("dead", NOW_MS - hour)]);
        assert_eq!(all.set_leases(read, later).len(), 2);
        assert_eq!(hearing(&all, "n", later), Hearing::Heard);
        assert_eq!(hearing(&all, "dead", later), Hearing::Silent);
        assert_eq!(hearing(&all, "s", NOW_MS + 330_001), Hearing::Silent);
    }

    #[test]
    fn a_heartbeat_that_was_given_during_a_gap_is_as_old_as_it_says() {
        let hour = 3_600_000;
        let mut all = Heartbeats::default();
        all.set_leases(leases(&[("n", NOW_MS - hour - 40_000)]), NOW_MS - 40_000);
        all.set_leases(leases(&[("n", NOW_MS - hour)]), NOW_MS);
        assert_eq!(ends_ms(&all, "n"), Some(NOW_MS + MAX_LEASE_AGE_MS));
        // For ten minutes nothing is read. The kubelet, whose clock is an hour late, dies early.
        let last = NOW_MS + 60_000;
        all.set_leases(leases(&[("n", last - hour)]), NOW_MS + 600_000);
        assert_eq!(ends_ms(&all, "n"), Some(last + MAX_LEASE_AGE_MS));
        // A clock that was set meanwhile does no harm for long.
        let later = NOW_MS + 640_000;
        all.set_leases(leases(&[("n", later - 2 * hour)]), later);
        assert_eq!(ends_ms(&all, "n"), Some(later + MAX_LEASE_AGE_MS));
    }
}
