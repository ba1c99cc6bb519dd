//! `ethtool`: drivers, link modes and driver statistics, from `SIOCETHTOOL`.
//!
//! Names and labels are node_exporter's, so the name of a queue's counter contains the queue.
//! Devices have different counters, so all are collected before a family is written.

use std::{collections::BTreeMap, sync::Arc};

use regex_lite::Regex;
use virtfleet_agent_core::settings::{NameFilter, filters};
use virtfleet_agent_host::Errno;
use virtfleet_agent_host::{Driver, LinkModes, NetworkCalls, NetworkError, Roots};
use virtfleet_wire::exposition::{MetricType, Page, is_metric_name};

use super::{
    devices,
    ethtool_names::{CAPABILITIES, PORTS, SPEEDS, family, full_name},
    query_error,
};
use crate::{CollectError, Collector, Context, RegistryError, metric_name::sanitized};

/// Converts Mbit/s to bytes per second.
const BYTES_PER_MEGABIT: f64 = 1e6 / 8.0;

struct Ethtool {
    network: Arc<dyn NetworkCalls>,
    roots: Roots,
    filter: NameFilter,
    include: Option<Regex>,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let settings = &context.settings.ethtool;
    Ok(Box::new(Ethtool {
        network: Arc::clone(&context.network),
        roots: context.roots.clone(),
        filter: filters::ethtool(settings)?,
        include: filters::ethtool_metrics(settings)?,
    }))
}

/// HELP of a family and its samples: device and value.
type Counters = BTreeMap<String, (String, Vec<(String, u64)>)>;

impl Ethtool {
    /// If two counters of a device map to the same name, both are left out, as in node_exporter.
    fn gather(&self, device: &str, counters: &[(String, u64)], all: &mut Counters) {
        // Sorted, so that a family with two source counters has the same HELP in each scrape.
        let mut clean: BTreeMap<String, Option<(String, u64)>> = BTreeMap::new();
        for (counter, value) in counters {
            let counter = sanitized(counter);
            if self
                .include
                .as_ref()
                .is_some_and(|include| !include.is_match(&counter))
            {
                continue;
            }
            clean
                .entry(full_name(&counter))
                .and_modify(|known| *known = None)
                .or_insert(Some((counter, *value)));
        }
        for (counter, value) in clean.into_values().flatten() {
            let (name, help) = family(&counter);
            let name = format!("node_ethtool_{name}");
            if !is_metric_name(&name) || name == "node_ethtool_info" {
                continue;
            }
            let (_, samples) = all.entry(name).or_insert_with(|| (help, Vec::new()));
            // A driver's counter may map to the name of a standard family.
            if samples.last().is_none_or(|(last, _)| last != device) {
                samples.push((device.to_owned(), value));
            }
        }
    }
}

impl Collector for Ethtool {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let mut modes: Vec<(String, LinkModes)> = Vec::new();
        let mut drivers: Vec<(String, Driver)> = Vec::new();
        let mut counters = Counters::new();
        for device in devices(&self.roots.sys("class/net"))? {
            if !self.filter.takes(&device) {
                continue;
            }
            let found = match self.network.ethtool(&device) {
                // The device was removed meanwhile.
                Err(NetworkError::Refused(Errno::ENODEV)) => continue,
                found => found.map_err(query_error("the drivers' information"))?,
            };
            self.gather(&device, &found.counters, &mut counters);
            if let Some(link) = found.link {
                modes.push((device.clone(), link));
            }
            if let Some(driver) = found.driver {
                drivers.push((device, driver));
            }
        }
        write_drivers(page, &drivers);
        write_modes(page, &modes);
        for (name, (help, samples)) in &counters {
            let mut family = page.family(name, help, MetricType::Untyped);
            for (device, value) in samples {
                family.sample(&[("device", device)], *value as f64);
            }
        }
        Ok(())
    }
}

fn write_drivers(page: &mut Page, drivers: &[(String, Driver)]) {
    let mut family = page.family(
        "node_ethtool_info",
        "The device's driver and firmware, always 1.",
        MetricType::Gauge,
    );
    for (device, driver) in drivers {
        let labels = [
            ("bus_info", driver.bus.as_str()),
            ("device", device),
            ("driver", &driver.name),
            ("expansion_rom_version", &driver.rom),
            ("firmware_version", &driver.firmware),
            ("version", &driver.version),
        ];
        family.sample(&labels, 1.0);
    }
}

type Modes = fn(&LinkModes) -> u32;

static SIDES: [(&str, &str, Modes); 2] = [
    ("supported", "The device supports it", |link| link.supported),
    ("advertised", "The device advertises it", |link| link.advertised),
];

fn write_modes(page: &mut Page, modes: &[(String, LinkModes)]) {
    let has = |modes: u32, bit: u32| modes & (1 << bit) != 0;
    let mut family = page.family(
        "node_network_supported_port_info",
        "Port types that the device supports, always 1.",
        MetricType::Gauge,
    );
    for (device, link) in modes {
        for (_, port) in PORTS.iter().filter(|(bit, _)| has(link.supported, *bit)) {
            family.sample(&[("device", device), ("type", port)], 1.0);
        }
    }
    for (side, what, value) in &SIDES {
        let name = format!("node_network_{side}_speed_bytes");
        let help = format!("{what}: a speed in bytes per second.");
        let mut family = page.family(&name, &help, MetricType::Gauge);
        for (device, link) in modes {
            for (_, speed, duplex, medium) in SPEEDS.iter().filter(|(bit, ..)| has(value(link), *bit)) {
                let mode = format!("{speed}base{medium}");
                let labels = [("device", device.as_str()), ("duplex", duplex), ("mode", &mode)];
                family.sample(&labels, f64::from(*speed) * BYTES_PER_MEGABIT);
            }
        }
        for (bit, capability) in CAPABILITIES {
            let name = format!("node_network_{capability}_{side}");
            let help = format!("{what}: {capability}.");
            let mut family = page.family(&name, &help, MetricType::Gauge);
            for (device, link) in modes {
                family.sample(&[("device", device)], f64::from(u8::from(has(value(link), bit))));
            }
        }
    }
    let mut family = page.family(
        "node_network_autonegotiate",
        "Whether the device negotiates its mode with the link partner.",
        MetricType::Gauge,
    );
    for (device, link) in modes {
        family.sample(&[("device", device)], f64::from(u8::from(link.autonegotiate)));
    }
}
