//! Keys of a VM: the index uses them to find all VMs that a change affects.
//!
//! A VM's keys depend on its own facts, the `UserCluster`s and the user-cluster Nodes, never on
//! another VM, so that one update of the keys and one of the views is enough for any change.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::SocketAddr,
};

use virtfleet_wire::ids::{ClusterName, NodeName, Uuid, VmKey, VmName};

use crate::{pending::ClusterLabel, small_set::SmallSet, tenant::Tenant};

/// A value that should be unique to one VM. VMs that share it affect each other's findings.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum SharedValue {
    /// `spec.domain.firmware.uuid`.
    Firmware(Uuid),
    /// The SMBIOS UUID in the report.
    Claimed(Uuid),
    /// The boot id in the report.
    Boot(String),
    /// The address that would be dialled.
    Address(SocketAddr),
    /// The host name in the report of a VM that no Node names, within its cluster.
    Hostname(ClusterName, NodeName),
    /// The firmware UUID of a VM or of its template, if it is the hash of a name.
    HashedUuid(Uuid),
    /// The name of a VM whose firmware UUID is a hash, or will be for all that is known.
    HashedName(VmName),
}

/// Result of rules 1 to 3, which use only data of the Nodes and of the VM itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum NodeMatch {
    /// No Node names it.
    #[default]
    None,
    /// This one names it, and has its UUID. Whether that is a second fact depends on other VMs.
    Confirmed(NodeName),
    /// This one names it; whether it is the VM's machine is not known.
    Unconfirmed(NodeName),
    /// This one does not name it, and its kubelet runs on the VM's machine.
    Machine(NodeName),
    /// Several name it in their `providerID`, or run on its machine; the first few, sorted.
    Ambiguous(Vec<NodeName>),
    /// This one names it, and is another machine or has a `providerID` of something else.
    Contradicts(NodeName),
    /// Its user cluster has Nodes in common with another one.
    Refused,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Keys {
    /// Its user cluster.
    pub(crate) tenant: Tenant,
    /// The user cluster in its labels, when no `UserCluster` selects it.
    pub(crate) cluster_label: Option<ClusterLabel>,
    /// Its Node by the Nodes' own data.
    pub(crate) node_match: NodeMatch,
    /// `status.nodeName`.
    pub(crate) host: Option<NodeName>,
    /// Values that it may share with others, sorted.
    pub(crate) shared_values: Box<[SharedValue]>,
}

/// Maximum other VMs that a finding names.
pub(crate) const MAX_NAMED_VMS: usize = 8;

/// The VMs that have each value.
#[derive(Debug, Default)]
pub(crate) struct SharedValues(HashMap<SharedValue, SmallSet<VmKey>>);

impl SharedValues {
    /// The VMs with the value `shared`, sorted.
    pub(crate) fn members(&self, shared: &SharedValue) -> impl Iterator<Item = &VmKey> {
        self.0.get(shared).into_iter().flatten()
    }
    /// The first [`MAX_NAMED_VMS`] other VMs that must not share `shared` with `vm`, and whether
    /// there are more. For a firmware UUID these are the VMs of other names, the first of each
    /// name.
    pub(crate) fn others(&self, shared: &SharedValue, vm: &VmKey) -> (Vec<VmKey>, bool) {
        let members = self
            .0
            .get(shared)
            .map(|members| conflicting(shared, members))
            .unwrap_or_default();
        let same = |other: &&VmKey| match shared {
            SharedValue::Firmware(_) => other.name == vm.name,
            _ => *other == vm,
        };
        let mut others = members.into_iter().filter(|other| !same(other));
        let named = others.by_ref().take(MAX_NAMED_VMS).cloned().collect();
        (named, others.next().is_some())
    }

    /// Moves `vm` from the values in `old` to those in `new`, and adds to `touched` all VMs whose
    /// findings may change.
    pub(crate) fn update(
        &mut self,
        vm: &VmKey,
        old: &[SharedValue],
        new: &[SharedValue],
        touched: &mut BTreeSet<VmKey>,
    ) {
        let left = old
            .iter()
            .filter(|shared| !new.contains(shared))
            .map(|shared| (shared, false));
        let joined = new
            .iter()
            .filter(|shared| !old.contains(shared))
            .map(|shared| (shared, true));
        for (shared, joins) in left.chain(joined) {
            let members = self.0.entry(shared.clone()).or_default();
            let before = Visible::of(shared, members);
            if joins {
                members.insert(vm.clone());
            } else {
                members.remove(vm);
            }
            // A finding names only the first few others: one more of thousands of equal guests
            // changes few findings.
            if Visible::of(shared, members) != before {
                touched.extend(members.iter().cloned());
            }
            if members.is_empty() {
                self.0.remove(shared);
            }
        }
    }
}

