//! `ComputeReady`: the guest gets the CPU and memory that it needs.

use super::{
    evaluation::{Evaluation, Text},
    facts::HealthFacts,
    guest::no_report,
    verdict::HealthCause,
};
use crate::{
    contention::HostContention,
    usage::{GuestUsage, Share},
};

/// Steal, in thousandths, from which the guest is too slow.
const STEAL_MILLI: u16 = 100;
/// Memory pressure, in thousandths, from which the guest is too slow.
const MEMORY_PRESSURE_MILLI: u16 = 100;
/// I/O pressure, in thousandths, from which it is worth knowing.
const IO_PRESSURE_MILLI: u16 = 400;
/// CPU pressure, in thousandths, from which it is worth knowing.
const CPU_PRESSURE_MILLI: u16 = 600;

/// Whether the other VMs of the infra node must be compared.
pub(crate) fn needs_comparison(usage: GuestUsage) -> bool {
    is_over(usage.cpu_steal, STEAL_MILLI) || is_over(usage.io_pressure, IO_PRESSURE_MILLI)
}

fn is_over(share: Option<Share>, bound_milli: u16) -> bool {
    GuestUsage::milli(share) >= bound_milli
}

fn percent(share: Option<Share>) -> u16 {
    share.map_or(0, Share::percent)
}

pub(super) fn evaluate(facts: &HealthFacts<'_>) -> Evaluation {
    if facts.fresh_answer().is_none() {
        return no_report(facts);
    }
    let Some(usage) = facts.usage.filter(|_| !facts.is_usage_pending) else {
        let message = "the use of CPU and memory needs two answers of the agent with CPU counters";
        // A collector that has just started has one answer.
        return Evaluation::not_required("UsageNotKnown", message).undecided_if(facts.is_usage_pending);
    };
    if is_over(usage.cpu_steal, STEAL_MILLI) {
        return stolen(facts, usage).measured();
    }
    if is_over(usage.memory_pressure, MEMORY_PRESSURE_MILLI) {
        let message = format!(
            "tasks of the guest waited for memory {} % of the time, and {} % of its memory is available",
            percent(usage.memory_pressure),
            percent(usage.memory_available)
        );
        return Evaluation::degraded(HealthCause::Guest, "GuestMemoryPressure", message)
            .next("in the guest: systemd-cgtop -m")
            .measured();
    }
    if is_over(usage.io_pressure, IO_PRESSURE_MILLI) {
        return waiting_for_io(facts, usage).measured();
    }
    if is_over(usage.cpu_pressure, CPU_PRESSURE_MILLI) {
        let message = format!(
            "tasks of the guest waited for a CPU {} % of the time, and the infra node takes nothing from it",
            percent(usage.cpu_pressure)
        );
        return Evaluation::notice(HealthCause::Guest, "GuestCpuPressure", message)
            .next("in the guest: top")
            .measured();
    }
    if usage.cpu_steal.is_none() {
        let message = "the metrics page has no plausible CPU counters";
        return Evaluation::not_required("StealNotKnown", message);
    }
    Evaluation::holds("ComputeReady", "the guest gets the CPU and memory that it needs")
}

fn show_host(facts: &HealthFacts<'_>) -> Text {
    match facts.host {
        Some(host) => format!("virtfleetctl host {host}").into(),
        None => Text::Borrowed(""),
    }
}

fn stolen(facts: &HealthFacts<'_>, usage: GuestUsage) -> Evaluation {
    let steal = format!("{} % of the guest's CPU time is stolen", percent(usage.cpu_steal));
    let empty = HostContention::default();
    let others = facts.contention.unwrap_or(&empty);
    if !others.is_steal_shared() {
        let message = format!(
            "{steal}, and {} of {} other VMs of the infra node are affected: the VM reaches a CPU limit of its own",
            others.with_steal, others.measured
        );
        return Evaluation::degraded(HealthCause::Vm, "CpuLimited", message).next(facts.describe());
    }
    let seen = if others.measured == 0 {
        "the use of the other VMs of the infra node is not known".to_owned()
    } else {
        format!(
            "so are {} of {} other VMs of the infra node",
            others.with_steal, others.measured
        )
    };
    let is_neighbour = others.is_overcommitted() != Some(false) && !others.heaviest.is_empty();
    if !is_neighbour {
        let why = if others.is_overcommitted() == Some(false) {
            "its VMs have fewer vCPUs than it has CPUs, so something else uses them"
        } else {
            "no other VM is known to use much CPU"
        };
        let message = format!("{steal}, {seen}; {why}");
        return Evaluation::degraded(HealthCause::Host, "HostCpuContention", message).next(show_host(facts));
    }
    let capacity = match others.host_cpu_milli {
        Some(cpu) => format!("{} vCPUs share {} CPUs", others.vcpus, cores(cpu)),
        None => format!("its VMs have {} vCPUs", others.vcpus),
    };
    let common = format!("{steal}, {seen}; {capacity}");
    let named = others.heaviest.iter();
    let named: Vec<String> = named
        .map(|(vm, used)| format!("{vm} ({} CPUs)", cores(*used)))
        .collect();
    let message = format!("{common}; most is used by {}", named.join(", "));
    Evaluation::degraded(HealthCause::Neighbour, "CpuStolen", message)
        .for_tenants(common)
        .next(show_host(facts))
}

fn waiting_for_io(facts: &HealthFacts<'_>, usage: GuestUsage) -> Evaluation {
    let pressure = format!(
        "tasks of the guest waited for I/O {} % of the time",
        percent(usage.io_pressure)
    );
    match facts.contention.filter(|others| others.is_io_shared()) {
        Some(others) => {
            let message = format!(
                "{pressure}, and so did those of {} of {} other VMs of the infra node",
                others.with_io_pressure, others.measured_io
            );
            Evaluation::degraded(HealthCause::Host, "HostIoContention", message).next(show_host(facts))
        }
        None => {
            Evaluation::notice(HealthCause::Guest, "GuestIoPressure", pressure).next("in the guest: iotop")
        }
    }
}

/// Thousandths of a CPU as CPUs with one digit.
fn cores(milli: u64) -> String {
    let tenths = milli.saturating_add(50) / 100;
    match tenths % 10 {
        0 => (tenths / 10).to_string(),
        digit => format!("{}.{digit}", tenths / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_have_one_digit() {
        for (milli, text) in [
            (0, "0"),
            (500, "0.5"),
            (1960, "2"),
            (2_449, "2.4"),
            (64_000, "64"),
        ] {
            assert_eq!(cores(milli), text);
        }
    }
}
