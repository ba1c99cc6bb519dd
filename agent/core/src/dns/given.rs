//! DNS configuration from the platform, as stored by the programs that received it. One parser per
//! format; the caller knows file and link.
//!
//! Parsers never fail: missing values are left out, and invalid addresses and names are dropped.

mod dhclient;
mod network_manager;
mod networkd;
mod packet;
mod records;
mod resolved;

pub use dhclient::dhclient_leases;
pub use network_manager::{Device, nm_device, nm_lease, nmcli_devices};
pub use networkd::{LinkState, asks_dhcp4, network_file, networkd_lease, networkd_link_state, uses_dns};
pub use packet::dhcp_packet;
pub use records::{dhcpcd, dhcpcd_variables, interfaces, resolvconf_record};
pub use resolved::{resolved_conf, resolved_link};

use super::{
    names,
    seen::{Given, Source},
};

/// Adds a route-only domain in systemd's notation (`~corp.example`), without `~`. Ignores other
/// words.
fn add_route(routes: &mut Vec<String>, word: &str) {
    let domain = word.strip_prefix('~').and_then(names::given_search);
    if let Some(domain) = domain.filter(|domain| !routes.iter().any(|one| one == domain)) {
        routes.push(domain.to_owned());
    }
}

/// Iterates over `KEY=value` lines of systemd's state files and leases: values may be quoted,
/// comments begin with `#` or `;`.
fn pairs(text: &str) -> impl Iterator<Item = (&str, String)> {
    text.lines().filter_map(|line| {
        let line = line.trim();
        if line.starts_with(['#', ';']) {
            return None;
        }
        let (key, value) = line.split_once('=')?;
        Some((key.trim(), unquote(value.trim())))
    })
}

/// Removes quotes, and backslash escapes within double quotes.
fn unquote(value: &str) -> String {
    if let Some(inner) = value.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
        return inner.to_owned();
    }
    let Some(inner) = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return value.to_owned();
    };
    let mut plain = String::with_capacity(inner.len());
    let mut letters = inner.chars();
    while let Some(letter) = letters.next() {
        plain.push(if letter == '\\' {
            letters.next().unwrap_or('\\')
        } else {
            letter
        });
    }
    plain
}

/// Content of a DHCP lease. Like dhclient's script, it uses the search list (option 119) if there
/// is one, otherwise the domain (option 15).
#[derive(Default)]
struct Lease {
    servers: Vec<String>,
    searches: Vec<String>,
    domain: Vec<String>,
    mtu: Option<u32>,
}

impl Lease {
    fn given(&self) -> Given {
        let mut given = Given {
            source: Source::Dhcp,
            mtu: self.mtu,
            search_list: !self.searches.is_empty(),
            ..Given::default()
        };
        for word in &self.servers {
            given.conf.add_server(word);
        }
        let searches = if self.searches.is_empty() {
            &self.domain
        } else {
            &self.searches
        };
        for word in searches {
            given.conf.add_search(word);
        }
        given
    }

    /// Sets a valid MTU (RFC 2132, 5.1: at least 68).
    fn set_mtu(&mut self, word: &str) {
        self.mtu = word.parse().ok().filter(|mtu| (68..=65_535).contains(mtu));
    }
}

fn words(value: &str) -> Vec<String> {
    value
        .split(|c: char| c.is_ascii_whitespace() || c == ',')
        .filter(|word| !word.is_empty())
        .map(unquote)
        .collect()
}

#[cfg(test)]
mod tests;
