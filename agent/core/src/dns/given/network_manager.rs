//! NetworkManager's state files, its own DHCP client's leases, and what `nmcli` prints.

use super::{Lease, add_route, pairs, words};
use crate::dns::seen::{Given, Source};

/// What NetworkManager has written down about a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Device {
    /// The UUID of its connection.
    pub connection: Option<String>,
    /// Whether NetworkManager manages it; none when the file does not say.
    pub managed: Option<bool>,
}

/// `/run/NetworkManager/devices/<index>`.
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

/// `/var/lib/NetworkManager/internal-<uuid>-<interface>.lease`. Written as networkd's leases; from version 1.26 on it holds the address alone, and
/// [`nmcli_devices`] says the rest.
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

/// `nmcli -t device show`: for each device what DHCP gave, and what else counts on it (a router advertisement or its connection). A device of which nothing
/// was given is there with an empty list.
pub fn nmcli_devices(text: &str) -> Vec<(String, Vec<Given>)> {
    let mut devices: Vec<(String, Vec<Given>)> = Vec::new();
    let mut one = Shown::default();
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        // In this form a colon in a value stands behind a backslash.
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
