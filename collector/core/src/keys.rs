//! What a VM shares with others: the keys under which the index finds all whom one change touches.
//!
//! A VM's keys follow from its own facts, the `UserCluster`s and the user-cluster Nodes, never from another VM, so that
//! one pass over the keys and one over the views settle any change.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::SocketAddr,
};

use virtfleet_wire::ids::{ClusterName, NodeName, Uuid, VmKey};

use crate::{few::Few, join::Firm, pending::Wish, tenant::Tenant};

/// A value that only one VM should have. Those who share it are judged together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Tie {
    /// `spec.domain.firmware.uuid`.
    Firmware(Uuid),
    /// The SMBIOS UUID in the report.
    Claimed(Uuid),
    /// The boot id in the report.
    Boot(String),
    /// Where it would be dialled.
    Address(SocketAddr),
    /// The host name in the report, of a VM that no Node names; within its cluster.
    Hostname(ClusterName, NodeName),
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Keys {
    /// Whose it is.
    pub(crate) tenant: Tenant,
    /// Whose it would be by its labels, when no `UserCluster` selects it.
    pub(crate) wish: Option<Wish>,
    /// Its Node as far as the Nodes themselves say.
    pub(crate) firm: Firm,
    /// `status.nodeName`.
    pub(crate) host: Option<NodeName>,
    /// What it shares, sorted.
    pub(crate) ties: Box<[Tie]>,
}

/// How many others a finding names.
pub(crate) const NAMED: usize = 8;

/// Who shares each tie.
#[derive(Debug, Default)]
pub(crate) struct Ties(HashMap<Tie, Few<VmKey>>);

impl Ties {
    /// Those who share `tie`, in order.
    pub(crate) fn members(&self, tie: &Tie) -> impl Iterator<Item = &VmKey> {
        self.0.get(tie).into_iter().flatten()
    }

    /// The first [`NAMED`] others who should not share `tie` with `vm`, and whether there are more. Of a firmware UUID these are
    /// the VMs of other names, the first of each name.
    pub(crate) fn others(&self, tie: &Tie, vm: &VmKey) -> (Vec<VmKey>, bool) {
        let members = self
            .0
            .get(tie)
            .map(|members| judged(tie, members))
            .unwrap_or_default();
        let same = |other: &&VmKey| match tie {
            Tie::Firmware(_) => other.name == vm.name,
            _ => *other == vm,
        };
        let mut others = members.into_iter().filter(|other| !same(other));
        let named = others.by_ref().take(NAMED).cloned().collect();
        (named, others.next().is_some())
    }

    /// Takes `vm` from the ties in `old` to those in `new`, and adds to `touched` all whose findings may change by it.
    pub(crate) fn turn(&mut self, vm: &VmKey, old: &[Tie], new: &[Tie], touched: &mut BTreeSet<VmKey>) {
        let left = old
            .iter()
            .filter(|tie| !new.contains(tie))
            .map(|tie| (tie, false));
        let joined = new.iter().filter(|tie| !old.contains(tie)).map(|tie| (tie, true));
        for (tie, joins) in left.chain(joined) {
            let members = self.0.entry(tie.clone()).or_default();
            let before = visible(tie, members);
            if joins {
                members.insert(vm.clone());
            } else {
                members.remove(vm);
            }
            // A finding names the first few others only: with thousands of equal guests, one more changes nothing for most.
            if visible(tie, members) != before {
                touched.extend(members.iter().cloned());
            }
            if members.is_empty() {
                self.0.remove(tie);
            }
        }
    }
}

/// What any member's finding can show: the first that it could name (one of them may be itself), and whether there are more.
fn visible(tie: &Tie, members: &Few<VmKey>) -> Vec<VmKey> {
    judged(tie, members).into_iter().cloned().collect()
}

/// The first members that are judged together, two more than a finding names. Of a firmware UUID, one VM of each name:
/// without one in the VM's spec, KubeVirt derives it from the VM's name alone, so VMs of one name in several namespaces, which
/// are never Nodes of one cluster, share theirs.
fn judged<'a>(tie: &Tie, members: &'a Few<VmKey>) -> Vec<&'a VmKey> {
    let all = members.iter();
    if !matches!(tie, Tie::Firmware(_)) {
        return all.take(NAMED + 2).collect();
    }
    let mut found: Vec<&VmKey> = Vec::new();
    for member in all {
        if found.len() == NAMED + 2 {
            break;
        }
        if found.iter().all(|known| known.name != member.name) {
            found.push(member);
        }
    }
    found
}

/// A set of VMs under a key, e.g. by infra node.
pub(crate) type VmsBy<K> = BTreeMap<K, BTreeSet<VmKey>>;

/// Takes `vm` from under `old` to under `new`.
pub(crate) fn move_under<K: Ord + Clone>(index: &mut VmsBy<K>, vm: &VmKey, old: Option<&K>, new: Option<&K>) {
    if old == new {
        return;
    }
    if let Some(old) = old
        && let Some(members) = index.get_mut(old)
    {
        members.remove(vm);
        if members.is_empty() {
            index.remove(old);
        }
    }
    if let Some(new) = new {
        index.entry(new.clone()).or_default().insert(vm.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::key;

    #[test]
    fn only_those_whose_finding_can_change_are_touched() {
        let mut ties = Ties::default();
        let tie = Tie::Boot("b".into());
        let with = [tie.clone()];
        let mut touched_by = |name: &str, old: &[Tie], new: &[Tie]| {
            let mut touched = BTreeSet::new();
            ties.turn(&key("ns", name), old, new, &mut touched);
            touched.len()
        };
        let none = [];
        assert_eq!(touched_by("a0", &none, &with), 1);
        assert_eq!(touched_by("a1", &none, &with), 2);
        for i in 2..=NAMED + 1 {
            assert_eq!(touched_by(&format!("a{i}"), &none, &with), i + 1);
        }
        assert_eq!(touched_by("z", &none, &with), 0, "beyond those who are named");
        assert_eq!(touched_by("a0", &with, &none), NAMED + 2, "one who is named");
        let (others, more) = ties.others(&tie, &key("ns", "a1"));
        assert_eq!((others.len(), more), (NAMED, true));
    }

    /// KubeVirt hashes the name of a VM into its firmware UUID.
    #[test]
    fn vms_of_one_name_share_a_firmware_uuid_and_no_finding() {
        let mut ties = Ties::default();
        let with = [Tie::Firmware(
            "5d307ca9-b3ef-428c-8861-06e72d69f223".parse().unwrap(),
        )];
        let mut join = |namespace: &str, name: &str| {
            let mut touched = BTreeSet::new();
            ties.turn(&key(namespace, name), &[], &with, &mut touched);
            touched.len()
        };
        assert_eq!(join("a", "worker-0"), 1);
        for namespace in 'b'..='z' {
            assert_eq!(
                join(&namespace.to_string(), "worker-0"),
                0,
                "nobody's finding changes"
            );
        }
        assert_eq!(
            join("zz", "restored"),
            27,
            "a copy under another name is everybody's"
        );
        let others = |namespace: &str, name: &str| ties.others(&with[0], &key(namespace, name));
        assert_eq!(others("m", "worker-0"), (vec![key("zz", "restored")], false));
        assert_eq!(others("zz", "restored"), (vec![key("a", "worker-0")], false));
    }
}
