//! Guest metrics: one collector a file, one registration table, one page (room: `agent/src/metrics`).
//!
//! ```text
//! Roots ─▶ collector ─▶ parser (agent/core) ─▶ families ─▶ page     one owner thread calls Registry::scrape
//! ```
//! Families, labels, units and meaning are node_exporter's (1.12); `docs/collectors.md` lists them. Adding a collector is
//! one file here, one line in [`COLLECTORS`], and one row in that page; a test holds all three together.

#![expect(
    clippy::unnecessary_wraps,
    reason = "constructors have one type, because some of them find settings wrong"
)]

mod collect;
mod cpu;
mod cpu_sysfs;
mod disk_health;
mod disks;
mod diskstats;
mod dns;
mod filesystem;
mod loadavg;
mod meminfo;
mod name_filter;
mod netdev;
mod os;
mod pressure;
mod registry;
mod stat;
mod time;
mod udev;
mod uname;
mod vmstat;

pub use collect::{Build, CollectError, Collector, Context, Entry};
pub use registry::{Filter, FilterError, Registry, RegistryError};

/// Every collector, in the order of the page.
pub static COLLECTORS: &[Entry] = &[
    Entry::on("cpu", "CPU time by mode, and which CPUs are online", cpu::new),
    Entry::on("disks", "Declared disks and how they stand", disks::new),
    Entry::on(
        "diskstats",
        "I/O of block devices, and what they are",
        diskstats::new,
    ),
    Entry::on("dns", "The guest's nameservers and how they stand", dns::new),
    Entry::on(
        "filesystem",
        "Space and state of mounted filesystems",
        filesystem::new,
    ),
    Entry::on("loadavg", "Load averages", loadavg::new),
    Entry::on("meminfo", "Memory", meminfo::new),
    Entry::on("netdev", "Traffic and errors of network devices", netdev::new),
    Entry::on("os", "The operating system by its os-release file", os::new),
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
    Entry::on("time", "Wall clock, time zone and clock sources", time::new),
    Entry::on("uname", "Kernel and host name", uname::new),
    Entry::on(
        "vmstat",
        "Paging, swapping, faults and kills for want of memory",
        vmstat::new,
    ),
];
