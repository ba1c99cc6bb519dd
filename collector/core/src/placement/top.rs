//! VMs and infra nodes by use: what guests report. Made from the snapshot that the caller may see.

use std::{cmp::Reverse, collections::BTreeMap};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::ids::{ClusterName, Namespace, NodeName, VmName};

use crate::{
    health::{HealthCause, HealthVerdict},
    usage::{GuestUsage, Share},
    view::{FleetSnapshot, VmView},
};

/// Order of VMs or infra nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopOrder {
    Cpu,
    /// By the share of stolen CPU time.
    Steal,
    /// By memory pressure, then by the share of memory in use.
    Memory,
    /// By I/O pressure.
    Io,
}

impl TopOrder {
    pub fn of(text: &str) -> Option<Self> {
        Some(match text {
            "cpu" => Self::Cpu,
            "steal" => Self::Steal,
            "memory" => Self::Memory,
            "io" => Self::Io,
            _ => return None,
        })
    }
}

/// A VM with its use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopVm {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its name.
    pub name: VmName,
    /// Its user cluster.
    pub cluster: Option<ClusterName>,
    /// Its infra node.
    pub infra_node: Option<NodeName>,
    /// Its verdict.
    pub verdict: HealthVerdict,
    /// Cause of the verdict.
    pub cause: Option<HealthCause>,
    /// CPUs that its guest reports.
    pub cpus: u64,
    /// CPU in use, in thousandths of a CPU.
    pub used_cpu_milli: Option<u64>,
    /// Shares of the time between the last two pulls.
    pub usage: GuestUsage,
}

/// An infra node with the use of its VMs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopHost {
    /// Its name.
    pub name: NodeName,
    /// VMs on it.
    pub vms: usize,
    /// Of these, VMs whose CPU use is known.
    pub measured: usize,
    /// vCPUs of all VMs.
    pub vcpus: u64,
    /// CPU that the measured VMs use, in thousandths of a CPU.
    pub used_cpu_milli: u64,
    /// The highest steal of a VM.
    pub most_steal: Option<Share>,
    /// VMs with 5 % steal or more.
    pub with_steal: usize,
    /// The highest memory pressure of a VM.
    pub most_memory_pressure: Option<Share>,
    /// The highest I/O pressure of a VM.
    pub most_io_pressure: Option<Share>,
}

/// Steal of a VM, in thousandths, from which it is counted.
const COUNTED_STEAL_MILLI: u16 = 50;

impl TopHost {
    /// Without VMs.
    pub(super) fn of(name: &NodeName) -> Self {
        Self {
            name: name.clone(),
            vms: 0,
            measured: 0,
            vcpus: 0,
            used_cpu_milli: 0,
            most_steal: None,
            with_steal: 0,
            most_memory_pressure: None,
            most_io_pressure: None,
        }
    }

    pub(super) fn add(&mut self, vm: &VmView, vcpus: u64) {
        self.vms += 1;
        self.vcpus = self.vcpus.saturating_add(vcpus);
        let Some(usage) = vm.guest.as_ref().and_then(|guest| guest.usage) else {
            return;
        };
        if let Some(used) = usage.cpu_used {
            self.measured += 1;
            let used = vcpus.saturating_mul(used.milli().into());
            self.used_cpu_milli = self.used_cpu_milli.saturating_add(used);
        }
        self.with_steal += usize::from(GuestUsage::milli(usage.cpu_steal) >= COUNTED_STEAL_MILLI);
        self.most_steal = self.most_steal.max(usage.cpu_steal);
        self.most_memory_pressure = self.most_memory_pressure.max(usage.memory_pressure);
        self.most_io_pressure = self.most_io_pressure.max(usage.io_pressure);
    }
}

/// The first `limit` VMs whose use is known, in this order.
pub fn top_vms(fleet: &FleetSnapshot, order: TopOrder, limit: usize) -> Vec<TopVm> {
    let measured = fleet.vms.values().filter_map(|vm| {
        let guest = vm.guest.as_ref()?;
        Some((vm, guest.metrics.cpus, guest.usage?))
    });
    let mut all: Vec<(_, u64, GuestUsage)> = measured.collect();
    let used = |cpus: u64, usage: GuestUsage| {
        let share = usage.cpu_used?;
        Some(cpus.saturating_mul(share.milli().into()))
    };
    all.sort_by_key(|(vm, cpus, usage)| {
        let available = Reverse(usage.memory_available.map_or(u16::MAX, Share::milli));
        let rank = match order {
            TopOrder::Cpu => (used(*cpus, *usage), None, available),
            TopOrder::Steal => (None, usage.cpu_steal, available),
            TopOrder::Memory => (None, usage.memory_pressure, available),
            TopOrder::Io => (None, usage.io_pressure, available),
        };
        (Reverse(rank), &vm.namespace, &vm.name)
    });
    let top = all.into_iter().take(limit);
    top.map(|(vm, cpus, usage)| TopVm {
        namespace: vm.namespace.clone(),
        name: vm.name.clone(),
        cluster: vm.cluster.clone(),
        infra_node: vm.infra_node.clone(),
        verdict: vm.health.verdict,
        cause: vm.health.cause,
        cpus,
        used_cpu_milli: used(cpus, usage),
        usage,
    })
    .collect()
}

/// The first `limit` infra nodes with VMs, in this order.
pub fn top_hosts(fleet: &FleetSnapshot, order: TopOrder, limit: usize) -> Vec<TopHost> {
    let mut hosts = BTreeMap::<&NodeName, TopHost>::new();
    for vm in fleet.vms.values() {
        let Some(name) = &vm.infra_node else { continue };
        let host = hosts.entry(name).or_insert_with(|| TopHost::of(name));
        host.add(vm, vm.guest.as_ref().map_or(0, |guest| guest.metrics.cpus));
    }
    let mut all: Vec<TopHost> = hosts.into_values().collect();
    all.sort_by_key(|host| {
        let rank = match order {
            TopOrder::Cpu => (host.used_cpu_milli, None),
            TopOrder::Steal => (host.with_steal as u64, host.most_steal),
            TopOrder::Memory => (0, host.most_memory_pressure),
            TopOrder::Io => (0, host.most_io_pressure),
        };
        (Reverse(rank), host.name.clone())
    });
    all.truncate(limit);
    all
}
