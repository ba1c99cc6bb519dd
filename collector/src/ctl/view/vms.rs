//! `virtfleetctl vms`.

use virtfleet_collector_core::{
    health::HealthView,
    pull_result::MetricsSummary,
    view::{List, VmView},
};

use super::{ViewOptions, agent_tone, findings_tone, state_tone, verdict_tone};
use crate::ctl::{
    client::ApiResponse,
    fail::Fail,
    table::{Cell, Table},
    text::{bytes, since},
};

pub(in crate::ctl) fn vms(answer: &ApiResponse, options: &ViewOptions) -> Result<String, Fail> {
    let list: List<VmView> = answer.read()?;
    let mut headers = vec![
        "NAMESPACE",
        "NAME",
        "HEALTH",
        "STATE",
        "AGENT",
        "CLUSTER",
        "INFRA-NODE",
        "ZONE",
        "SEEN",
        "FINDINGS",
    ];
    if options.wide {
        headers.extend([
            "REASON",
            "REGION",
            "USER-NODE",
            "ADDRESS",
            "VERSION",
            "CPUS",
            "MEMORY",
            "LOAD",
            "DISKS",
            "NICS",
            "OS",
            "KERNEL",
            "UID",
        ]);
    }
    let mut table = Table::new(&headers);
    table.rows = list.items.iter().map(|vm| row(vm, options)).collect();
    Ok(options.table(&table, "No VMs found."))
}

fn row(vm: &VmView, options: &ViewOptions) -> Vec<Cell> {
    let mut row = vec![
        Cell::new(vm.namespace.as_str()),
        Cell::new(vm.name.as_str()),
        Cell::toned(word(&vm.health), verdict_tone(vm.health.verdict)),
        Cell::toned(vm.state.as_str(), state_tone(vm.state)),
        Cell::toned(vm.agent.status.as_str(), agent_tone(vm.agent.status)),
        Cell::maybe(vm.cluster.as_ref()),
        Cell::maybe(vm.infra_node.as_ref()),
        Cell::maybe(vm.zone.as_ref()),
        Cell::maybe(vm.agent.last_seen_ms.map(|seen| since(options.now, seen))),
        Cell::toned(vm.findings.to_string(), findings_tone(vm.findings)),
    ];
    if options.wide {
        let guest = vm.guest.as_ref();
        let metrics = guest.map(|guest| &guest.metrics);
        row.extend([
            Cell::new(&vm.health.reason),
            Cell::maybe(vm.region.as_ref()),
            Cell::maybe(vm.user_node.as_ref()),
            Cell::maybe(vm.agent.address),
            Cell::maybe(vm.agent.version.as_ref()),
            Cell::maybe(metrics.map(|metrics| metrics.cpus).filter(|cpus| *cpus > 0)),
            Cell::maybe(metrics.and_then(memory)),
            Cell::maybe(metrics.and_then(|metrics| metrics.load1)),
            Cell::maybe(guest.and_then(|guest| guest.disks)),
            Cell::maybe(guest.and_then(|guest| guest.nics)),
            Cell::maybe(guest.and_then(|guest| guest.os.as_ref())),
            Cell::maybe(guest.and_then(|guest| guest.kernel.as_ref())),
            Cell::maybe(vm.uid.as_ref()),
        ]);
    }
    row
}

/// Verdict and cause, e.g. `Critical (host)`.
pub(super) fn word(health: &HealthView) -> String {
    match health.cause {
        Some(cause) => format!("{} ({})", health.verdict.as_str(), cause.as_str()),
        None => health.verdict.as_str().to_owned(),
    }
}

/// `used/total`.
pub(super) fn memory(metrics: &MetricsSummary) -> Option<String> {
    let (total, available) = metrics.memory_total_bytes.zip(metrics.memory_available_bytes)?;
    Some(format!("{}/{}", bytes(total - available), bytes(total)))
}
