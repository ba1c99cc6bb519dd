//! `vmstat`: fields of `/proc/vmstat` about paging, swapping, page faults and OOM kills, untyped.

use std::collections::HashSet;

use virtfleet_agent_core::procfs::pairs::pairs;
use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::{MetricType, Page, is_metric_name};

use crate::{CollectError, Collector, Context, RegistryError, Skipped};
use virtfleet_agent_core::settings::{NameFilter, filters};

struct Vmstat {
    file: Reread,
    /// The settings' fields, if set.
    fields: Option<NameFilter>,
    /// A reused buffer.
    name: String,
    help: String,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Vmstat {
        fields: filters::vmstat(&context.settings.vmstat)?,
        file: Reread::new(context.roots.proc("vmstat")),
        name: String::new(),
        help: String::new(),
    }))
}

/// node_exporter's default, `^(oom_kill|pgpg|pswp|pg.*fault).*`.
fn wanted_by_default(field: &str) -> bool {
    ["oom_kill", "pgpg", "pswp"]
        .iter()
        .any(|start| field.starts_with(start))
        || field
            .strip_prefix("pg")
            .is_some_and(|rest| rest.contains("fault"))
}

impl Collector for Vmstat {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let path = self.file.path().to_owned();
        let text = self.file.text()?;
        let mut written = HashSet::new();
        let mut skipped = Skipped::default();
        for (field, value) in skipped.valid(&path, pairs(&text)) {
            let wanted = match &mut self.fields {
                Some(fields) => fields.takes(field),
                None => wanted_by_default(field),
            };
            if !wanted || written.contains(field) {
                continue;
            }
            self.name.clear();
            self.name.extend(["node_vmstat_", field]);
            if !is_metric_name(&self.name) {
                continue;
            }
            self.help.clear();
            self.help.extend(["/proc/vmstat information field ", field, "."]);
            page.family(&self.name, &self.help, MetricType::Untyped)
                .sample(&[], value as f64);
            written.insert(field);
        }
        if written.is_empty() {
            skipped.end()?;
            return Err(CollectError::failed(format!(
                "{} contains none of the selected fields",
                path.display()
            )));
        }
        skipped.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_selection_of_fields() {
        for (field, is_wanted) in [
            ("pgpgin", true),
            ("pswpout", true),
            ("pgfault", true),
            ("pgmajfault", true),
            ("oom_kill", true),
            ("thp_fault_alloc", false),
            ("nr_free_pages", false),
            ("pgfree", false),
            ("numa_hit", false),
        ] {
            assert_eq!(wanted_by_default(field), is_wanted, "{field}");
        }
    }
}
