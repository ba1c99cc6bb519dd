//! `virtfleetctl host` and `top`.

use virtfleet_collector_core::{
    health::HealthCause,
    placement::{HostDetail, HostVm, TopHost, TopVm},
    scheduling::ResourceAmounts,
    usage::Share,
    view::List,
};

use super::{ViewOptions, sheet::Sheet, state_tone, verdict_tone};
use crate::ctl::{
    client::ApiResponse,
    fail::Fail,
    table::{Cell, Table, Tone},
    text::{bytes, count},
};

/// Share in hundredths from which steal and pressure are shown as a problem.
pub(super) const BAD_PERCENT: u16 = 10;

/// Thousandths of a CPU as CPUs.
pub(super) fn cpus(milli: u64) -> String {
    let text = format!("{}.{:02}", milli / 1000, milli % 1000 / 10);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

pub(super) fn memory(amounts: ResourceAmounts) -> String {
    bytes(amounts.memory_bytes as f64)
}

fn percent(share: Option<Share>) -> Option<String> {
    share.map(|share| format!("{}%", share.percent()))
}

/// A share that should be small.
fn bad_share(share: Option<Share>) -> Cell {
    let tone = match share {
        Some(share) if share.percent() >= BAD_PERCENT => Tone::Bad,
        _ => Tone::Plain,
    };
    Cell::toned(percent(share).unwrap_or_default(), tone)
}

/// What is in use of what, with the share.
fn of_all(used: u64, all: u64, used_text: &str, all_text: &str) -> String {
    format!("{used_text} of {all_text} ({}%)", Share::of(used, all).percent())
}

pub(in crate::ctl) fn host(answer: &ApiResponse, options: &ViewOptions) -> Result<String, Fail> {
    let host: HostDetail = answer.read()?;
    let mut sheet = Sheet::new(options);
    sheet.pair("Name", Some(&host.name));
    if !host.known {
        sheet.toned("Known", Some("no: the inventory has no such Node"), Tone::Bad);
    }
    sheet.pair("Zone", host.zone.as_ref());
    sheet.pair("Region", host.region.as_ref());
    let (cordoned, tone) = if host.cordoned {
        ("yes: it takes no other VMs", Tone::Warn)
    } else {
        ("no", Tone::Plain)
    };
    sheet.toned("Cordoned", Some(cordoned), tone);
    sheet.pair(
        "Taints",
        Some(host.taints.join(", ")).filter(|text| !text.is_empty()),
    );
    sheet.section("Conditions");
    if host.conditions.is_empty() {
        sheet.line("-");
    } else {
        let mut table = Table::new(&["TYPE", "STATUS", "TEXT"]);
        for one in &host.conditions {
            let is_good = (one.kind == "Ready") == (one.status == "True") && one.status != "Unknown";
            let tone = if is_good { Tone::Good } else { Tone::Bad };
            table.rows.push(vec![
                Cell::new(&one.kind),
                Cell::toned(&one.status, tone),
                Cell::new(&one.text),
            ]);
        }
        sheet.table(&table);
    }
    capacity(&mut sheet, &host);
    sheet.section("VMs");
    if host.vms.is_empty() {
        sheet.line("none");
    } else {
        sheet.table(&host_vms(&host.vms, options.wide));
    }
    Ok(sheet.finish())
}

fn capacity(sheet: &mut Sheet<'_>, host: &HostDetail) {
    let (asked, total) = (host.requested, &host.total);
    sheet.section("Capacity (VMs only)");
    if let Some(all) = host.allocatable {
        let cpu = of_all(
            asked.cpu_milli,
            all.cpu_milli,
            &cpus(asked.cpu_milli),
            &cpus(all.cpu_milli),
        );
        sheet.pair("CPU requested", Some(cpu));
        let amounts = of_all(asked.memory_bytes, all.memory_bytes, &memory(asked), &memory(all));
        sheet.pair("Mem. requested", Some(amounts));
        let overcommit = format!("{} on {} CPUs", total.vcpus, cpus(all.cpu_milli));
        sheet.pair("vCPUs", Some(overcommit));
    } else {
        sheet.pair("CPU requested", Some(cpus(asked.cpu_milli)));
        sheet.pair("Mem. requested", Some(memory(asked)));
        sheet.pair("Allocatable", Some("not known"));
    }
    let pods = host
        .allocatable_pods
        .map(|pods| format!("{} of {pods}", total.vms));
    sheet.pair("Pods", pods);
    let used = format!(
        "{} CPUs, by {} of {}",
        cpus(total.used_cpu_milli),
        total.measured,
        count(total.vms, "VM")
    );
    sheet.pair("CPU in use", Some(used));
    let steal = percent(total.most_steal)
        .map(|most| format!("up to {most}, {} with 5% or more", count(total.with_steal, "VM")));
    sheet.pair("Steal", steal);
    let heaviest = host
        .vms
        .iter()
        .filter(|vm| vm.used_cpu_milli.unwrap_or_default() > 0);
    let heaviest: Vec<String> = heaviest
        .take(3)
        .map(|vm| {
            let used = cpus(vm.used_cpu_milli.unwrap_or_default());
            format!("{}/{} ({used} CPUs)", vm.namespace, vm.name)
        })
        .collect();
    sheet.pair(
        "Heaviest",
        Some(heaviest.join(", ")).filter(|text| !text.is_empty()),
    );
}

fn host_vms(vms: &[HostVm], wide: bool) -> Table {
    let mut headers = vec![
        "VM",
        "CLUSTER",
        "STATE",
        "HEALTH",
        "VCPUS",
        "CPU",
        "STEAL",
        "MEM-PRESSURE",
        "REQUESTS",
    ];
    if wide {
        headers.extend(["CPU-PRESSURE", "IO-PRESSURE", "MEM-AVAILABLE", "REASON"]);
    }
    let mut table = Table::new(&headers);
    for vm in vms {
        let usage = vm.usage.unwrap_or_default();
        let health = match vm.cause {
            Some(cause) => format!("{} ({})", vm.verdict.as_str(), cause.as_str()),
            None => vm.verdict.as_str().to_owned(),
        };
        let estimated = if vm.is_estimated { "~" } else { "" };
        let requests = format!(
            "{estimated}{} CPU, {}",
            cpus(vm.requests.cpu_milli),
            memory(vm.requests)
        );
        let mut row = vec![
            Cell::new(format!("{}/{}", vm.namespace, vm.name)),
            Cell::maybe(vm.cluster.as_ref()),
            Cell::toned(vm.state.as_str(), state_tone(vm.state)),
            Cell::toned(health, verdict_tone(vm.verdict)),
            Cell::maybe(Some(vm.vcpus).filter(|vcpus| *vcpus > 0)),
            Cell::maybe(vm.used_cpu_milli.map(cpus)),
            bad_share(usage.cpu_steal),
            bad_share(usage.memory_pressure),
            Cell::new(requests),
        ];
        if wide {
            row.extend([
                Cell::maybe(percent(usage.cpu_pressure)),
                Cell::maybe(percent(usage.io_pressure)),
                Cell::maybe(percent(usage.memory_available)),
                Cell::new(&vm.reason),
            ]);
        }
        table.rows.push(row);
    }
    table
}

pub(in crate::ctl) fn top_vms(answer: &ApiResponse, options: &ViewOptions) -> Result<String, Fail> {
    let list: List<TopVm> = answer.read()?;
    let mut headers = vec![
        "NAMESPACE",
        "NAME",
        "CPUS",
        "CPU",
        "STEAL",
        "CPU-PRESSURE",
        "MEM-PRESSURE",
        "IO-PRESSURE",
        "MEM-AVAILABLE",
        "INFRA-NODE",
    ];
    if options.wide {
        headers.extend(["CLUSTER", "HEALTH", "CAUSE"]);
    }
    let mut table = Table::new(&headers);
    for vm in &list.items {
        let usage = vm.usage;
        let mut row = vec![
            Cell::new(vm.namespace.as_str()),
            Cell::new(vm.name.as_str()),
            Cell::new(vm.cpus.to_string()),
            Cell::maybe(vm.used_cpu_milli.map(cpus)),
            bad_share(usage.cpu_steal),
            Cell::maybe(percent(usage.cpu_pressure)),
            bad_share(usage.memory_pressure),
            Cell::maybe(percent(usage.io_pressure)),
            Cell::maybe(percent(usage.memory_available)),
            Cell::maybe(vm.infra_node.as_ref()),
        ];
        if options.wide {
            row.extend([
                Cell::maybe(vm.cluster.as_ref()),
                Cell::toned(vm.verdict.as_str(), verdict_tone(vm.verdict)),
                Cell::maybe(vm.cause.map(HealthCause::as_str)),
            ]);
        }
        table.rows.push(row);
    }
    Ok(options.table(&table, "No VM whose use is known."))
}

pub(in crate::ctl) fn top_hosts(answer: &ApiResponse, options: &ViewOptions) -> Result<String, Fail> {
    let list: List<TopHost> = answer.read()?;
    let mut table = Table::new(&[
        "NAME",
        "VMS",
        "MEASURED",
        "VCPUS",
        "CPU",
        "STEALING",
        "MOST-STEAL",
        "MOST-MEM-PRESSURE",
        "MOST-IO-PRESSURE",
    ]);
    for host in &list.items {
        table.rows.push(vec![
            Cell::new(host.name.as_str()),
            Cell::new(host.vms.to_string()),
            Cell::new(host.measured.to_string()),
            Cell::new(host.vcpus.to_string()),
            Cell::new(cpus(host.used_cpu_milli)),
            Cell::new(host.with_steal.to_string()),
            bad_share(host.most_steal),
            bad_share(host.most_memory_pressure),
            Cell::maybe(percent(host.most_io_pressure)),
        ]);
    }
    Ok(options.table(&table, "No infra node with VMs."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_short() {
        for (milli, text) in [
            (0, "0"),
            (250, "0.25"),
            (1500, "1.5"),
            (16_000, "16"),
            (10_000, "10"),
            (1_005, "1"),
        ] {
            assert_eq!(cpus(milli), text);
        }
        assert_eq!(of_all(1, 4, "1", "4"), "1 of 4 (25%)");
        assert_eq!(of_all(1, 0, "1", "0"), "1 of 0 (0%)");
    }
}
