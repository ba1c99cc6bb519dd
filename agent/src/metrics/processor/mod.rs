//! CPUs and how busy they are (room: `agent/src/metrics`).

mod cpu;
mod cpu_sysfs;
mod loadavg;
mod pressure;
mod stat;

use super::Entry;

/// The room's collectors, by name.
pub(super) const ENTRIES: &[Entry] = &[
    Entry::on("cpu", "CPU time by mode, and which CPUs are online", cpu::new),
    Entry::on("loadavg", "Load averages", loadavg::new),
    Entry::on(
        "pressure",
        "Time lost waiting for CPU, memory, I/O and interrupts",
        pressure::new,
    ),
    Entry::on(
        "stat",
        "Interrupts, context switches, forks, boot time",
        stat::new,
    ),
];
