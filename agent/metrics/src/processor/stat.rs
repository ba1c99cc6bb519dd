//! `stat`: the counters of `/proc/stat` that are not per CPU. Fields that the kernel does not print
//! are left out.

use virtfleet_agent_core::procfs::stat::{Counters, SOFTIRQS, counters, softirqs};
use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError, Skipped};

/// The kinds of soft interrupts in the order of the file.
const VECTORS: [&str; SOFTIRQS] = [
    "hi",
    "timer",
    "net_tx",
    "net_rx",
    "block",
    "block_iopoll",
    "tasklet",
    "sched",
    "hrtimer",
    "rcu",
];

struct Stat {
    file: Reread,
    /// Whether soft interrupts are exported.
    softirq: bool,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Stat {
        file: Reread::new(context.roots.proc("stat")).single_record(),
        softirq: context.settings.stat.softirq,
    }))
}

impl Collector for Stat {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let path = self.file.path().to_owned();
        let text = self.file.text()?;
        let mut skipped = Skipped::default();
        let found = counters(&text, skipped.of(&path));
        if found == Counters::default() {
            skipped.end()?;
            return Err(CollectError::failed(format!(
                "{} contains no known counter",
                path.display()
            )));
        }
        let (counter, gauge) = (MetricType::Counter, MetricType::Gauge);
        for (name, help, kind, value) in [
            (
                "node_intr_total",
                "Total number of interrupts serviced.",
                counter,
                found.interrupts,
            ),
            (
                "node_context_switches_total",
                "Total number of context switches.",
                counter,
                found.context_switches,
            ),
            ("node_forks_total", "Total number of forks.", counter, found.forks),
            (
                "node_boot_time_seconds",
                "Node boot time, in unixtime.",
                gauge,
                found.boot_time,
            ),
            (
                "node_procs_running",
                "Number of runnable processes.",
                gauge,
                found.running,
            ),
            (
                "node_procs_blocked",
                "Number of processes that are waiting for I/O.",
                gauge,
                found.blocked,
            ),
        ] {
            if let Some(value) = value {
                page.family(name, help, kind).sample(&[], value as f64);
            }
        }
        if self.softirq {
            let counts = skipped.take(softirqs(&text).map_err(CollectError::parse(&path)));
            let mut family = page.family("node_softirqs_total", "Number of softirq calls.", counter);
            for (vector, count) in VECTORS.iter().zip(counts.flatten().into_iter().flatten()) {
                family.sample(&[("vector", vector)], count as f64);
            }
        }
        skipped.end()
    }
}
