//! `softnet`: packets that each CPU took in, from `/proc/net/softnet_stat`.

use std::fmt::Write as _;

use virtfleet_agent_core::procfs::softnet::{Softnet as Row, cpus};
use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError};

/// A CPU's line has 15 numbers of 8 digits.
const LINE: usize = 512;

type Family = (&'static str, &'static str, MetricType, fn(&Row) -> u64);

static FAMILIES: [Family; 7] = [
    (
        "node_softnet_processed_total",
        "Packets that the CPU took in.",
        MetricType::Counter,
        |row| row.processed,
    ),
    (
        "node_softnet_dropped_total",
        "Packets that the CPU dropped because its backlog was full.",
        MetricType::Counter,
        |row| row.dropped,
    ),
    (
        "node_softnet_times_squeezed_total",
        "How often the CPU stopped taking in packets with some left, for want of time.",
        MetricType::Counter,
        |row| row.squeezed,
    ),
    (
        "node_softnet_cpu_collision_total",
        "How often the CPU found a device locked when it wanted to send.",
        MetricType::Counter,
        |row| row.collisions,
    ),
    (
        "node_softnet_received_rps_total",
        "How often another CPU woke this one for packets (RPS).",
        MetricType::Counter,
        |row| row.received_rps,
    ),
    (
        "node_softnet_flow_limit_count_total",
        "How often a flow hit its limit on the CPU.",
        MetricType::Counter,
        |row| row.flow_limit,
    ),
    (
        "node_softnet_backlog_len",
        "Packets that wait for the CPU.",
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
        file: Reread::new(context.roots.proc("net/softnet_stat")).made_in_pieces(LINE),
        rows: Vec::new(),
        cpu: String::new(),
    }))
}

impl Collector for Softnet {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let path = self.file.path().to_owned();
        let text = self.file.text()?;
        self.rows.clear();
        for row in cpus(&text) {
            self.rows.push(row.map_err(CollectError::parse(&path))?);
        }
        self.rows.sort_by_key(|row| row.cpu);
        self.rows.dedup_by_key(|row| row.cpu);
        if self.rows.is_empty() {
            return Err(CollectError::failed(format!(
                "{} tells of no CPU",
                path.display()
            )));
        }
        for (name, help, kind, value) in &FAMILIES {
            let mut family = page.family(name, help, *kind);
            for row in &self.rows {
                self.cpu.clear();
                write!(self.cpu, "{}", row.cpu).ok();
                family.sample(&[("cpu", &self.cpu)], value(row) as f64);
            }
        }
        Ok(())
    }
}
