//! `edac`: corrected and uncorrected memory errors, from `/sys/devices/system/edac/mc`.

use std::{path::Path, time::Instant};

use virtfleet_agent_host::{
    Attribute, AttributeBuffer, Devices, attribute_buffer, attribute_names, attribute_once, directory_names,
};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError, Skipped, attributes::number};

/// Name, HELP and labels of a family.
struct Family(&'static str, &'static str, &'static [&'static str]);

const ROW: &[&str] = &["controller", "csrow"];
const CHANNEL: &[&str] = &["controller", "csrow", "channel", "dimm_label"];

#[rustfmt::skip]
static FAMILIES: [Family; 6] = [
    Family("node_edac_correctable_errors_total", "Corrected memory errors.", &["controller"]),
    Family("node_edac_uncorrectable_errors_total", "Uncorrectable memory errors.", &["controller"]),
    Family("node_edac_csrow_correctable_errors_total", "Corrected memory errors of a row.", ROW),
    Family("node_edac_csrow_uncorrectable_errors_total", "Uncorrectable memory errors of a row.", ROW),
    Family("node_edac_channel_correctable_errors_total", "Corrected memory errors of a channel.", CHANNEL),
    Family("node_edac_channel_uncorrectable_errors_total", "Uncorrectable memory errors of a channel.", CHANNEL),
];

/// Number of counters of a controller without rows.
const CONTROLLER_COUNTERS: usize = 4;

struct Edac {
    controllers: Devices<Vec<Counter>>,
    buffer: Box<AttributeBuffer>,
}

/// A counter of a controller.
struct Counter {
    /// Index in [`FAMILIES`].
    family: usize,
    labels: Vec<String>,
    file: Attribute,
    now: Option<u64>,
}

/// A controller's counters, which do not change while it exists.
fn counters(name: &str, path: &Path) -> Vec<Counter> {
    let mut found = Vec::new();
    let mut add = |family, labels: &[&str], file: &Path| {
        found.push(Counter {
            family,
            labels: labels.iter().map(ToString::to_string).collect(),
            file: Attribute::new(file),
            now: None,
        });
    };
    let controller = name.trim_start_matches("mc");
    add(0, &[controller], &path.join("ce_count"));
    add(1, &[controller], &path.join("ue_count"));
    // Errors of an unknown row.
    add(2, &[controller, "unknown"], &path.join("ce_noinfo_count"));
    add(3, &[controller, "unknown"], &path.join("ue_noinfo_count"));
    for row in directory_names(path) {
        let Some(number) = row.strip_prefix("csrow").filter(|number| is_number(number)) else {
            continue;
        };
        let path = path.join(&row);
        add(2, &[controller, number], &path.join("ce_count"));
        add(3, &[controller, number], &path.join("ue_count"));
        for file in attribute_names(&path) {
            let channel = file
                .strip_prefix("ch")
                .and_then(|rest| rest.strip_suffix("_ce_count"));
            let Some(channel) = channel.filter(|channel| is_number(channel)) else {
                continue;
            };
            let label = dimm_label(&path.join(format!("ch{channel}_dimm_label")));
            let labels = [controller, number, channel, &label];
            add(4, &labels, &path.join(&file));
            add(5, &labels, &path.join(format!("ch{channel}_ue_count")));
        }
    }
    found
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// node_exporter's label: `mc#0csrow#1channel#0` becomes `mc0_csrow1_channel0`.
fn dimm_label(path: &Path) -> String {
    match attribute_once(path, &mut attribute_buffer()) {
        Ok(label) => label
            .replace('#', "")
            .replace("csrow", "_csrow")
            .replace("channel", "_channel"),
        Err(_) => "unknown".to_owned(),
    }
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Edac {
        controllers: Devices::new(context.roots.sys("devices/system/edac/mc")),
        buffer: attribute_buffer(),
    }))
}

impl Collector for Edac {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let refreshed = self.controllers.refresh_with(
            |name| name.strip_prefix("mc").is_some_and(is_number),
            counters,
            // Rows are created after their controller.
            |counters| counters.len() == CONTROLLER_COUNTERS,
            Instant::now(),
        );
        match refreshed {
            // node_exporter reports nothing and success in this case.
            Err(error) if error.is_missing() => return Ok(()),
            done => done?,
        };
        let mut skipped = Skipped::default();
        for controller in self.controllers.all() {
            for counter in &mut controller.kept {
                counter.now = number(&mut counter.file, &mut self.buffer, &mut skipped);
            }
        }
        for (index, Family(name, help, labels)) in FAMILIES.iter().enumerate() {
            let mut family = page.family(name, help, MetricType::Counter);
            let counters = self
                .controllers
                .all()
                .iter()
                .flat_map(|controller| &controller.kept);
            for counter in counters.filter(|counter| counter.family == index) {
                if let Some(now) = counter.now {
                    let mut pairs = [("", ""); CHANNEL.len()];
                    for (pair, (label, value)) in pairs.iter_mut().zip(labels.iter().zip(&counter.labels)) {
                        *pair = (label, value);
                    }
                    family.sample(&pairs[..labels.len()], now as f64);
                }
            }
        }
        skipped.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimm_labels_have_node_exporters_format() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ch0_dimm_label");
        assert_eq!(dimm_label(&path), "unknown");
        std::fs::write(&path, "mc#0csrow#1channel#0\n").unwrap();
        assert_eq!(dimm_label(&path), "mc0_csrow1_channel0");
    }
}
