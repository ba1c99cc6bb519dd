//! State of systemd-networkd below `/run/systemd/netif`, and `.network` files.

use super::{Lease, pairs, words};
use crate::dns::{
    resolv::ResolvConf,
    seen::{Given, Source},
};

/// Parses `/run/systemd/netif/leases/<index>`, a DHCPv4 lease.
pub fn networkd_lease(text: &str) -> Given {
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

/// networkd's state of a link.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkState {
    /// Its `.network` file; `None` if networkd does not manage the link.
    pub network_file: Option<String>,
    /// Nameservers and search domains in effect on the link, from any source.
    pub conf: ResolvConf,
    /// Domains routed to the link's nameservers, without `~`; `.` for all.
    pub route_domains: Vec<String>,
    /// `configured`, `configuring`, `unmanaged`, …
    pub admin_state: String,
    /// `carrier`, `no-carrier`, `off`, …
    pub carrier_state: String,
}

/// Parses `/run/systemd/netif/links/<index>`.
pub fn networkd_link_state(text: &str) -> LinkState {
    let mut state = LinkState::default();
    for (key, value) in pairs(text) {
        match key {
            "NETWORK_FILE" => state.network_file = Some(value).filter(|path| !path.is_empty()),
            "ADMIN_STATE" => state.admin_state = value,
            "CARRIER_STATE" => state.carrier_state = value,
            "DNS" => words(&value).iter().for_each(|word| state.conf.add_server(word)),
            "DOMAINS" => words(&value).iter().for_each(|word| state.conf.add_search(word)),
            "ROUTE_DOMAINS" => {
                let mut routes = ResolvConf::default();
                for word in words(&value) {
                    routes.add_search(word.trim_start_matches('~'));
                }
                state.route_domains = routes.searches;
            }
            _ => {}
        }
    }
    state
}

/// Parses the static configuration in one or several concatenated `.network` files: `DNS=` and
/// `Domains=` of `[Network]`. An empty value clears earlier ones; route-only domains
/// (`~corp.example`) are no search domains. Do not pass drop-ins of the agent, which clear the
/// image's values.
pub fn network_file(text: &str) -> Given {
    let mut conf = ResolvConf::default();
    super::resolved::sections(text, "[Network]", &mut conf);
    Given {
        source: Source::Static,
        conf,
        routes: super::resolved::routes(text, "[Network]"),
        ..Given::default()
    }
}

/// Whether one or several concatenated `.network` files permit the nameservers of a section
/// (`DHCPv4`, `DHCPv6`, `IPv6AcceptRA`; `[DHCP]` is the old name of the first two). Do not pass
/// drop-ins of the agent. Nameservers that an admin disabled this way are not part of the
/// platform's configuration.
pub fn uses_dns(text: &str, section: &str) -> bool {
    let mut uses = true;
    let mut inside = false;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            inside = name == section || (name == "DHCP" && section.starts_with("DHCP"));
        } else if let Some((_, value)) = line
            .split_once('=')
            .filter(|(key, _)| inside && key.trim() == "UseDNS")
        {
            uses = !matches!(value.trim(), "no" | "false" | "0" | "off" | "n" | "f");
        }
    }
    uses
}

/// Whether one or several concatenated `.network` files request a DHCPv4 lease: the last `DHCP=` of
/// `[Network]`.
pub fn asks_dhcp4(text: &str) -> bool {
    let mut inside = false;
    let mut asks = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line == "[Network]";
        } else if let Some((_, value)) = line
            .split_once('=')
            .filter(|(key, _)| inside && key.trim() == "DHCP")
        {
            let yes = ["yes", "true", "1", "on", "y", "t", "ipv4", "both", "v4"];
            asks = yes.contains(&value.trim());
        }
    }
    asks
}
