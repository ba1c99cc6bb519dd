//! `netdev`: traffic and errors of network devices, from `/proc/net/dev`.
//!
//! node_exporter asks netlink and then adds fields up to what `/proc/net/dev` has had from the start (the kernel adds
//! missed to drop, framing errors to frame, carrier errors to carrier). The one counter that it has besides, nohandler,
//! is in sysfs.

use std::{collections::HashSet, net::IpAddr, sync::Arc};

use virtfleet_agent_core::procfs::net_dev::{NetDevice, devices};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::host::{NetworkCalls, Reread, Roots, slurp};
use crate::metrics::{CollectError, Collector, Context, RegistryError, name_filter::NameFilter};

const KEYS: [&str; 2] = ["metrics.netdev.deviceExclude", "metrics.netdev.deviceInclude"];
/// A file of one number.
const NUMBER_LIMIT: usize = 4096;
/// A device's line has a name and 16 numbers.
const LINE: usize = 512;

macro_rules! columns {
    ($($name:literal,)*) => {
        [$((
            concat!("node_network_", $name, "_total"),
            concat!("Network device statistic ", $name, "."),
        ),)*]
    };
}

/// The columns of `/proc/net/dev`, in order: name and help.
static COLUMNS: [(&str, &str); NetDevice::COLUMNS] = columns! {
    "receive_bytes",
    "receive_packets",
    "receive_errs",
    "receive_drop",
    "receive_fifo",
    "receive_frame",
    "receive_compressed",
    "receive_multicast",
    "transmit_bytes",
    "transmit_packets",
    "transmit_errs",
    "transmit_drop",
    "transmit_fifo",
    "transmit_colls",
    "transmit_carrier",
    "transmit_compressed",
};

struct Netdev {
    roots: Roots,
    file: Reread,
    filter: NameFilter,
    /// Who is asked for addresses, if they are wanted.
    addresses: Option<Arc<dyn NetworkCalls>>,
    buffer: Vec<u8>,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let settings = &context.settings.netdev;
    Ok(Box::new(Netdev {
        filter: NameFilter::new(
            KEYS,
            settings.device_exclude.as_deref(),
            settings.device_include.as_deref(),
            None,
        )?,
        file: Reread::new(context.roots.proc("net/dev")).made_in_pieces(LINE),
        addresses: settings.address_info.then(|| Arc::clone(&context.network)),
        roots: context.roots.clone(),
        buffer: Vec::new(),
    }))
}

impl Collector for Netdev {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let path = self.file.path().to_owned();
        let text = self.file.text()?;
        let mut rows: Vec<NetDevice<'_>> = Vec::new();
        let mut names = HashSet::new();
        for device in devices(&text) {
            let device = device.map_err(CollectError::parse(&path))?;
            if self.filter.takes(device.name) && names.insert(device.name) {
                rows.push(device);
            }
        }
        if text.is_empty() {
            return Err(CollectError::failed(format!("{} is empty", path.display())));
        }
        for (index, (name, help)) in COLUMNS.iter().enumerate() {
            let mut family = page.family(name, help, MetricType::Counter);
            for row in &rows {
                family.sample(&[("device", row.name)], row.values[index] as f64);
            }
        }
        let mut family = page.family(
            "node_network_receive_nohandler_total",
            "Network device statistic receive_nohandler.",
            MetricType::Counter,
        );
        for row in &rows {
            if let Some(value) = nohandler(&self.roots, row.name, &mut self.buffer) {
                family.sample(&[("device", row.name)], value as f64);
            }
        }
        match &self.addresses {
            Some(network) => write_addresses(network.as_ref(), &mut self.filter, page),
            None => Ok(()),
        }
    }
}

fn write_addresses(
    network: &dyn NetworkCalls,
    filter: &mut NameFilter,
    page: &mut Page,
) -> Result<(), CollectError> {
    let held = network
        .addresses()
        .map_err(|error| CollectError::because("the kernel does not tell its addresses", error))?;
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

/// How far an address reaches, in node_exporter's words: loopback counts as local to the link.
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

/// Opened and closed at each scrape: a node has a device for each pod, and its files are not worth a descriptor each. A
/// device that has just gone has none.
fn nohandler(roots: &Roots, device: &str, buffer: &mut Vec<u8>) -> Option<u64> {
    if device.contains('/') || device == "." || device == ".." {
        return None;
    }
    let path = roots.sys(format!("class/net/{device}/statistics/rx_nohandler"));
    let text = str::from_utf8(slurp(&path, buffer, NUMBER_LIMIT).ok()?).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes() {
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
