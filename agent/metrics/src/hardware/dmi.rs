//! `dmi`: the firmware's description of the machine, from `/sys/class/dmi/id`. It does not change
//! while the machine runs and is read once.

use virtfleet_agent_host::{RereadError, Roots, attribute_buffer, attribute_names, attribute_once};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError};

/// The files, each a label of its name, in the order of the labels. node_exporter renames
/// `sys_vendor` to `system_vendor`.
const FILES: [&str; 20] = [
    "bios_date",
    "bios_release",
    "bios_vendor",
    "bios_version",
    "board_asset_tag",
    "board_name",
    "board_serial",
    "board_vendor",
    "board_version",
    "chassis_asset_tag",
    "chassis_serial",
    "chassis_vendor",
    "chassis_version",
    "product_family",
    "product_name",
    "product_serial",
    "product_sku",
    "product_uuid",
    "product_version",
    "sys_vendor",
];

struct Dmi {
    roots: Roots,
    /// Labels and values, after they were read.
    labels: Option<Vec<(&'static str, String)>>,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Dmi {
        roots: context.roots.clone(),
        labels: None,
    }))
}

impl Collector for Dmi {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let labels = match self.labels.take() {
            Some(labels) => labels,
            None => read(&self.roots)?,
        };
        // An empty result is not cached: the files may not exist yet, or the directory could not be
        // opened.
        if labels.is_empty() {
            return Err(CollectError::no_data("this machine has no DMI"));
        }
        let labels = self.labels.insert(labels);
        let labels: Vec<_> = labels
            .iter()
            .map(|(label, value)| (*label, value.as_str()))
            .collect();
        page.family(
            "node_dmi_info",
            "The machine according to DMI, always 1; one label per available field.",
            MetricType::Gauge,
        )
        .sample(&labels, 1.0);
        Ok(())
    }
}

/// Only root can read the serial numbers and the UUID; other users get no labels for them.
fn read(roots: &Roots) -> Result<Vec<(&'static str, String)>, RereadError> {
    let directory = roots.sys("class/dmi/id");
    let present = attribute_names(&directory);
    let mut buffer = attribute_buffer();
    let mut labels = Vec::new();
    for file in FILES {
        if !present.iter().any(|name| name == file) {
            continue;
        }
        let label = if file == "sys_vendor" {
            "system_vendor"
        } else {
            file
        };
        match attribute_once(&directory.join(file), &mut buffer) {
            Ok(value) => labels.push((label, value.into_owned())),
            Err(error) if error.is_denied() || error.is_missing() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(labels)
}
