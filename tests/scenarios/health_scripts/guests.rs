//! Guests with counters of CPU use and pressure, and the other VMs of an infra node.

use serde_json::{Value, json};
use virtfleet_collector_core::{
    pull_result::MetricsSummary,
    usage::{CpuCounters, UsageCounters},
};

use super::script::{Neighbour, Usage};

/// vCPUs of the VM of a script.
pub(super) const VCPUS: u64 = 4;
/// Memory of each guest, in bytes.
const MEMORY_BYTES: f64 = 4e9;

/// The counters of one guest.
#[derive(Debug, Clone)]
pub(super) struct MeteredGuest {
    vcpus: u64,
    pub(super) usage: Usage,
    counters: UsageCounters,
}

impl MeteredGuest {
    pub(super) fn new(vcpus: u64, usage: Usage) -> Self {
        let zero = Some(0);
        Self {
            vcpus,
            usage,
            counters: UsageCounters {
                cpu: Some(CpuCounters::default()),
                cpu_waiting_ms: zero,
                memory_waiting_ms: zero,
                io_waiting_ms: zero,
            },
        }
    }

    /// The page after so many more seconds.
    pub(super) fn page(&mut self, seconds: u64) -> (MetricsSummary, UsageCounters) {
        let Usage {
            steal,
            used,
            cpu_pressure,
            memory_pressure,
            io_pressure,
            memory_available,
        } = self.usage;
        // Hundredths of seconds in milliseconds.
        let hundredth = u32::try_from(seconds * 10).unwrap();
        let all = hundredth * u32::try_from(self.vcpus).unwrap();
        let cpu = self.counters.cpu.as_mut().unwrap();
        cpu.total_ms += all * 100;
        cpu.steal_ms += all * steal;
        cpu.idle_ms += all * (100 - steal - used);
        let add = |counter: &mut Option<u32>, share: u32| *counter = counter.map(|ms| ms + hundredth * share);
        add(&mut self.counters.cpu_waiting_ms, cpu_pressure);
        add(&mut self.counters.memory_waiting_ms, memory_pressure);
        add(&mut self.counters.io_waiting_ms, io_pressure);
        let metrics = MetricsSummary {
            samples: 1,
            cpus: self.vcpus,
            memory_total_bytes: Some(MEMORY_BYTES),
            memory_available_bytes: Some(MEMORY_BYTES * f64::from(memory_available.unwrap_or(50)) / 100.0),
            ..MetricsSummary::default()
        };
        (metrics, self.counters)
    }
}

/// Their VMIs, of another tenant, on the infra node of the script's VM.
pub(super) fn manifests(neighbours: &[Neighbour]) -> Value {
    let vmi = |one: &Neighbour| {
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": { "namespace": "other", "name": one.name, "uid": format!("uid-{}", one.name) },
            "spec": { "domain": { "cpu": { "cores": one.vcpus } } },
            "status": { "phase": "Running", "nodeName": "infra-1" },
        })
    };
    let items: Vec<Value> = neighbours.iter().map(vmi).collect();
    json!({ "apiVersion": "v1", "kind": "List", "items": items })
}
