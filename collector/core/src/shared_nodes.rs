//! Which user clusters have Nodes in common: their kubeconfigs lead to one API server.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use virtfleet_wire::ids::{ClusterName, Uid};

use crate::small_set::SmallSet;

/// The user clusters in which each Node was read, by its UID. An API server never gives a UID
/// twice, so a Node of two clusters proves that one of them has the kubeconfig of the other.
#[derive(Debug, Default)]
pub(crate) struct SharedNodes {
    clusters: HashMap<Uid, SmallSet<ClusterName>>,
    /// Number of further Nodes of a cluster with a UID that one of its Nodes has: a tenant's server
    /// may send anything.
    repeated: HashMap<(Uid, ClusterName), usize>,
    /// For each cluster that has Nodes in common with others: these, and how many.
    shared: BTreeMap<ClusterName, BTreeMap<ClusterName, usize>>,
}

impl SharedNodes {
    /// The clusters that have Nodes in common with `cluster`, by name.
    pub(crate) fn with(&self, cluster: &ClusterName) -> impl Iterator<Item = &ClusterName> {
        self.shared.get(cluster).into_iter().flat_map(BTreeMap::keys)
    }

    /// A Node of `cluster` has got another UID. Returns the clusters for which
    /// [`SharedNodes::with`] may have changed.
    pub(crate) fn replace(
        &mut self,
        cluster: &ClusterName,
        old: Option<&Uid>,
        new: Option<&Uid>,
    ) -> BTreeSet<ClusterName> {
        let mut changed = BTreeSet::new();
        if old == new {
            return changed;
        }
        if let Some(uid) = old
            && !self.forget_repeated(uid, cluster)
            && let Some(clusters) = self.clusters.get_mut(uid)
        {
            clusters.remove(cluster);
            let others: Vec<_> = clusters.iter().cloned().collect();
            if clusters.is_empty() {
                self.clusters.remove(uid);
            }
            for other in others {
                self.uncount(cluster, &other, &mut changed);
                self.uncount(&other, cluster, &mut changed);
            }
        }
        if let Some(uid) = new {
            let clusters = self.clusters.entry(uid.clone()).or_default();
            if clusters.iter().any(|known| known == cluster) {
                *self.repeated.entry((uid.clone(), cluster.clone())).or_default() += 1;
                return changed;
            }
            let others: Vec<_> = clusters.iter().cloned().collect();
            clusters.insert(cluster.clone());
            for other in others {
                self.count(cluster, &other, &mut changed);
                self.count(&other, cluster, &mut changed);
            }
        }
        changed
    }

    /// Forgets one of several Nodes of a cluster with this UID. False if there is one alone.
    fn forget_repeated(&mut self, uid: &Uid, cluster: &ClusterName) -> bool {
        let key = (uid.clone(), cluster.clone());
        let Some(count) = self.repeated.get_mut(&key) else {
            return false;
        };
        *count -= 1;
        if *count == 0 {
            self.repeated.remove(&key);
        }
        true
    }

    fn count(&mut self, one: &ClusterName, other: &ClusterName, changed: &mut BTreeSet<ClusterName>) {
        let counts = self.shared.entry(one.clone()).or_default();
        let count = counts.entry(other.clone()).or_default();
        *count += 1;
        if *count == 1 {
            changed.insert(one.clone());
        }
    }

    fn uncount(&mut self, one: &ClusterName, other: &ClusterName, changed: &mut BTreeSet<ClusterName>) {
        let Some(counts) = self.shared.get_mut(one) else {
            return;
        };
        if let Some(count) = counts.get_mut(other) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(other);
                changed.insert(one.clone());
            }
        }
        if counts.is_empty() {
            self.shared.remove(one);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_share_as_long_as_one_node_is_read_in_both() {
        let mut nodes = SharedNodes::default();
        let cluster = |name: &str| name.parse::<ClusterName>().unwrap();
        let uid = |name: &str| name.parse::<Uid>().unwrap();
        let (a, b, c) = (cluster("a"), cluster("b"), cluster("c"));
        let (one, two) = (uid("1"), uid("2"));
        assert!(nodes.replace(&a, None, Some(&one)).is_empty());
        assert!(nodes.replace(&a, None, Some(&two)).is_empty());
        let both = BTreeSet::from([a.clone(), b.clone()]);
        assert_eq!(nodes.replace(&b, None, Some(&one)), both);
        assert!(
            nodes.replace(&b, None, Some(&two)).is_empty(),
            "one more changes nothing"
        );
        assert_eq!(nodes.replace(&c, None, Some(&one)).len(), 3);
        assert_eq!(nodes.with(&a).collect::<Vec<_>>(), [&b, &c]);
        assert_eq!(nodes.replace(&c, Some(&one), Some(&uid("3"))).len(), 3);
        assert!(nodes.replace(&b, Some(&one), Some(&one)).is_empty());
        assert!(nodes.replace(&b, Some(&one), None).is_empty());
        assert_eq!(nodes.with(&b).collect::<Vec<_>>(), [&a]);
        assert_eq!(nodes.replace(&a, Some(&two), None), both);
        assert!(nodes.with(&a).next().is_none() && nodes.shared.is_empty());
    }
    #[test]
    fn a_uid_that_a_server_gives_twice_counts_once() {
        let mut nodes = SharedNodes::default();
        let cluster = |name: &str| name.parse::<ClusterName>().unwrap();
        let (a, b, one, two): (_, _, Uid, Uid) = (
            cluster("a"),
            cluster("b"),
            "1".parse().unwrap(),
            "2".parse().unwrap(),
        );
        nodes.replace(&a, None, Some(&one));
        assert_eq!(nodes.replace(&b, None, Some(&one)).len(), 2);
        // Two more Nodes of `b` with the UID.
        for _ in 0..2 {
            assert!(nodes.replace(&b, None, Some(&one)).is_empty());
        }
        assert!(nodes.replace(&b, Some(&one), None).is_empty());
        assert!(nodes.replace(&b, Some(&one), Some(&two)).is_empty());
        assert_eq!(
            nodes.with(&a).collect::<Vec<_>>(),
            [&b],
            "the last Node of b has it"
        );
        assert_eq!(nodes.replace(&b, Some(&one), None).len(), 2);
        assert!(nodes.with(&a).next().is_none() && nodes.with(&b).next().is_none());
        assert!(nodes.repeated.is_empty() && nodes.shared.is_empty());
    }
}
