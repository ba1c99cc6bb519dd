//! `slabinfo`: the kernel's slab caches, from `/proc/slabinfo`, which only root can read.

use std::collections::HashSet;

use virtfleet_agent_core::procfs::slabinfo::{Slab, slabs};
use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError, Skipped};
use virtfleet_agent_core::settings::{NameFilter, filters};

/// The columns in order: name and HELP.
static COLUMNS: [(&str, &str); Slab::COLUMNS] = [
    (
        "node_slabinfo_active_objects",
        "The number of objects that are in use.",
    ),
    (
        "node_slabinfo_objects",
        "The number of objects that are allocated, in use or not.",
    ),
    (
        "node_slabinfo_object_size_bytes",
        "The size of objects in this slab, in bytes.",
    ),
    (
        "node_slabinfo_objects_per_slab",
        "The number of objects stored in each slab.",
    ),
    (
        "node_slabinfo_pages_per_slab",
        "The number of pages allocated for each slab.",
    ),
];

struct Slabinfo {
    file: Reread,
    filter: NameFilter,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let settings = &context.settings.slabinfo;
    Ok(Box::new(Slabinfo {
        file: Reread::new(context.roots.proc("slabinfo")),
        filter: filters::slabinfo(settings)?,
    }))
}

impl Collector for Slabinfo {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let path = self.file.path().to_owned();
        let text = match self.file.text() {
            Err(error) if error.is_denied() => {
                return Err(CollectError::because(
                    format!("only root can read {}", path.display()),
                    error,
                ));
            }
            text => text?,
        };
        let mut rows = Vec::new();
        let mut names = HashSet::new();
        let mut skipped = Skipped::default();
        for slab in skipped.valid(&path, slabs(&text)) {
            if self.filter.takes(slab.name) && names.insert(slab.name) {
                rows.push(slab);
            }
        }
        for (index, (name, help)) in COLUMNS.iter().enumerate() {
            let mut family = page.family(name, help, MetricType::Gauge);
            for row in &rows {
                family.sample(&[("slab", row.name)], row.values[index] as f64);
            }
        }
        skipped.end()
    }
}
