//! `virtfleetctl drain` and `placement`.

use virtfleet_collector_core::placement::{
    DrainOutcome, DrainPlan, DrainVm, PlacementLevel, PlacementReport, PoolSpread,
};
use virtfleet_runtime::exit::Code;

use super::{
    ViewOptions,
    hosts::{cpus, memory},
    sheet::Sheet,
};
use crate::ctl::{
    client::ApiResponse,
    fail::Fail,
    table::{Cell, Table, Tone},
    text::count,
};

fn outcome_tone(outcome: DrainOutcome) -> Tone {
    match outcome {
        DrainOutcome::Blocks => Tone::Bad,
        DrainOutcome::Stops => Tone::Warn,
        DrainOutcome::Migrates => Tone::Good,
    }
}

pub(in crate::ctl) fn drain(answer: &ApiResponse, options: &ViewOptions) -> Result<String, Fail> {
    let plan: DrainPlan = answer.read()?;
    let mut sheet = Sheet::new(options);
    sheet.pair("Infra node", Some(&plan.host));
    if !plan.known {
        sheet.toned("Known", Some("no: the inventory has no such Node"), Tone::Bad);
    }
    sheet.pair("Cordoned", Some(if plan.cordoned { "yes" } else { "no" }));
    let numbers = format!(
        "{}: {} migrate, {} stop, {} block",
        count(plan.vms.len(), "VM"),
        plan.migrates,
        plan.stops,
        plan.blocks
    );
    let worst = plan.vms.iter().map(|vm| vm.outcome).min();
    sheet.toned("Drain", Some(numbers), worst.map_or(Tone::Good, outcome_tone));
    let tone = if plan.has_room { Tone::Good } else { Tone::Bad };
    sheet.toned("Room elsewhere", Some(plan.room()), tone);
    if !plan.arriving.is_empty() {
        let arriving = plan.arriving.join(", ");
        sheet.toned(
            "Arriving",
            Some(format!("{arriving} (drain again afterwards)")),
            Tone::Warn,
        );
    }
    if !plan.vms.is_empty() {
        sheet.section("VMs");
        sheet.table(&drained(&plan.vms, options.wide));
        riding(&plan.vms, options.wide, &mut sheet);
    }
    if !plan.hosts.is_empty() {
        sheet.section("Other infra nodes (estimate)");
        let mut table = Table::new(&[
            "NAME",
            "TAKES",
            "FREE-CPU",
            "FREE-MEMORY",
            "CPU-AFTER",
            "MEMORY-AFTER",
        ]);
        for host in &plan.hosts {
            table.rows.push(vec![
                Cell::new(host.name.as_str()),
                Cell::new(host.takes.to_string()),
                Cell::new(cpus(host.free.cpu_milli)),
                Cell::new(memory(host.free)),
                Cell::new(cpus(host.free_after.cpu_milli)),
                Cell::new(memory(host.free_after)),
            ]);
        }
        sheet.table(&table);
    }
    sheet.section("Not known");
    for note in &plan.not_known {
        sheet.text(note);
    }
    Ok(sheet.finish())
}

fn drained(vms: &[DrainVm], wide: bool) -> Table {
    let mut headers = vec!["VM", "CLUSTER", "OUTCOME", "TO", "PODS", "REASON"];
    if wide {
        headers.extend(["USER-NODE", "STRATEGY", "CPU", "MEMORY", "CANDIDATES"]);
    }
    let mut table = Table::new(&headers);
    for vm in vms {
        let mut row = vec![
            Cell::new(format!("{}/{}", vm.namespace, vm.name)),
            Cell::maybe(vm.cluster.as_ref()),
            Cell::toned(vm.outcome.as_str(), outcome_tone(vm.outcome)),
            Cell::maybe(vm.target.as_ref()),
            pods_cell(vm),
            Cell::new(&vm.reason),
        ];
        if wide {
            let mut candidates: Vec<String> = vm.candidates.iter().map(ToString::to_string).collect();
            let more = vm.candidates_total.saturating_sub(candidates.len());
            if more > 0 {
                candidates.push(format!("{more} more"));
            }
            row.extend([
                Cell::maybe(vm.user_node.as_ref()),
                Cell::new(&vm.eviction_strategy),
                Cell::new(cpus(vm.requests.cpu_milli)),
                Cell::new(memory(vm.requests)),
                Cell::new(candidates.join(",")),
            ]);
        }
        table.rows.push(row);
    }
    table
}

/// Pods that a drain of the VM's Node evicts, and how many of them cannot be evicted now.
fn pods_cell(vm: &DrainVm) -> Cell {
    match (vm.pods_total, vm.pods_refused) {
        (None, _) => Cell::new("-"),
        (Some(total), 0) => Cell::new(total.to_string()),
        (Some(total), refused) => Cell::toned(format!("{total} ({refused} held)"), Tone::Warn),
    }
}

