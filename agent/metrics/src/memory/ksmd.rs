//! `ksmd`: kernel same-page merging, from `/sys/kernel/mm/ksm` (kernel: `mm/ksm.c`).

use virtfleet_agent_core::procfs::single;
use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError, Skipped};

/// A file and its family.
struct Field {
    file: &'static str,
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    /// Number of the file's units in one unit of the family.
    per: f64,
}

const fn gauge(file: &'static str, name: &'static str, help: &'static str) -> Field {
    Field {
        file,
        name,
        help,
        kind: MetricType::Gauge,
        per: 1.0,
    }
}

static FIELDS: [Field; 10] = [
    Field {
        kind: MetricType::Counter,
        ..gauge(
            "full_scans",
            "node_ksmd_full_scans_total",
            "How many times all mergeable areas have been scanned.",
        )
    },
    gauge(
        "general_profit",
        "node_ksmd_general_profit_bytes",
        "Memory saved by page sharing minus the memory needed for its metadata, in bytes.",
    ),
    gauge(
        "merge_across_nodes",
        "node_ksmd_merge_across_nodes",
        "Whether pages of different NUMA nodes can be merged.",
    ),
    gauge(
        "pages_shared",
        "node_ksmd_pages_shared",
        "How many shared pages are being used.",
    ),
    gauge(
        "pages_sharing",
        "node_ksmd_pages_sharing",
        "How many more places share these pages, i.e. how many pages are saved.",
    ),
    gauge(
        "pages_to_scan",
        "node_ksmd_pages_to_scan",
        "How many pages are scanned before ksmd sleeps.",
    ),
    gauge(
        "pages_unshared",
        "node_ksmd_pages_unshared",
        "How many pages are unique but repeatedly checked for merging.",
    ),
    gauge(
        "pages_volatile",
        "node_ksmd_pages_volatile",
        "How many pages change too fast to be merged.",
    ),
    gauge("run", "node_ksmd_run", "Whether ksmd runs: 0 stopped, 1 running."),
    Field {
        per: 1000.0,
        ..gauge(
            "sleep_millisecs",
            "node_ksmd_sleep_seconds",
            "How many seconds ksmd sleeps between scans.",
        )
    },
];

struct Ksmd(Vec<Reread>);

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let dir = context.roots.sys("kernel/mm/ksm");
    let file = |field: &Field| Reread::new(dir.join(field.file)).single_record();
    Ok(Box::new(Ksmd(FIELDS.iter().map(file).collect())))
}

impl Collector for Ksmd {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let mut any = false;
        let mut skipped = Skipped::default();
        for (field, file) in FIELDS.iter().zip(&mut self.0) {
            match file.refresh() {
                // Kernels before 6.4 have no such file.
                Err(error) if error.is_missing() => continue,
                read => read?,
            }
            let text = String::from_utf8_lossy(file.bytes());
            any = true;
            let value = single::signed(&text).map_err(CollectError::parse(file.path()));
            let Some(value) = skipped.take(value) else {
                continue;
            };
            page.family(field.name, field.help, field.kind)
                .sample(&[], value as f64 / field.per);
        }
        if any {
            skipped.end()
        } else {
            Err(CollectError::no_data("the kernel has no KSM"))
        }
    }
}
