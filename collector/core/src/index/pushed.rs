//! Agents that connect to the collector: which VM connects from an address, and what a certificate
//! must name.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use virtfleet_wire::{
    enrolment::EnrolmentEvidence,
    ids::{ClusterName, Uuid, VmKey},
};

use super::{FleetIndex, target};
use crate::{
    dial::DialTarget,
    expected::{ExpectedIdentity, MacMatch, usable},
    keys::{MAX_NAMED_VMS, SharedValue},
    pull_result::Failure,
    view::IdentityVerdict,
    way::AgentWay,
};

/// Why an address belongs to no VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoVmAtAddress {
    /// No running virt-launcher pod has it.
    Unknown,
    /// The pods of several VMs have it.
    Shared,
}

impl FleetIndex {
    /// The target of a VM's agent that has connected from `peer`. No rule for dialling applies.
    ///
    /// # Errors
    /// [`FailureClass::NoAddress`]: the VM is unknown, or does not run.
    ///
    /// [`FailureClass::NoAddress`]: crate::pull_result::FailureClass::NoAddress
    pub fn pushed_target(&self, key: &VmKey, peer: SocketAddr) -> Result<DialTarget, Failure> {
        let (entry, vmi) = self.running(key)?;
        Ok(target(key, entry, vmi, peer, AgentWay::Push { peer }))
    }

    /// The only VM whose running virt-launcher pod has this address. In a manifest folder also the
    /// only VM without a pod that would be dialled there.
    ///
    /// # Errors
    /// There is no such VM, or more than one.
    pub fn vm_at(&self, address: IpAddr) -> Result<VmKey, NoVmAtAddress> {
        let mut found = self.vms_at(address);
        match (found.pop_first(), found.is_empty()) {
            (None, _) => Err(NoVmAtAddress::Unknown),
            (Some(only), true) => Ok(only),
            (Some(_), false) => Err(NoVmAtAddress::Shared),
        }
    }

    /// Whether an address is that of a VM's own running virt-launcher pod; as [`Self::vm_at`], and
    /// other VMs may have it too.
    pub fn is_at(&self, key: &VmKey, address: IpAddr) -> bool {
        self.vms_at(address).contains(key)
    }

    /// The only VM of a user cluster with this firmware UUID; none if there is none, or several, or
    /// the UUID is a placeholder.
    pub fn vm_with_uuid(&self, cluster: &ClusterName, uuid: Uuid) -> Option<VmKey> {
        if uuid.is_placeholder() {
            return None;
        }
        let firmware = SharedValue::Firmware(uuid);
        let members = self.store.shared_values.members(&firmware);
        let of_cluster = |key: &&VmKey| {
            let entry = self.store.vms.get(*key);
            entry.is_some_and(|entry| entry.keys.tenant.cluster() == Some(cluster))
        };
        let mut found = members.filter(of_cluster);
        let first = found.next()?;
        found.next().is_none().then(|| first.clone())
    }

    /// The first `max` VMs with this firmware UUID, sorted; none if the UUID is a placeholder. VMs
    /// of one name in several namespaces share it, unless their specs set one.
    pub fn vms_with_uuid(&self, uuid: Uuid, max: usize) -> Vec<VmKey> {
        if uuid.is_placeholder() {
            return Vec::new();
        }
        let firmware = SharedValue::Firmware(uuid);
        let members = self.store.shared_values.members(&firmware);
        members.take(max).cloned().collect()
    }

    /// What the guests of all other VMs must show that a guest with this evidence may be as well:
    /// those with its SMBIOS UUID; and, where nothing says whether it has the UUID of `vm`, those
    /// of which it has all MAC addresses, which are unique within one network at most. None if its
    /// UUID is not that of `vm`.
    pub fn others_like(&self, evidence: &EnrolmentEvidence, vm: &VmKey) -> Vec<ExpectedIdentity> {
        let expected = |key: &VmKey| {
            let vmi = self.store.vms.get(key)?.vmi.as_deref()?;
            Some(ExpectedIdentity::of(vmi))
        };
        let verdict = |one: &ExpectedIdentity| one.compare_uuid(evidence.smbios_uuid);
        match expected(vm).map(|own| verdict(&own)) {
            Some(IdentityVerdict::Confirmed) => {
                let same = evidence.smbios_uuid.into_iter();
                let same = same.flat_map(|uuid| self.vms_with_uuid(uuid, usize::MAX));
                let others = same.filter(|other| other != vm);
                return others.filter_map(|other| expected(&other)).collect();
            }
            Some(IdentityVerdict::Unknown) => {}
            // It is not this VM, whichever it is.
            Some(IdentityVerdict::Disagrees) | None => return Vec::new(),
        }
        let macs = usable(evidence.macs.iter().copied());
        let is_like = |one: &ExpectedIdentity| {
            verdict(one) == IdentityVerdict::Confirmed || one.compare_macs(&macs) == MacMatch::All
        };
        // A guest without UUID seldom needs a certificate, so no index by MAC address is kept.
        let others = self.store.vms.keys().filter(|other| *other != vm);
        others.filter_map(expected).filter(is_like).collect()
    }

    /// Number of VMs in the inventory.
    pub fn vm_count(&self) -> usize {
        self.store.vms.len()
    }

    /// Other VMs at an address; none if `key` is not there itself.
    pub(super) fn sharers_at(&self, key: &VmKey, address: IpAddr) -> Option<Vec<VmKey>> {
        let mut found = self.vms_at(address);
        found.remove(key).then(|| found.into_iter().collect())
    }

    /// VMs at an address; some of them, if there are many.
    fn vms_at(&self, address: IpAddr) -> BTreeSet<VmKey> {
        let address = address.to_canonical();
        let dialled = SharedValue::Address(SocketAddr::new(address, self.store.rules.port()));
        let dialled = self.store.shared_values.members(&dialled).cloned();
        let mut found: BTreeSet<VmKey> = dialled.take(MAX_NAMED_VMS).collect();
        for pod in self.store.launchers_at(address).filter(|pod| pod.running) {
            let Some(key) = pod.key() else { continue };
            let vmi = self.store.vms.get(&key).and_then(|entry| entry.vmi.as_ref());
            // During a live migration the VMI has two pods, and its guest may already be in the
            // other one.
            let is_own = vmi.is_some_and(|vmi| pod.vmi_uid.is_none() || pod.vmi_uid == vmi.uid);
            if is_own {
                found.insert(key);
            }
            if found.len() > MAX_NAMED_VMS {
                break;
            }
        }
        found
    }
}
