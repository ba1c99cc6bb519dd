//! `stat`: the counters of `/proc/stat` that belong to no CPU. What a kernel does not print is left out.

use virtfleet_agent_core::procfs::stat::{Counters, counters};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::host::Reread;
use crate::metrics::{CollectError, Collector, Context, RegistryError};

struct Stat(Reread);

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Stat(Reread::new(context.roots.proc("stat")))))
}

impl Collector for Stat {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let path = self.0.path().to_owned();
        let found = counters(&self.0.text()?).map_err(CollectError::parse(&path))?;
        if found == Counters::default() {
            return Err(CollectError::failed(format!(
                "{} holds no counter that is known",
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
                "Number of processes that can run.",
                gauge,
                found.running,
            ),
            (
                "node_procs_blocked",
                "Number of processes that wait for I/O to complete.",
                gauge,
                found.blocked,
            ),
        ] {
            if let Some(value) = value {
                page.family(name, help, kind).sample(&[], value as f64);
            }
        }
        Ok(())
    }
}
