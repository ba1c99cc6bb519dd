//! `softirqs`: `/proc/softirqs`, by kind and CPU.

use virtfleet_agent_core::procfs::interrupts::table;
use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::{MetricType, Page};

use super::labels::CpuLabels;
use crate::{CollectError, Collector, Context, RegistryError, Skipped};

/// The kernel's kinds of soft interrupts (kernel: `include/linux/interrupt.h`).
const KINDS: [&str; 10] = [
    "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU",
];

struct Softirqs {
    file: Reread,
    labels: CpuLabels,
    line: Vec<u64>,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Softirqs {
        file: Reread::new(context.roots.proc("softirqs")),
        labels: CpuLabels::default(),
        line: Vec::new(),
    }))
}

impl Collector for Softirqs {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let path = self.file.path().to_owned();
        let text = self.file.text()?;
        let table = table(&text).map_err(CollectError::parse(&path))?;
        let mut family = page.family(
            "node_softirqs_functions_total",
            "Softirq counts per CPU.",
            MetricType::Counter,
        );
        let mut written = [false; KINDS.len()];
        let labels = &mut self.labels;
        let mut skipped = Skipped::default();
        table.rows(&mut self.line, skipped.of(&path), |softirq, counts| {
            let place = KINDS.iter().position(|kind| *kind == softirq.name);
            let Some(place) = place.filter(|place| !written[*place]) else {
                return;
            };
            written[place] = true;
            for (cpu, count) in table.cpus.iter().zip(counts) {
                family.sample(
                    &[("cpu", labels.get(*cpu)), ("type", softirq.name)],
                    *count as f64,
                );
            }
        });
        skipped.end()
    }
}
