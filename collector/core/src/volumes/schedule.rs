//! Chooses the VMs whose volumes are read next: few requests at a time, and no tenant before the
//! others.

use std::collections::{BTreeMap, VecDeque};

use virtfleet_wire::ids::{Namespace, VmKey};

use crate::pull_result::UnixMs;

/// Time after which the volumes of a VM that waits are read again, in milliseconds.
pub(crate) const REREAD_AFTER_MS: u64 = 30_000;

/// A VM whose volumes are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WaitingVm<'a> {
    pub(crate) vm: &'a VmKey,
    /// Number of requests that read its volumes.
    pub(crate) requests: usize,
    /// When they were read last.
    pub(crate) read_ms: Option<UnixMs>,
}

/// The VMs to read now, with at most `max_requests` requests. A namespace is a tenant, or a part of
/// one: the one that was served least recently comes first, and each gets one VM in turn, so that a
/// thousand VMs of one tenant do not delay those of another.
/// None is read again before `reread_after_ms`.
pub(crate) fn choose(
    waiting: &[WaitingVm<'_>],
    now_ms: UnixMs,
    reread_after_ms: u64,
    max_requests: usize,
) -> Vec<VmKey> {
    let mut namespaces: BTreeMap<&Namespace, (Option<UnixMs>, VecDeque<WaitingVm<'_>>)> = BTreeMap::new();
    for one in waiting {
        let (served_ms, due) = namespaces.entry(&one.vm.namespace).or_default();
        *served_ms = (*served_ms).max(one.read_ms);
        let is_due = |at: UnixMs| now_ms.saturating_sub(at) >= reread_after_ms;
        if one.read_ms.is_none_or(is_due) {
            due.push_back(*one);
        }
    }
    let mut queues: Vec<_> = namespaces.into_values().collect();
    queues.sort_by_key(|(served_ms, _)| *served_ms);
    for (_, due) in &mut queues {
        due.make_contiguous().sort_by_key(|one| (one.read_ms, one.vm));
    }
    let (mut chosen, mut left) = (Vec::new(), max_requests);
    loop {
        let before = chosen.len();
        for (_, due) in &mut queues {
            let Some(next) = due.pop_front() else { continue };
            let Some(rest) = left.checked_sub(next.requests) else {
                return chosen;
            };
            left = rest;
            chosen.push(next.vm.clone());
        }
        if chosen.len() == before {
            return chosen;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::store::tests::key;

    fn waiting(vm: &VmKey, read_ms: Option<UnixMs>) -> WaitingVm<'_> {
        WaitingVm {
            vm,
            requests: 2,
            read_ms,
        }
    }

    #[test]
    fn a_tenant_with_many_vms_does_not_delay_another() {
        let loud: Vec<VmKey> = (0..1000).map(|n| key("loud", &format!("vm-{n:04}"))).collect();
        let quiet = key("quiet", "vm");
        let mut all: Vec<_> = loud.iter().map(|vm| waiting(vm, None)).collect();
        all.push(waiting(&quiet, None));
        let chosen = choose(&all, 1_000_000, REREAD_AFTER_MS, 8);
        assert_eq!(chosen.len(), 4);
        assert!(chosen.contains(&quiet), "{chosen:?}");
        // The next round: the namespace that was served least recently, and its VMs in turn.
        all.last_mut().unwrap().read_ms = Some(900_000);
        all[0].read_ms = Some(1_000_000);
        let chosen = choose(&all, 1_000_000, REREAD_AFTER_MS, 4);
        assert_eq!(chosen, [quiet, key("loud", "vm-0001")]);
    }

    #[test]
    fn what_was_just_read_is_not_read_again() {
        let vm = key("ns", "a");
        let at = |read_ms, now_ms| choose(&[waiting(&vm, read_ms)], now_ms, REREAD_AFTER_MS, 100).len();
        assert_eq!(
            (at(Some(1000), 30_999), at(Some(1000), 31_000), at(None, 0)),
            (0, 1, 1)
        );
        assert_eq!(
            choose(&[waiting(&vm, None)], 0, REREAD_AFTER_MS, 1),
            [],
            "it has no room"
        );
    }

    proptest! {
        #[test]
        fn requests_are_bounded_and_every_vm_has_its_turn(
            vms in prop::collection::btree_set((0..6_u8, 0..30_u8), 1..80),
            max in 16..40_usize,
        ) {
            let keys: Vec<VmKey> = vms.iter().map(|(ns, vm)| key(&format!("n{ns}"), &format!("v{vm}"))).collect();
            let requests = |n: usize| 1 + n % 16;
            let mut read: BTreeMap<VmKey, UnixMs> = BTreeMap::new();
            let mut now_ms = 1_000_000;
            // Each round has room for one VM at least, and the namespaces take turns.
            for _ in 0..keys.len() * 6 {
                let all: Vec<_> = keys.iter().enumerate().map(|(n, vm)| WaitingVm {
                    vm, requests: requests(n), read_ms: read.get(vm).copied(),
                }).collect();
                let chosen = choose(&all, now_ms, REREAD_AFTER_MS, max);
                let sent: usize = chosen.iter().map(|vm| requests(keys.iter().position(|one| one == vm).unwrap())).sum();
                prop_assert!(sent <= max && !chosen.is_empty());
                prop_assert_eq!(chosen.iter().collect::<BTreeSet<_>>().len(), chosen.len());
                read.extend(chosen.into_iter().map(|vm| (vm, now_ms)));
                // Long enough that all are due again.
                now_ms += REREAD_AFTER_MS;
            }
            prop_assert_eq!(read.len(), keys.len(), "somebody starves");
        }
    }
}
