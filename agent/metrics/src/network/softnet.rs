//! `softnet`: packets received per CPU, from `/proc/net/softnet_stat`.

use std::fmt::Write as _;

use virtfleet_agent_core::procfs::softnet::{Softnet as Row, cpus};
use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError, Skipped};

/// Maximum length of a CPU's line: 15 numbers of 8 digits.
const MAX_LINE_BYTES: usize = 512;

type Family = (&'static str, &'static str, MetricType, fn(&Row) -> u64);

static FAMILIES: [Family; 7] = [
    (
        "node_softnet_processed_total",
        "Packets processed by the CPU.",
        MetricType::Counter,
        |row| row.processed,
    ),
    (
        "node_softnet_dropped_total",
        "Packets dropped because the CPU's backlog was full.",
        MetricType::Counter,
        |row| row.dropped,
    ),
    (
        "node_softnet_times_squeezed_total",
        "Number of times that the CPU ran out of its packet budget or time with packets left.",
        MetricType::Counter,
        |row| row.squeezed,
    ),
    (
        "node_softnet_cpu_collision_total",
        "Number of times that the CPU found a device's transmit lock held.",
        MetricType::Counter,
        |row| row.collisions,
    ),
    (
        "node_softnet_received_rps_total",
        "Number of times that another CPU woke this one for packets (RPS).",
        MetricType::Counter,
        |row| row.received_rps,
    ),
    (
        "node_softnet_flow_limit_count_total",
        "Number of times that a flow reached its limit on the CPU.",
        MetricType::Counter,
        |row| row.flow_limit,
    ),
    (
        "node_softnet_backlog_len",
        "Packets in the CPU's backlog.",
        MetricType::Gauge,
        |row| row.backlog,
    ),
];

struct Softnet {
    file: Reread,
    rows: Vec<Row>,
    cpu: String,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Softnet {
        file: Reread::new(context.roots.proc("net/softnet_stat")).max_record_bytes(MAX_LINE_BYTES),
        rows: Vec::new(),
        cpu: String::new(),
    }))
}

impl Collector for Softnet {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let path = self.file.path().to_owned();
        let text = self.file.text()?;
        self.rows.clear();
        let mut skipped = Skipped::default();
        self.rows.extend(skipped.valid(&path, cpus(&text)));
        self.rows.sort_by_key(|row| row.cpu);
        self.rows.dedup_by_key(|row| row.cpu);
        if self.rows.is_empty() {
            skipped.end()?;
            return Err(CollectError::failed(format!("{} lists no CPU", path.display())));
        }
        for (name, help, kind, value) in &FAMILIES {
            let mut family = page.family(name, help, *kind);
            for row in &self.rows {
                self.cpu.clear();
                write!(self.cpu, "{}", row.cpu).ok();
                family.sample(&[("cpu", &self.cpu)], value(row) as f64);
            }
        }
        skipped.end()
    }
}
