//! `swap`: swap areas, from `/proc/swaps`.

use std::collections::HashSet;

use virtfleet_agent_core::procfs::swaps::{Swap, swaps};
use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError, Skipped};

/// A column and its family.
type Column = (&'static str, &'static str, fn(&Swap<'_>) -> f64);

static COLUMNS: [Column; 3] = [
    ("node_swap_size_bytes", "Swap device size in bytes.", |swap| {
        swap.size_kib as f64 * 1024.0
    }),
    ("node_swap_used_bytes", "Swap device used in bytes.", |swap| {
        swap.used_kib as f64 * 1024.0
    }),
    ("node_swap_priority", "Swap device priority.", |swap| {
        swap.priority as f64
    }),
];

struct SwapAreas(Reread);

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(SwapAreas(Reread::new(context.roots.proc("swaps")))))
}

impl Collector for SwapAreas {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let path = self.0.path().to_owned();
        let text = self.0.text()?;
        let mut places = Vec::new();
        let mut files = HashSet::new();
        let mut skipped = Skipped::default();
        for swap in skipped.valid(&path, swaps(&text)) {
            if files.insert((swap.file, swap.kind)) {
                places.push(swap);
            }
        }
        for (name, help, of) in COLUMNS {
            let mut family = page.family(name, help, MetricType::Gauge);
            for swap in &places {
                family.sample(&[("device", swap.file), ("swap_type", swap.kind)], of(swap));
            }
        }
        skipped.end()
    }
}
