//! `buddyinfo`: free memory blocks by size, from `/proc/buddyinfo`.

use std::collections::HashSet;

use virtfleet_agent_core::procfs::buddyinfo::blocks;
use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError, Skipped};

struct Buddyinfo(Reread);

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Buddyinfo(Reread::new(context.roots.proc("buddyinfo")))))
}

impl Collector for Buddyinfo {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let path = self.0.path().to_owned();
        let text = self.0.text()?;
        let mut family = page.family(
            "node_buddyinfo_blocks",
            "Count of free blocks according to size.",
            MetricType::Gauge,
        );
        let mut written = HashSet::new();
        let mut skipped = Skipped::default();
        for free in skipped.valid(&path, blocks(&text)) {
            if written.insert((free.node, free.zone, free.order)) {
                let labels = [
                    ("node", free.node),
                    ("zone", free.zone),
                    ("size", &free.order.to_string()),
                ];
                family.sample(&labels, free.blocks as f64);
            }
        }
        skipped.end()
    }
}
