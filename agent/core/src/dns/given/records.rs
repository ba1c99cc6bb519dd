//! Texts in `resolv.conf` format that programs store per interface, and Debian's
//! `/etc/network/interfaces`.

use super::{Lease, pairs, words};
use crate::dns::{
    resolv,
    seen::{Given, Source},
};

/// Parses a record of resolvconf(8): `/run/resolvconf/interface/<interface>.<program>`, or of
/// openresolv below `/run/resolvconf/interfaces`. By its name, a record is a DHCP lease's:
/// `.dhclient`, `.dhcpcd`, `.udhcpc`.
pub fn resolvconf_record(name: &str, text: &str) -> Given {
    let leased = ["dhclient", "dhcpcd", "udhcpc", "dhcp", "dhcp6"]
        .iter()
        .any(|program| name.split('.').skip(1).any(|part| part == *program));
    let ra = name
        .split('.')
        .skip(1)
        .any(|part| part == "ra" || part == "rdnssd");
    Given {
        source: match (leased, ra) {
            (true, _) => Source::Dhcp,
            (_, true) => Source::Advertised,
            _ => Source::Static,
        },
        conf: resolv::parse(text),
        ..Given::default()
    }
}

/// Parses a file of dhcpcd's hook by name and text:
/// `/run/dhcpcd/hook-state/resolv.conf/<interface>.<dhcp|dhcp6|ra>`.
pub fn dhcpcd(name: &str, text: &str) -> Given {
    resolvconf_record(name, text)
}

/// Parses the shell variables of `dhcpcd -U <interface>`.
pub fn dhcpcd_variables(text: &str) -> Given {
    let mut lease = Lease::default();
    for (key, value) in pairs(text) {
        match key.strip_prefix("new_").unwrap_or(key) {
            "domain_name_servers" | "dhcp6_name_servers" => lease.servers.extend(words(&value)),
            "domain_name" => lease.domain = words(&value),
            "domain_search" | "dhcp6_domain_search" => lease.searches.extend(words(&value)),
            "interface_mtu" => lease.set_mtu(&value),
            _ => {}
        }
    }
    lease.given()
}

/// Parses `/etc/network/interfaces`: `dns-nameservers`, `dns-search` and `dns-domain` of each
/// interface, in order of appearance.
pub fn interfaces(text: &str) -> Vec<(String, Given)> {
    let mut found: Vec<(String, Lease)> = Vec::new();
    let mut current: Option<usize> = None;
    for line in text.lines() {
        let mut parts = line.split_ascii_whitespace();
        let Some(key) = parts.next().filter(|key| !key.starts_with('#')) else {
            continue;
        };
        let rest: Vec<String> = parts.map(str::to_owned).collect();
        match (key, current) {
            ("iface", _) => {
                current = rest.first().map(|name| {
                    let at = found.iter().position(|one| one.0 == *name);
                    at.unwrap_or_else(|| {
                        found.push((name.clone(), Lease::default()));
                        found.len() - 1
                    })
                });
            }
            ("mapping" | "auto" | "source" | "source-directory" | "rename", _) => current = None,
            (_, _) if key.starts_with("allow-") => current = None,
            (_, Some(at)) => {
                let lease = &mut found[at].1;
                match key {
                    "dns-nameservers" | "dns-nameserver" => lease.servers.extend(rest),
                    "dns-search" => lease.searches.extend(rest),
                    "dns-domain" => lease.domain = rest,
                    _ => {}
                }
            }
            _ => {}
        }
    }
    found
        .into_iter()
        .map(|(name, lease)| {
            let mut given = lease.given();
            given.source = Source::Static;
            (name, given)
        })
        .filter(|(_, given)| !given.conf.nameservers.is_empty() || !given.conf.searches.is_empty())
        .collect()
}
