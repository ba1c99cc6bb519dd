//! `schedstat`: run time and wait time of tasks per CPU, from `/proc/schedstat`.

use virtfleet_agent_core::procfs::schedstat::{CpuSchedule, cpus};
use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::{MetricType, Page};

use super::labels::CpuLabels;
use crate::{CollectError, Collector, Context, RegistryError, Skipped};

/// Maximum size in bytes; far more than any kernel prints.
const MAX_SCHEDSTAT_BYTES: usize = 16 << 20;

/// A column and its family.
type Column = (&'static str, &'static str, fn(&CpuSchedule) -> f64);

static COLUMNS: [Column; 3] = [
    (
        "node_schedstat_running_seconds_total",
        "Number of seconds CPU spent running a process.",
        |cpu| cpu.running_ns as f64 / 1e9,
    ),
    (
        "node_schedstat_waiting_seconds_total",
        "Number of seconds that processes waited for this CPU.",
        |cpu| cpu.waiting_ns as f64 / 1e9,
    ),
    (
        "node_schedstat_timeslices_total",
        "Number of timeslices executed by CPU.",
        |cpu| cpu.timeslices as f64,
    ),
];

struct Schedstat {
    file: Reread,
    labels: CpuLabels,
    /// The values just read; a reused buffer.
    cpus: Vec<CpuSchedule>,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Schedstat {
        file: Reread::with_limit(context.roots.proc("schedstat"), MAX_SCHEDSTAT_BYTES),
        labels: CpuLabels::default(),
        cpus: Vec::new(),
    }))
}

impl Collector for Schedstat {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let path = self.file.path().to_owned();
        let text = match self.file.text() {
            Err(error) if error.is_missing() => {
                return Err(CollectError::no_data("this kernel has no /proc/schedstat"));
            }
            text => text?,
        };
        self.cpus.clear();
        let mut skipped = Skipped::default();
        self.cpus.extend(skipped.valid(&path, cpus(&text)));
        self.cpus.sort_by_key(|cpu| cpu.cpu);
        self.cpus.dedup_by_key(|cpu| cpu.cpu);
        for (name, help, of) in COLUMNS {
            let mut family = page.family(name, help, MetricType::Counter);
            for cpu in &self.cpus {
                family.sample(&[("cpu", self.labels.get(cpu.cpu))], of(cpu));
            }
        }
        skipped.end()
    }
}
