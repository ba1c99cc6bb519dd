//! `cgroups`: controllers and their number of cgroups, from `/proc/cgroups`.

use std::collections::HashSet;

use virtfleet_agent_core::procfs::cgroups::controllers;
use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError, Skipped};

struct Cgroups(Reread);

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Cgroups(Reread::new(context.roots.proc("cgroups")))))
}

impl Collector for Cgroups {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let path = self.0.path().to_owned();
        let text = self.0.text()?;
        let mut rows = Vec::new();
        let mut names = HashSet::new();
        let mut skipped = Skipped::default();
        for controller in skipped.valid(&path, controllers(&text)) {
            if names.insert(controller.name) {
                rows.push(controller);
            }
        }
        let mut family = page.family(
            "node_cgroups_cgroups",
            "Number of cgroups of the controller.",
            MetricType::Gauge,
        );
        for row in &rows {
            family.sample(&[("subsys_name", row.name)], row.cgroups as f64);
        }
        let mut family = page.family(
            "node_cgroups_enabled",
            "Whether the controller is enabled.",
            MetricType::Gauge,
        );
        for row in &rows {
            family.sample(&[("subsys_name", row.name)], row.enabled as f64);
        }
        skipped.end()
    }
}
