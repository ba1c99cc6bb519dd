//! `netdev`: traffic and errors of network devices, from `/proc/net/dev`.
//!
//! node_exporter reads netlink and then adds fields to restore the columns of `/proc/net/dev` (the
//! kernel adds missed to drop, framing errors to frame, carrier errors to carrier). Its only
//! additional counter, nohandler, is in sysfs. With `detailedMetrics`, netlink is used, as in
//! node_exporter.

use std::{collections::HashSet, net::IpAddr, path::Path, sync::Arc};

use virtfleet_agent_core::procfs::net_dev::{NetDevice, devices};
use virtfleet_agent_host::{NetworkCalls, Reread, Roots, read_once};
use virtfleet_wire::exposition::{MetricType, Page};

use super::netdev_names::{COLUMNS, DETAILED, DETAILED_COLUMNS, Named};
use super::query_error;
use crate::{CollectError, Collector, Context, RegistryError, Skipped};
use virtfleet_agent_core::settings::{NameFilter, filters};

/// Maximum size in bytes of a file with a number or an alias (at most 255 bytes).
const MAX_ATTRIBUTE_BYTES: usize = 4096;
/// Maximum length of a device's line: a name and 16 numbers.
const MAX_LINE_BYTES: usize = 512;

struct Netdev {
    roots: Roots,
    file: Reread,
    filter: NameFilter,
    /// Queries for addresses and details.
    network: Arc<dyn NetworkCalls>,
    /// Whether addresses are exported.
    addresses: bool,
    /// Whether each counter has the device's alias as a label.
    aliases: bool,
    /// Whether the counters have the kernel's names.
    detailed: bool,
    buffer: Vec<u8>,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let settings = &context.settings.netdev;
    Ok(Box::new(Netdev {
        filter: filters::netdev(settings)?,
        file: Reread::new(context.roots.proc("net/dev")).max_record_bytes(MAX_LINE_BYTES),
        network: Arc::clone(&context.network),
        addresses: settings.address_info,
        aliases: settings.label_ifalias,
        detailed: settings.detailed_metrics,
        roots: context.roots.clone(),
        buffer: Vec::new(),
    }))
}

impl Collector for Netdev {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        // Netlink describes this process's network namespace, and so does only `/proc`.
        let mut skipped = Skipped::default();
        if self.detailed && self.roots.procfs == Path::new("/proc") {
            self.details(page)?;
        } else {
            self.columns(page, &mut skipped)?;
        }
        if self.addresses {
            write_addresses(self.network.as_ref(), &mut self.filter, page)?;
        }
        skipped.end()
    }
}

impl Netdev {
    /// Counters of `/proc/net/dev`, and nohandler.
    fn columns(&mut self, page: &mut Page, skipped: &mut Skipped) -> Result<(), CollectError> {
        let path = self.file.path().to_owned();
        let text = self.file.text()?;
        let mut rows: Vec<NetDevice<'_>> = Vec::new();
        let mut names = HashSet::new();
        for device in skipped.valid(&path, devices(&text)) {
            if self.filter.takes(device.name) && names.insert(device.name) {
                rows.push(device);
            }
        }
        if text.is_empty() {
            return Err(CollectError::failed(format!("{} is empty", path.display())));
        }
        let aliased: Vec<_> = rows
            .iter()
            .map(|row| {
                let alias = || alias(&self.roots, row.name, &mut self.buffer);
                (row.name, self.aliases.then(alias))
            })
            .collect();
        let names = if self.detailed {
            &DETAILED_COLUMNS
        } else {
            &COLUMNS
        };
        write(page, names, &aliased, |row, index| rows[row].values[index]);
        let mut family = page.family(
            "node_network_receive_nohandler_total",
            "Network device statistic receive_nohandler.",
            MetricType::Counter,
        );
        for (name, alias) in &aliased {
            if let Some(value) = nohandler(&self.roots, name, &mut self.buffer) {
                labelled(name, alias.as_deref(), |labels| {
                    family.sample(labels, value as f64);
                });
            }
        }
        Ok(())
    }

    /// Counters from netlink, with a family for each kind of error.
    fn details(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let mut rows = self
            .network
            .link_counters()
            .map_err(query_error("the device counters"))?;
        rows.retain(|row| self.filter.takes(&row.name));
        let aliased: Vec<_> = rows
            .iter()
            .map(|row| {
                let alias = || alias(&self.roots, &row.name, &mut self.buffer);
                (row.name.as_str(), self.aliases.then(alias))
            })
            .collect();
        write(page, &DETAILED, &aliased, |row, index| rows[row].values[index]);
        Ok(())
    }
}

