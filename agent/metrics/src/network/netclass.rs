//! `netclass`: properties of network devices, as in `/sys/class/net`.

use virtfleet_wire::exposition::{MetricType, Page};

use super::netclass_rows::{NUMBERS, Rows, SPEED};
use crate::{CollectError, Collector, Context, RegistryError};
use virtfleet_agent_core::settings::{NameFilter, filters};

struct Netclass {
    rows: Rows,
    filter: NameFilter,
    /// Family, HELP and type of each number.
    families: Vec<(String, String, MetricType)>,
    /// Whether an unknown speed is left out.
    ignore_invalid_speed: bool,
    /// Whether properties that only netlink has are exported.
    netlink: bool,
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
    let settings = &context.settings.netclass;
    Ok(Box::new(Netclass {
        rows: Rows::new(context.network.clone(), context.roots.clone()),
        filter: filters::netclass(settings)?,
        families: NUMBERS.iter().map(family).collect(),
        ignore_invalid_speed: settings.ignore_invalid_speed,
        netlink: settings.netlink,
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
            "Text properties of the device, always 1.",
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
                let invalid = |number: &i64| self.ignore_invalid_speed && index == SPEED && *number < 0;
                if let Some(number) = row.numbers[index].filter(|number| !invalid(number)) {
                    family.sample(&[("device", &row.name)], number as f64);
                }
            }
        }
        if self.netlink {
            let mut family = page.family(
                "node_network_altnames_info",
                "An alternative name of the device, always 1.",
                MetricType::Gauge,
            );
            for row in &rows {
                for name in &row.other_names {
                    family.sample(&[("altname", name), ("device", &row.name)], 1.0);
                }
            }
        }
        Ok(())
    }
}
