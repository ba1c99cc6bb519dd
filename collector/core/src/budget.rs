//! Memory budget for complete reports: in total and per tenant. Over the budget, the largest report
//! of that tenant is dropped first, so a guest that sends much affects itself, then its tenant, and
//! never another tenant.

use std::collections::{BTreeSet, HashMap};

use virtfleet_wire::ids::{ClusterName, Namespace, VmKey};

/// Maximum bytes of all complete reports, compressed.
pub(crate) const MAX_TOTAL: usize = 64 * 1024 * 1024;
/// Maximum bytes of one tenant's complete reports, compressed.
pub(crate) const MAX_TENANT: usize = 24 * 1024 * 1024;

/// The tenant to which a VM's resource usage counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BudgetOwner {
    /// The user cluster that it serves.
    Cluster(ClusterName),
    /// Its namespace, for a VM that no `UserCluster` selects, or several.
    Namespace(Namespace),
}

/// Memory used by each tenant's complete reports.
#[derive(Debug)]
pub(crate) struct ReportBudget {
    total_limit: usize,
    tenant_limit: usize,
    total: usize,
    by_vm: HashMap<VmKey, (BudgetOwner, usize)>,
    by_owner: HashMap<BudgetOwner, OwnerUsage>,
    by_size: BTreeSet<(usize, VmKey)>,
}

#[derive(Debug, Default)]
struct OwnerUsage {
    bytes: usize,
    by_size: BTreeSet<(usize, VmKey)>,
}

impl Default for ReportBudget {
    fn default() -> Self {
        Self::new(MAX_TOTAL, MAX_TENANT)
    }
}

impl ReportBudget {
    pub(crate) fn new(total_limit: usize, tenant_limit: usize) -> Self {
        Self {
            total_limit,
            tenant_limit,
            total: 0,
            by_vm: HashMap::new(),
            by_owner: HashMap::new(),
            by_size: BTreeSet::new(),
        }
    }

    /// Sets the size of a VM's report in bytes. Returns the VMs whose reports the caller must drop;
    /// they are no longer counted.
    pub(crate) fn set(&mut self, vm: &VmKey, budget_owner: &BudgetOwner, bytes: usize) -> Vec<VmKey> {
        if self
            .by_vm
            .get(vm)
            .is_some_and(|(known, size)| (known, *size) == (budget_owner, bytes))
        {
            return Vec::new();
        }
        self.remove(vm);
        if bytes == 0 {
            return Vec::new();
        }
        self.total += bytes;
        self.by_size.insert((bytes, vm.clone()));
        self.by_vm.insert(vm.clone(), (budget_owner.clone(), bytes));
        let account = self.by_owner.entry(budget_owner.clone()).or_default();
        account.bytes += bytes;
        account.by_size.insert((bytes, vm.clone()));
        let mut over = Vec::new();
        loop {
            let account = self.by_owner.get(budget_owner);
            let largest = match account {
                Some(account) if account.bytes > self.tenant_limit => account.by_size.last(),
                _ if self.total > self.total_limit => self.by_size.last(),
                _ => return over,
            };
            let Some((_, largest)) = largest.cloned() else {
                return over;
            };
            self.remove(&largest);
            over.push(largest);
        }
    }

    pub(crate) fn remove(&mut self, vm: &VmKey) {
        let Some((budget_owner, bytes)) = self.by_vm.remove(vm) else {
            return;
        };
        let entry = (bytes, vm.clone());
        self.total -= bytes;
        self.by_size.remove(&entry);
        if let Some(account) = self.by_owner.get_mut(&budget_owner) {
            account.bytes -= bytes;
            account.by_size.remove(&entry);
            if account.by_size.is_empty() {
                self.by_owner.remove(&budget_owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::key;

    fn budget_owner(name: &str) -> BudgetOwner {
        BudgetOwner::Cluster(name.parse().unwrap())
    }

    #[test]
    fn the_largest_report_of_the_tenant_over_budget_is_dropped() {
        let mut budget = ReportBudget::new(1000, 400);
        for n in 0..10 {
            assert_eq!(
                budget.set(&key("honest", &format!("vm-{n}")), &budget_owner("a"), 30),
                []
            );
        }
        // Over the tenant's budget: its largest report is dropped, which may be the new one.
        assert_eq!(budget.set(&key("bad", "x"), &budget_owner("b"), 300), []);
        assert_eq!(
            budget.set(&key("bad", "y"), &budget_owner("b"), 200),
            [key("bad", "x")]
        );
        assert_eq!(
            budget.set(&key("bad", "z"), &budget_owner("b"), 250),
            [key("bad", "z")]
        );
        // Over the total: the largest of all is dropped, and no small one of another tenant.
        for (n, name) in ["c", "d"].into_iter().enumerate() {
            let gone = budget.set(&key("bad", name), &budget_owner(name), 260 + n);
            assert!(
                !gone.iter().any(|vm| vm.namespace.as_str() == "honest"),
                "{gone:?}"
            );
        }
        assert!(budget.total <= 1000);
    }

    #[test]
    fn removed_reports_free_their_budget() {
        let mut budget = ReportBudget::new(100, 100);
        budget.set(&key("a", "x"), &budget_owner("a"), 80);
        budget.set(&key("a", "x"), &budget_owner("b"), 90);
        assert_eq!((budget.total, budget.by_owner.len()), (90, 1));
        budget.set(&key("a", "x"), &budget_owner("b"), 0);
        assert_eq!(budget.total, 0);
        assert!(budget.by_vm.is_empty() && budget.by_owner.is_empty() && budget.by_size.is_empty());
    }
}
