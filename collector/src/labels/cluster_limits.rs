//! Limits on requests to one user cluster, shared by all reconcile runs of its VMs.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use virtfleet_wire::ids::{ClusterName, NodeName};

use super::{rate_limit::TokenBucket, reconciler::now};

/// Request rate of one user cluster, and the locks on its Nodes.
#[derive(Debug)]
pub(super) struct ClusterLimits {
    pub(super) cluster: ClusterName,
    bucket: Mutex<TokenBucket>,
    /// Nodes with a patch in flight: two VMs may be joined to one Node.
    locked_nodes: Mutex<BTreeSet<NodeName>>,
}

impl ClusterLimits {
    /// Limits for `cluster` with `per_second` requests a second.
    pub(super) fn new(cluster: ClusterName, per_second: u32) -> Self {
        Self {
            cluster,
            bucket: Mutex::new(TokenBucket::new(per_second, now())),
            locked_nodes: Mutex::default(),
        }
    }

    /// Takes `tokens` from the rate limit and waits until they may be used; returns whether that
    /// took time.
    pub(super) async fn wait(&self, tokens: u32) -> bool {
        let at = {
            let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
            (0..tokens).map(|_| bucket.take(now())).last()
        };
        let Some(at) = at.filter(|at| *at > now()) else {
            return false;
        };
        tokio::time::sleep_until(at.into()).await;
        true
    }

    /// Locks a Node for a patch; none while another patch is in flight.
    pub(super) fn lock<'a>(&'a self, node: &'a NodeName) -> Option<NodeLock<'a>> {
        let mut locked = self.locked_nodes.lock().unwrap_or_else(PoisonError::into_inner);
        locked
            .insert(node.clone())
            .then_some(NodeLock { limits: self, node })
    }
}

/// Exclusive right to patch a Node; dropping it unlocks the Node.
pub(super) struct NodeLock<'a> {
    limits: &'a ClusterLimits,
    node: &'a NodeName,
}

impl Drop for NodeLock<'_> {
    fn drop(&mut self) {
        let locked = self.limits.locked_nodes.lock();
        locked.unwrap_or_else(PoisonError::into_inner).remove(self.node);
    }
}
