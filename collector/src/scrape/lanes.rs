//! Who may be pulled at once. Two lanes, so that the healthy never wait for the sick; and in each a share for every tenant, so
//! that one whose agents are slow on purpose takes no other's turn.

use std::{collections::HashMap, sync::Arc};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use virtfleet_collector_core::budget::BudgetOwner;

/// Rounds in a row that must be quick before a sick VM counts as healthy: one that is quick every other time stays sick.
const QUICK_ROUNDS: u8 = 3;

/// Which lane a VM is in. Pure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Pace {
    /// Quick rounds that are still missing; 0: healthy.
    missing: u8,
}

impl Pace {
    pub(super) fn is_sick(self) -> bool {
        self.missing > 0
    }

    /// A round has ended; `slow` when it failed or took long.
    pub(super) fn after(self, slow: bool) -> Self {
        Self {
            missing: if slow {
                QUICK_ROUNDS
            } else {
                self.missing.saturating_sub(1)
            },
        }
    }
}

/// The two lanes with their tenants' shares.
#[derive(Debug)]
pub(super) struct Lanes {
    lanes: [Lane; 2],
}

#[derive(Debug)]
struct Lane {
    all: Arc<Semaphore>,
    share: usize,
    tenants: HashMap<BudgetOwner, Arc<Semaphore>>,
}

/// A place that a pull waits for: first its tenant's, so that a tenant that is over its share holds no place of others.
#[derive(Debug)]
pub(super) struct Place {
    tenant: Arc<Semaphore>,
    all: Arc<Semaphore>,
}

/// More shares than this are looked through for those that nobody uses.
const MANY_TENANTS: usize = 64;

impl Lanes {
    /// `concurrency` pulls at once in each lane. One tenant has a quarter of the healthy lane, and half of the sick one, where
    /// a tenant whose nodes are all away would otherwise be asked too seldom.
    pub(super) fn new(concurrency: usize) -> Self {
        let lane = |share: usize| Lane {
            all: Arc::new(Semaphore::new(concurrency)),
            share: share.max(1),
            tenants: HashMap::new(),
        };
        Self {
            lanes: [lane(concurrency / 4), lane(concurrency / 2)],
        }
    }

    /// Where a VM of this tenant waits.
    pub(super) fn place(&mut self, budget_owner: BudgetOwner, sick: bool) -> Place {
        let lane = &mut self.lanes[usize::from(sick)];
        if lane.tenants.len() > MANY_TENANTS {
            lane.tenants.retain(|_, share| Arc::strong_count(share) > 1);
        }
        let share = lane.share;
        let tenant = lane
            .tenants
            .entry(budget_owner)
            .or_insert_with(|| Arc::new(Semaphore::new(share)));
        Place {
            tenant: Arc::clone(tenant),
            all: Arc::clone(&lane.all),
        }
    }
}

impl Place {
    /// Waits for both places; they are given back with the drop. Semaphores are never closed, so that there is always one.
    pub(super) async fn take(self) -> (Option<OwnedSemaphorePermit>, Option<OwnedSemaphorePermit>) {
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
    fn who_is_quick_now_and_then_stays_sick() {
        let mut pace = Pace::default();
        assert!(!pace.is_sick());
        for slow in [true, false, false, true, false, false] {
            pace = pace.after(slow);
            assert!(pace.is_sick());
        }
        assert!(!pace.after(false).is_sick());
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_whose_pulls_never_end_takes_no_others_turn() {
        let mut lanes = Lanes::new(8);
        let mut held = Vec::new();
        for _ in 0..100 {
            let place = lanes.place(budget_owner("slow"), false);
            if let Ok(permits) = tokio::time::timeout(Duration::from_secs(1), place.take()).await {
                held.push(permits);
            }
        }
        assert_eq!(held.len(), 2, "its share");
        for _ in 0..2 {
            let other = lanes.place(budget_owner("other"), false).take();
            held.push(tokio::time::timeout(Duration::from_secs(1), other).await.unwrap());
        }
    }

    #[test]
    fn shares_of_tenants_that_are_gone_go() {
        let mut lanes = Lanes::new(8);
        let kept = lanes.place(budget_owner("kept"), true);
        for n in 0..10 * MANY_TENANTS {
            drop(lanes.place(budget_owner(&format!("t{n}")), true));
        }
        assert!(lanes.lanes[1].tenants.len() <= MANY_TENANTS + 1);
        assert!(lanes.lanes[1].tenants.contains_key(&budget_owner("kept")));
        drop(kept);
    }
}