/// What others see of the VMs with a value.
#[derive(PartialEq)]
enum Visible {
    /// Only whether a VM is alone: none, one, or more. Thousands of VMs may have one name.
    Count(usize),
    /// The members that can appear in a finding: the first that it could name (one may be the VM
    /// itself), and one more.
    Named(Vec<VmKey>),
}

impl Visible {
    fn of(shared: &SharedValue, members: &SmallSet<VmKey>) -> Self {
        match shared {
            SharedValue::HashedUuid(_) | SharedValue::HashedName(_) => Self::Count(members.len().min(2)),
            _ => Self::Named(conflicting(shared, members).into_iter().cloned().collect()),
        }
    }
}

/// The first conflicting members, two more than a finding names. For a firmware UUID, one VM of
/// each name: without a UUID in the VM's spec, KubeVirt derives it from the VM's name alone, so VMs
/// of one name in several namespaces share it; they are never Nodes of one cluster.
fn conflicting<'a>(shared: &SharedValue, members: &'a SmallSet<VmKey>) -> Vec<&'a VmKey> {
    let all = members.iter();
    if !matches!(shared, SharedValue::Firmware(_)) {
        return all.take(MAX_NAMED_VMS + 2).collect();
    }
    let mut found: Vec<&VmKey> = Vec::new();
    for member in all {
        if found.len() == MAX_NAMED_VMS + 2 {
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
    fn only_vms_whose_finding_can_change_are_touched() {
        let mut shared_values = SharedValues::default();
        let shared = SharedValue::Boot("b".into());
        let with = [shared.clone()];
        let mut touched_by = |name: &str, old: &[SharedValue], new: &[SharedValue]| {
            let mut touched = BTreeSet::new();
            shared_values.update(&key("ns", name), old, new, &mut touched);
            touched.len()
        };
        let none = [];
        assert_eq!(touched_by("a0", &none, &with), 1);
        assert_eq!(touched_by("a1", &none, &with), 2);
        for i in 2..=MAX_NAMED_VMS + 1 {
            assert_eq!(touched_by(&format!("a{i}"), &none, &with), i + 1);
        }
        assert_eq!(touched_by("z", &none, &with), 0, "beyond the named VMs");
        assert_eq!(touched_by("a0", &with, &none), MAX_NAMED_VMS + 2, "a named VM");
        let (others, more) = shared_values.others(&shared, &key("ns", "a1"));
        assert_eq!((others.len(), more), (MAX_NAMED_VMS, true));
    }

    /// KubeVirt hashes the name of a VM into its firmware UUID.
    #[test]
    fn vms_of_one_name_share_a_firmware_uuid_and_no_finding() {
        let mut shared_values = SharedValues::default();
        let with = [SharedValue::Firmware(
            "5d307ca9-b3ef-428c-8861-06e72d69f223".parse().unwrap(),
        )];
        let mut join = |namespace: &str, name: &str| {
            let mut touched = BTreeSet::new();
            shared_values.update(&key(namespace, name), &[], &with, &mut touched);
            touched.len()
        };
        assert_eq!(join("a", "worker-0"), 1);
        for namespace in 'b'..='z' {
            assert_eq!(join(&namespace.to_string(), "worker-0"), 0, "no finding changes");
        }
        assert_eq!(join("zz", "restored"), 27, "a copy with another name affects all");
        let others = |namespace: &str, name: &str| shared_values.others(&with[0], &key(namespace, name));
        assert_eq!(others("m", "worker-0"), (vec![key("zz", "restored")], false));
        assert_eq!(others("zz", "restored"), (vec![key("a", "worker-0")], false));
    }

    #[test]
    fn of_many_vms_with_one_hash_only_a_second_one_affects_others() {
        let uuid = "5d307ca9-b3ef-528c-8861-06e72d69f223".parse().unwrap();
        for shared in [
            SharedValue::HashedUuid(uuid),
            SharedValue::HashedName("worker-0".parse().unwrap()),
        ] {
            let mut shared_values = SharedValues::default();
            let with = [shared];
            let mut touched_by = |namespace: &str, old: &[SharedValue], new: &[SharedValue]| {
                let mut touched = BTreeSet::new();
                shared_values.update(&key(namespace, "worker-0"), old, new, &mut touched);
                touched.len()
            };
            assert_eq!(touched_by("b", &[], &with), 1);
            assert_eq!(touched_by("c", &[], &with), 2);
            assert_eq!(touched_by("a", &[], &with), 0);
            assert_eq!(touched_by("a", &with, &[]), 0);
            assert_eq!(touched_by("b", &with, &[]), 1, "the other one is alone now");
        }
    }
}
