//! CPUs and their usage.

mod cpu;
mod cpu_info;
mod cpu_sysfs;
mod cpu_vulnerabilities;
mod interrupt_groups;
mod interrupts;
mod labels;
mod loadavg;
mod pressure;
mod schedstat;
mod softirqs;
mod stat;

use super::{Entry, Flag};

/// The collectors of this group by name.
pub(super) const ENTRIES: &[Entry] = &[
    Entry::on("cpu", "CPU time by mode, and which CPUs are online", cpu::new).with(&[
        Flag::switch("guest", "guest"),
        Flag::switch("info", "info"),
        Flag::text("cpu.info.flags-include", "flagsInclude"),
        Flag::text("cpu.info.bugs-include", "bugsInclude"),
    ]),
    Entry::off(
        "cpu_vulnerabilities",
        "CPU vulnerabilities and their mitigations",
        cpu_vulnerabilities::new,
    ),
    Entry::dashboards("interrupts", "Interrupts by device and CPU", interrupts::new).with(&[
        Flag::text("name-exclude", "nameExclude"),
        Flag::text("name-include", "nameInclude"),
        Flag::switch("include-zeros", "includeZeros"),
        Flag::switch("per-interrupt", "perInterrupt"),
    ]),
    Entry::on("loadavg", "Load averages", loadavg::new),
    Entry::on(
        "pressure",
        "Time lost waiting for CPU, memory, I/O and interrupts",
        pressure::new,
    ),
    Entry::on(
        "schedstat",
        "Run time and wait time of tasks per CPU",
        schedstat::new,
    ),
    Entry::off("softirqs", "Soft interrupts by kind and CPU", softirqs::new),
    Entry::on(
        "stat",
        "Interrupts, context switches, forks, boot time",
        stat::new,
    )
    .with(&[Flag::switch("softirq", "softirq")]),
];
