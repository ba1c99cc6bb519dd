//! Concurrency limits of pulls. Failing and slow VMs have a separate pool, so that they never delay
//! healthy ones. In each pool every tenant has a share, so that a tenant with deliberately slow
//! agents cannot use all of it.

use std::{collections::HashMap, sync::Arc};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use virtfleet_collector_core::budget::BudgetOwner;

/// Consecutive fast pulls before a slow VM counts as healthy again; a VM that is fast every other
/// time stays slow.
const FAST_PULLS_TO_RECOVER: u8 = 3;

/// Whether a VM's pulls are slow. Pure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PullHealth {
    /// Number of fast pulls until the VM counts as healthy; 0: healthy.
    missing: u8,
}

impl PullHealth {
    pub(super) fn is_slow(self) -> bool {
        self.missing > 0
    }

    /// The state after a pull; `slow` if it failed or took long.
    pub(super) fn after(self, slow: bool) -> Self {
        Self {
            missing: if slow {
                FAST_PULLS_TO_RECOVER
            } else {
                self.missing.saturating_sub(1)
            },
        }
    }
}

/// The two pools: healthy VMs and slow VMs.
#[derive(Debug)]
pub(super) struct PullLimiter {
    pools: [TenantPool; 2],
}

/// Permits in which every tenant has a share.
#[derive(Debug)]
pub(crate) struct TenantPool {
    all: Arc<Semaphore>,
    share: usize,
    tenants: HashMap<BudgetOwner, Arc<Semaphore>>,
}

/// Permits that a task waits for: first its tenant's, so that a tenant over its share holds no
/// permit of the pool while it waits.
#[derive(Debug)]
pub(crate) struct PendingPermits {
    tenant: Arc<Semaphore>,
    all: Arc<Semaphore>,
}

/// Unused shares are removed once there are more than this.
const MAX_UNUSED_SHARES: usize = 64;

impl PullLimiter {
    /// A limiter with `concurrency` concurrent pulls in each pool. One tenant may use a quarter of
    /// the healthy pool and half of the slow one; a smaller share would pull a tenant whose nodes
    /// are all down too rarely.
    pub(super) fn new(concurrency: usize) -> Self {
        Self {
            pools: [
                TenantPool::new(concurrency, concurrency / 4),
                TenantPool::new(concurrency, concurrency / 2),
            ],
        }
    }

    /// The permits for a VM of this tenant.
    pub(super) fn permits(&mut self, budget_owner: BudgetOwner, slow: bool) -> PendingPermits {
        self.pools[usize::from(slow)].permits(budget_owner)
    }
}

impl TenantPool {
    /// A pool of `all` permits, of which one tenant may hold `share`.
    pub(crate) fn new(all: usize, share: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(all)),
            share: share.max(1),
            tenants: HashMap::new(),
        }
    }

    pub(crate) fn permits(&mut self, budget_owner: BudgetOwner) -> PendingPermits {
        if self.tenants.len() > MAX_UNUSED_SHARES {
            self.tenants.retain(|_, share| Arc::strong_count(share) > 1);
        }
        let share = self.share;
        let tenant = self
            .tenants
            .entry(budget_owner)
            .or_insert_with(|| Arc::new(Semaphore::new(share)));
        PendingPermits {
            tenant: Arc::clone(tenant),
            all: Arc::clone(&self.all),
        }
    }
}

impl PendingPermits {
    /// Waits for both permits; dropping them releases them. The semaphores are never closed, so
    /// both are always granted.
    pub(crate) async fn acquire(self) -> (Option<OwnedSemaphorePermit>, Option<OwnedSemaphorePermit>) {
        let tenant = self.tenant.acquire_owned().await.ok();
        (tenant, self.all.acquire_owned().await.ok())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn budget_owner(name: &str) -> BudgetOwner {
        BudgetOwner::Namespace(name.parse().unwrap())
    }

    #[test]
    fn a_vm_that_is_fast_only_sometimes_stays_slow() {
        let mut pace = PullHealth::default();
        assert!(!pace.is_slow());
        for slow in [true, false, false, true, false, false] {
            pace = pace.after(slow);
            assert!(pace.is_slow());
        }
        assert!(!pace.after(false).is_slow());
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_with_hanging_pulls_does_not_delay_others() {
        let mut pools = PullLimiter::new(8);
        let mut held = Vec::new();
        for _ in 0..100 {
            let permits = pools.permits(budget_owner("slow"), false);
            if let Ok(permits) = tokio::time::timeout(Duration::from_secs(1), permits.acquire()).await {
                held.push(permits);
            }
        }
        assert_eq!(held.len(), 2, "the tenant's share");
        for _ in 0..2 {
            let other = pools.permits(budget_owner("other"), false).acquire();
            held.push(tokio::time::timeout(Duration::from_secs(1), other).await.unwrap());
        }
    }

    #[test]
    fn unused_shares_are_removed() {
        let mut pools = PullLimiter::new(8);
        let kept = pools.permits(budget_owner("kept"), true);
        for n in 0..10 * MAX_UNUSED_SHARES {
            drop(pools.permits(budget_owner(&format!("t{n}")), true));
        }
        assert!(pools.pools[1].tenants.len() <= MAX_UNUSED_SHARES + 1);
        assert!(pools.pools[1].tenants.contains_key(&budget_owner("kept")));
        drop(kept);
    }
}
