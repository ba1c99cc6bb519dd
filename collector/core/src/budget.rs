//! How much memory whole reports may take: in all, and those of one tenant. Whoever is over it loses its largest first, so a
//! guest that sends much costs itself, and then its tenant, and never another one.

use std::collections::{BTreeSet, HashMap};

use virtfleet_wire::ids::{ClusterName, Namespace, VmKey};

/// Maximum bytes of all whole reports together, compressed.
pub(crate) const MAX_TOTAL: usize = 64 * 1024 * 1024;
/// Maximum bytes of the whole reports of one tenant, compressed.
pub(crate) const MAX_TENANT: usize = 24 * 1024 * 1024;

/// On whose account a VM's cost goes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Payer {
    /// The user cluster that it serves.
    Cluster(ClusterName),
    /// Its namespace, for a VM that no `UserCluster` selects, or several.
    Namespace(Namespace),
}

/// Who uses how much. Pure.
#[derive(Debug)]
pub(crate) struct ReportBudget {
    total_limit: usize,
    tenant_limit: usize,
    total: usize,
    by_vm: HashMap<VmKey, (Payer, usize)>,
    by_payer: HashMap<Payer, Account>,
    by_size: BTreeSet<(usize, VmKey)>,
}

#[derive(Debug, Default)]
struct Account {
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
            by_payer: HashMap::new(),
            by_size: BTreeSet::new(),
        }
    }

    /// A VM's report takes so many bytes now. Returns the VMs whose reports must go, which are counted as gone.
    pub(crate) fn set(&mut self, vm: &VmKey, payer: &Payer, bytes: usize) -> Vec<VmKey> {
        if self
            .by_vm
            .get(vm)
            .is_some_and(|(known, size)| (known, *size) == (payer, bytes))
        {
            return Vec::new();
        }
        self.remove(vm);
        if bytes == 0 {
            return Vec::new();
        }
        self.total += bytes;
        self.by_size.insert((bytes, vm.clone()));
        self.by_vm.insert(vm.clone(), (payer.clone(), bytes));
        let account = self.by_payer.entry(payer.clone()).or_default();
        account.bytes += bytes;
        account.by_size.insert((bytes, vm.clone()));
        let mut over = Vec::new();
        loop {
            let account = self.by_payer.get(payer);
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

    /// A VM has no report any more.
    pub(crate) fn remove(&mut self, vm: &VmKey) {
        let Some((payer, bytes)) = self.by_vm.remove(vm) else {
            return;
        };
        let entry = (bytes, vm.clone());
        self.total -= bytes;
        self.by_size.remove(&entry);
        if let Some(account) = self.by_payer.get_mut(&payer) {
            account.bytes -= bytes;
            account.by_size.remove(&entry);
            if account.by_size.is_empty() {
                self.by_payer.remove(&payer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::key;

    fn payer(name: &str) -> Payer {
        Payer::Cluster(name.parse().unwrap())
    }

    #[test]
    fn who_sends_much_loses_its_own() {
        let mut budget = ReportBudget::new(1000, 400);
        for n in 0..10 {
            assert_eq!(
                budget.set(&key("honest", &format!("vm-{n}")), &payer("a"), 30),
                []
            );
        }
        // Over the tenant's: the largest of that tenant goes, which may be the one that came.
        assert_eq!(budget.set(&key("bad", "x"), &payer("b"), 300), []);
        assert_eq!(budget.set(&key("bad", "y"), &payer("b"), 200), [key("bad", "x")]);
        assert_eq!(budget.set(&key("bad", "z"), &payer("b"), 250), [key("bad", "z")]);
        // Over all: the largest of all goes, and no small one of an honest tenant.
        for (n, name) in ["c", "d"].into_iter().enumerate() {
            let gone = budget.set(&key("bad", name), &payer(name), 260 + n);
            assert!(
                !gone.iter().any(|vm| vm.namespace.as_str() == "honest"),
                "{gone:?}"
            );
        }
        assert!(budget.total <= 1000);
    }

    #[test]
    fn what_is_removed_is_free_again() {
        let mut budget = ReportBudget::new(100, 100);
        budget.set(&key("a", "x"), &payer("a"), 80);
        budget.set(&key("a", "x"), &payer("b"), 90);
        assert_eq!((budget.total, budget.by_payer.len()), (90, 1));
        budget.set(&key("a", "x"), &payer("b"), 0);
        assert_eq!(budget.total, 0);
        assert!(budget.by_vm.is_empty() && budget.by_payer.is_empty() && budget.by_size.is_empty());
    }
}