/// A family for each name, with the devices and their aliases.
fn write(
    page: &mut Page,
    names: &[Named],
    devices: &[(&str, Option<String>)],
    value: impl Fn(usize, usize) -> u64,
) {
    for (index, (name, help)) in names.iter().enumerate() {
        let mut family = page.family(name, help, MetricType::Counter);
        for (row, (device, alias)) in devices.iter().enumerate() {
            labelled(device, alias.as_deref(), |labels| {
                family.sample(labels, value(row, index) as f64);
            });
        }
    }
}

/// Labels of a device: its name and, if configured, its alias.
fn labelled(device: &str, alias: Option<&str>, sample: impl FnOnce(&[(&str, &str)])) {
    match alias {
        None => sample(&[("device", device)]),
        Some(alias) => sample(&[("device", device), ("ifalias", alias)]),
    }
}

fn write_addresses(
    network: &dyn NetworkCalls,
    filter: &mut NameFilter,
    page: &mut Page,
) -> Result<(), CollectError> {
    let held = network
        .addresses()
        .map_err(|error| CollectError::because("cannot query the addresses from the kernel", error))?;
    let mut family = page.family(
        "node_network_address_info",
        "An address of the device, always 1.",
        MetricType::Gauge,
    );
    for (device, addresses) in &held {
        if !filter.takes(device) {
            continue;
        }
        for (index, (address, prefix)) in addresses.iter().enumerate() {
            if addresses[..index].contains(&(*address, *prefix)) {
                continue;
            }
            let (text, netmask) = (address.to_string(), prefix.to_string());
            let labels = [
                ("device", device.as_str()),
                ("address", &text),
                ("netmask", &netmask),
                ("scope", scope(address)),
            ];
            family.sample(&labels, 1.0);
        }
    }
    Ok(())
}

/// Scope of an address in node_exporter's terms: loopback counts as link-local.
fn scope(address: &IpAddr) -> &'static str {
    let (near, nowhere) = match address {
        IpAddr::V4(v4) => (
            v4.is_loopback() || v4.is_link_local() || v4.octets()[..3] == [224, 0, 0],
            v4.is_unspecified() || v4.is_broadcast() || v4.is_multicast(),
        ),
        IpAddr::V6(v6) => (
            v6.is_loopback() || v6.is_unicast_link_local() || v6.segments()[0] & 0xff0f == 0xff02,
            v6.is_unspecified() || v6.is_multicast(),
        ),
    };
    match (near, nowhere) {
        (true, _) => "link-local",
        (false, true) => "",
        (false, false) => "global",
    }
}

/// Opened and closed at each scrape: a node has a device per pod, and a descriptor for each would
/// be too many.
fn nohandler(roots: &Roots, device: &str, buffer: &mut Vec<u8>) -> Option<u64> {
    attribute(roots, device, "statistics/rx_nohandler", buffer)?
        .parse()
        .ok()
}

/// The device's alias; empty if none is set.
fn alias(roots: &Roots, device: &str, buffer: &mut Vec<u8>) -> String {
    attribute(roots, device, "ifalias", buffer)
        .unwrap_or_default()
        .to_owned()
}

/// An attribute of the device. `None` if the device is gone.
fn attribute<'buffer>(
    roots: &Roots,
    device: &str,
    file: &str,
    buffer: &'buffer mut Vec<u8>,
) -> Option<&'buffer str> {
    if device.contains('/') || device == "." || device == ".." {
        return None;
    }
    let path = roots.sys(format!("class/net/{device}/{file}"));
    let text = str::from_utf8(read_once(&path, buffer, MAX_ATTRIBUTE_BYTES).ok()?).ok()?;
    Some(text.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_those_of_node_exporter() {
        for (address, expected) in [
            ("127.0.0.1", "link-local"),
            ("169.254.3.4", "link-local"),
            ("fe80::1", "link-local"),
            ("::1", "link-local"),
            ("10.0.0.1", "global"),
            ("fd00::1", "global"),
            ("0.0.0.0", ""),
        ] {
            assert_eq!(scope(&address.parse().unwrap()), expected, "{address}");
        }
    }
}
