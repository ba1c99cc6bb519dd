//! Network links, their managers, and which have a default route.

use std::net::IpAddr;

use virtfleet_agent_core::dns::{
    ResolvConf,
    given::{LinkState, networkd_link_state, nm_device},
    seen::{Link, Manager},
};

use super::{
    MAX_FILE_BYTES,
    given::{Sources, of_resolved},
    processes::Processes,
};
use crate::{Commands, Roots, list, read_text};

/// Maximum number of links. A Kubernetes node has hundreds of pod links.
pub(super) const MAX_LINKS: usize = 4096;

/// Links of the guest itself in the order of their index: with a device, of a kind that is
/// configured deliberately, with a default route, or with DNS settings. Other links belong to
/// containers.
pub(super) fn links(roots: &Roots, commands: &dyn Commands, processes: &Processes) -> Vec<Link> {
    let routed = routed(roots);
    let sources = Sources::of(roots, commands, processes);
    let mut links = Vec::new();
    for name in list(&roots.sys("class/net"))
        .unwrap_or_default()
        .into_iter()
        .take(MAX_LINKS)
    {
        let place = roots.sys("class/net").join(&name);
        let read = |file: &str| read_text(&place.join(file), 4096).unwrap_or_default();
        let Some(index) = read("ifindex").trim().parse().ok().filter(|_| name != "lo") else {
            continue;
        };
        let mut link = Link {
            default_route: routed.contains(&name),
            index,
            name,
            ..Link::default()
        };
        link.routes = manager(roots, &mut link);
        link.given = sources.given(roots, &link);
        routes(roots, &mut link);
        link.given
            .iter_mut()
            .for_each(|given| by_link(&mut given.conf, &link.name));
        by_link(&mut link.told, &link.name);
        let kind = read("uevent");
        let meant = ["vlan", "bond", "wlan"].iter().any(|word| {
            kind.lines()
                .any(|line| line.strip_prefix("DEVTYPE=") == Some(word))
        });
        let device = place.join("device").exists();
        if device || meant || link.default_route || !link.given.is_empty() {
            links.push(link);
        }
    }
    links.sort_by_key(|link| link.index);
    links
}

/// Adds the route-only domains that are configured or set in systemd-resolved at run time.
fn routes(roots: &Roots, link: &mut Link) {
    let runtime_routes = of_resolved(roots, link)
        .map(|given| given.routes)
        .unwrap_or_default();
    for domain in link
        .given
        .iter()
        .flat_map(|given| &given.routes)
        .chain(&runtime_routes)
    {
        if !link.routes.contains(domain) {
            link.routes.push(domain.clone());
        }
    }
}

/// networkd and NetworkManager have a file for each link that they manage. Returns the route-only
/// domains that networkd has for it.
fn manager(roots: &Roots, link: &mut Link) -> Vec<String> {
    let state = networkd(roots, link.index);
    let routes = state.route_domains.clone();
    link.told = state.conf;
    if let Some(profile) = state.network_file.filter(|_| state.admin_state != "unmanaged") {
        link.manager = Manager::Networkd;
        link.profile = Some(profile);
        return routes;
    }
    let path = format!("/run/NetworkManager/devices/{}", link.index);
    let device = nm_device(&read_text(&roots.root(path), MAX_FILE_BYTES).unwrap_or_default());
    if device.managed != Some(false) && device.connection.is_some() {
        link.manager = Manager::NetworkManager;
        link.profile = device.connection;
    }
    routes
}

/// A link-local nameserver is reached over its own link; leases and networkd's files omit the zone.
fn by_link(conf: &mut ResolvConf, name: &str) {
    for nameserver in &conf.nameservers {
        if matches!(nameserver, IpAddr::V6(ip) if ip.is_unicast_link_local()) {
            conf.zones.entry(*nameserver).or_insert_with(|| name.to_owned());
        }
    }
}

/// What networkd passes to systemd-resolved for all links.
pub(super) fn announced_by_networkd(roots: &Roots) -> ResolvConf {
    let mut all = ResolvConf::default();
    for name in list(&roots.root("/run/systemd/netif/links"))
        .unwrap_or_default()
        .iter()
        .take(MAX_LINKS)
    {
        if let Ok(index) = name.parse() {
            all.append(&networkd(roots, index).conf);
        }
    }
    all
}

/// networkd's state of a link; empty if it has no file for it.
pub(super) fn networkd(roots: &Roots, index: u32) -> LinkState {
    let path = format!("/run/systemd/netif/links/{index}");
    networkd_link_state(&read_text(&roots.root(path), MAX_FILE_BYTES).unwrap_or_default())
}

/// The interfaces of default routes. `net/route`: interface, destination, …, mask (8th field),
/// hexadecimal. `net/ipv6_route`: destination, prefix length, …, interface (10th field); the entry
/// of `lo` is a reject route.
fn routed(roots: &Roots) -> Vec<String> {
    let text = |name: &str| read_text(&roots.proc(name), 4 << 20).unwrap_or_default();
    let mut found = Vec::new();
    for line in text("net/route").lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if let [name, "00000000", _, _, _, _, _, "00000000", ..] = fields[..] {
            found.push(name.to_owned());
        }
    }
    for line in text("net/ipv6_route").lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if let [destination, "00", _, _, _, _, _, _, _, name] = fields[..]
            && destination.bytes().all(|byte| byte == b'0')
            && name != "lo"
        {
            found.push(name.to_owned());
        }
    }
    found
}
