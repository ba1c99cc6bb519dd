//! `netclass`: properties of network devices, as `/sys/class/net` has them.

use virtfleet_wire::exposition::{MetricType, Page};

use super::netclass_rows::{NUMBERS, Rows};
use crate::metrics::{CollectError, Collector, Context, RegistryError, name_filter::NameFilter};

const KEYS: [&str; 2] = ["metrics.netclass.ignored", ""];

struct Netclass {
    rows: Rows,
    filter: NameFilter,
    /// Each number's family, help and type.
    families: Vec<(String, String, MetricType)>,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let family = |(_, name): &(&str, &str)| {
        let kind = if name.ends_with("_total") {
            MetricType::Counter
        } else {
            MetricType::Gauge
        };
        let help = format!("Network device property: {name}");
        (format!("node_network_{name}"), help, kind)
    };
    Ok(Box::new(Netclass {
        rows: Rows::new(context.network.clone(), context.roots.clone()),
        filter: NameFilter::new(KEYS, context.settings.netclass.ignored.as_deref(), None, None)?,
        families: NUMBERS.iter().map(family).collect(),
    }))
}

impl Collector for Netclass {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let rows = self.rows.read(&mut self.filter)?;
        let mut family = page.family(
            "node_network_up",
            "1 if the device's operstate is 'up', 0 if not.",
            MetricType::Gauge,
        );
        for row in &rows {
            let up = row.operstate == "up";
            family.sample(&[("device", &row.name)], f64::from(u8::from(up)));
        }
        let mut family = page.family(
            "node_network_info",
            "What the device's files say in words, always 1.",
            MetricType::Gauge,
        );
        for row in &rows {
            let labels = [
                ("device", row.name.as_str()),
                ("address", &row.address),
                ("broadcast", &row.broadcast),
                ("duplex", &row.duplex),
                ("operstate", &row.operstate),
                ("adminstate", row.admin_state()),
                ("ifalias", &row.alias),
            ];
            family.sample(&labels, 1.0);
        }
        for (index, (name, help, kind)) in self.families.iter().enumerate() {
            let mut family = page.family(name, help, *kind);
            for row in &rows {
                if let Some(number) = row.numbers[index] {
                    family.sample(&[("device", &row.name)], number as f64);
                }
            }
        }
        Ok(())
    }
}