/// What rides on the VMs: pods that need attention, of VMs that do not migrate, and volumes that
/// only some infra nodes can use; with `wide` all pods and volumes.
fn riding(vms: &[DrainVm], wide: bool, sheet: &mut Sheet<'_>) {
    let mut pods = Table::new(&["VM", "POD", "VOLUMES", "EVICTION"]);
    let mut volumes = Table::new(&["VM", "CLAIM", "PHASE", "CLASS", "ACCESS", "VOLUME", "USABLE-ON"]);
    for vm in vms {
        let name = format!("{}/{}", vm.namespace, vm.name);
        let leaves = vm.outcome == DrainOutcome::Migrates;
        for pod in &vm.pods {
            let needs_attention = pod.refused.is_some() || pod.unmanaged || !pod.claims.is_empty();
            if wide || needs_attention && !leaves {
                let eviction = match &pod.refused {
                    Some(why) => Cell::toned(why, Tone::Warn),
                    None if pod.unmanaged => Cell::toned("it is lost: it has no controller", Tone::Warn),
                    None => Cell::new("allowed"),
                };
                let pod_name = format!("{}/{}", pod.namespace, pod.name);
                let claims = Some(pod.claims.join(",")).filter(|claims| !claims.is_empty());
                pods.rows.push(vec![
                    Cell::new(&name),
                    Cell::new(pod_name),
                    Cell::maybe(claims),
                    eviction,
                ]);
            }
        }
        for volume in &vm.volumes {
            let is_bound = volume.phase.as_deref() == Some("Bound");
            if wide || !is_bound || volume.bound_to.is_some() {
                let access = Some(volume.access_modes.join(",")).filter(|modes| !modes.is_empty());
                let phase = volume.phase.as_deref().unwrap_or("unknown");
                volumes.rows.push(vec![
                    Cell::new(&name),
                    Cell::new(&volume.claim),
                    Cell::toned(phase, if is_bound { Tone::Plain } else { Tone::Warn }),
                    Cell::maybe(volume.storage_class.as_ref()),
                    Cell::maybe(access),
                    Cell::maybe(volume.volume.as_ref()),
                    Cell::new(volume.bound_to.as_deref().unwrap_or("all")),
                ]);
            }
        }
    }
    for (title, table) in [("Pods", &pods), ("Volumes", &volumes)] {
        if !table.rows.is_empty() {
            sheet.section(title);
            sheet.table(table);
        }
    }
}

/// The exit code for a plan: the worst outcome of a VM.
pub(in crate::ctl) fn drain_exit_code(answer: &ApiResponse) -> Code {
    match answer.read::<DrainPlan>() {
        Ok(plan) if plan.blocks > 0 || !plan.has_room => Code::HealthCritical,
        Ok(plan) if plan.stops > 0 => Code::HealthDegraded,
        Ok(_) => Code::Ok,
        Err(_) => Code::Failure,
    }
}

pub(in crate::ctl) fn placement(answer: &ApiResponse, options: &ViewOptions) -> Result<String, Fail> {
    let report: PlacementReport = answer.read()?;
    let mut sheet = Sheet::new(options);
    let tone = if report.violated == 0 {
        Tone::Good
    } else {
        Tone::Bad
    };
    let violated = if report.violated == 0 {
        "none".to_owned()
    } else {
        report.violated.to_string()
    };
    sheet.pair("VMs", Some(report.vms));
    sheet.toned("Violated rules", Some(violated), tone);
    let preferences = report.problems_total.saturating_sub(report.violated);
    sheet.pair("Preferences", Some(format!("{preferences} not met")));
    let shown: Vec<_> = report
        .problems
        .iter()
        .filter(|one| options.wide || one.level == PlacementLevel::Violated)
        .collect();
    if !shown.is_empty() {
        sheet.section("Rules");
        let mut table = Table::new(&["LEVEL", "VM", "VMS", "INFRA-NODE", "RULE", "MESSAGE"]);
        for one in shown {
            let tone = match one.level {
                PlacementLevel::Violated => Tone::Bad,
                PlacementLevel::Preference => Tone::Plain,
            };
            table.rows.push(vec![
                Cell::toned(one.level.as_str(), tone),
                Cell::new(format!("{}/{}", one.namespace, one.name)),
                Cell::new(one.vms.to_string()),
                Cell::maybe(one.infra_node.as_ref()),
                Cell::new(&one.rule),
                Cell::new(&one.message),
            ]);
        }
        sheet.table(&table);
    }
    if !report.pools.is_empty() {
        sheet.section("Pools");
        sheet.table(&pools(&report.pools));
    }
    if !report.not_checked.is_empty() {
        sheet.section("Not checked");
        for note in &report.not_checked {
            sheet.text(note);
        }
    }
    Ok(sheet.finish())
}

fn pools(pools: &[PoolSpread]) -> Table {
    let mut table = Table::new(&[
        "NAMESPACE",
        "CLUSTER",
        "POOL",
        "VMS",
        "ZONES",
        "SKEW",
        "HOSTS",
        "MOST-ON-ONE",
    ]);
    for pool in pools {
        let zones: Vec<String> = pool
            .zones
            .iter()
            .map(|(zone, vms)| format!("{zone}={vms}"))
            .collect();
        let tone = if pool.zone_skew > 1 {
            Tone::Warn
        } else {
            Tone::Plain
        };
        let fullest = pool
            .fullest_host
            .as_ref()
            .map(|host| format!("{} ({host})", pool.most_on_one_host));
        table.rows.push(vec![
            Cell::new(pool.namespace.as_str()),
            Cell::maybe(pool.cluster.as_ref()),
            Cell::new(&pool.pool),
            Cell::new(pool.vms.to_string()),
            Cell::new(zones.join(",")),
            Cell::toned(pool.zone_skew.to_string(), tone),
            Cell::new(pool.hosts.to_string()),
            Cell::maybe(fullest),
        ]);
    }
    table
}

/// The exit code for a report: whether a required rule is violated.
pub(in crate::ctl) fn placement_exit_code(answer: &ApiResponse) -> Code {
    match answer.read::<PlacementReport>() {
        Ok(report) if report.violated > 0 => Code::HealthDegraded,
        Ok(_) => Code::Ok,
        Err(_) => Code::Failure,
    }
}
