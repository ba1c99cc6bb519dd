//! NetworkManager's state files, leases of its own DHCP client, and output of `nmcli`.

use super::{Lease, add_route, pairs, words};
use crate::dns::seen::{Given, Source};

/// NetworkManager's state of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Device {
    /// UUID of its connection.
    pub connection: Option<String>,
    /// Whether NetworkManager manages it; `None` if unknown.
    pub managed: Option<bool>,
}

/// Parses `/run/NetworkManager/devices/<index>`.
pub fn nm_device(text: &str) -> Device {
    let mut device = Device::default();
    let mut inside = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line == "[device]";
        }
        match line.split_once('=').filter(|_| inside) {
            Some(("connection-uuid", uuid)) => device.connection = Some(uuid.trim().to_owned()),
            Some(("managed", word)) => device.managed = Some(matches!(word.trim(), "1" | "true" | "yes")),
            _ => {}
        }
    }
    device
}

/// Parses `/var/lib/NetworkManager/internal-<uuid>-<interface>.lease`, in the format of networkd's
/// leases. From version 1.26 on it has only the address, and [`nmcli_devices`] provides the rest.
pub fn nm_lease(text: &str) -> Given {
    let mut lease = Lease::default();
    for (key, value) in pairs(text) {
        match key {
            "DNS" => lease.servers = words(&value),
            "DOMAINNAME" => lease.domain = words(&value),
            "DOMAIN_SEARCH_LIST" => lease.searches = words(&value),
            "MTU" => lease.set_mtu(&value),
            _ => {}
        }
    }
    lease.given()
}

/// Parses `nmcli -t device show`: for each device the values from DHCP, and the others in effect
/// (from a router advertisement or the connection). A device without values has an empty list.
pub fn nmcli_devices(text: &str) -> Vec<(String, Vec<Given>)> {
    let mut devices: Vec<(String, Vec<Given>)> = Vec::new();
    let mut one = Shown::default();
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        // In terse mode a colon in a value is escaped with a backslash.
        let value = value.replace("\\:", ":").replace("\\\\", "\\");
        if key == "GENERAL.DEVICE" {
            devices.extend(std::mem::take(&mut one).finish());
            one.name = value;
            continue;
        }
        one.read(key.split('[').next().unwrap_or(key), value.trim());
    }
    devices.extend(one.finish());
    devices
}

#[derive(Default)]
struct Shown {
    name: String,
    lease: Lease,
    other: Given,
}

impl Shown {
    fn read(&mut self, key: &str, value: &str) {
        match key {
            "IP4.DNS" | "IP6.DNS" => self.other.conf.add_server(value),
            "IP4.DOMAIN" | "IP6.DOMAIN" | "IP4.SEARCHES" | "IP6.SEARCHES" => {
                self.other.conf.add_search(value);
                add_route(&mut self.other.routes, value);
            }
            "DHCP4.OPTION" | "DHCP6.OPTION" => {
                let Some((name, value)) = value.split_once('=') else {
                    return;
                };
                let value = value.trim();
                match name.trim() {
                    "domain_name_servers" | "dhcp6_name_servers" => self.lease.servers.extend(words(value)),
                    "domain_search" | "dhcp6_domain_search" => self.lease.searches.extend(words(value)),
                    "domain_name" => self.lease.domain = words(value),
                    "interface_mtu" => self.lease.set_mtu(value),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn finish(self) -> Option<(String, Vec<Given>)> {
        let leased = self.lease.given();
        let mut other = self.other;
        other.source = if other.conf.nameservers.iter().all(std::net::IpAddr::is_ipv6) {
            Source::Advertised
        } else {
            Source::Static
        };
        other
            .conf
            .nameservers
            .retain(|one| !leased.conf.nameservers.contains(one));
        other
            .conf
            .searches
            .retain(|one| !leased.conf.searches.contains(one));
        let kept = other.conf.nameservers.clone();
        other.conf.zones.retain(|one, _| kept.contains(one));
        let given = [leased, other].into_iter().filter(|given| {
            !given.conf.nameservers.is_empty()
                || !given.conf.searches.is_empty()
                || !given.routes.is_empty()
                || given.mtu.is_some()
        });
        (!self.name.is_empty()).then(|| (self.name, given.collect()))
    }
}
