//! Links from which addresses or nameservers may still come.

use virtfleet_agent_core::dns::seen::{Link, Local};

use super::{
    given::waits_for_lease,
    links::{MAX_LINKS, networkd},
    processes::Processes,
};
use crate::{Roots, list, read_text};

/// Links that are up and still being configured. networkd reports this itself. NetworkManager and a
/// running DHCP client are still at work while the link has no address. If no nameserver is known,
/// networkd also counts as unsettled while it waits for a DHCPv4 lease. A link without a carrier or
/// without a manager is settled.
pub(super) fn unsettled(
    roots: &Roots,
    processes: &Processes,
    links: &[Link],
    locals: &[Local],
) -> Vec<String> {
    let clients: Vec<&[String]> = processes.args("dhclient").collect();
    let any_client = processes.runs("NetworkManager") || processes.runs("dhcpcd");
    let networkd_runs = processes.runs("systemd-networkd");
    let known = links.iter().any(|link| {
        let given = link.given.iter().any(|given| !given.conf.nameservers.is_empty());
        given || !link.told.nameservers.is_empty()
    });
    let under_way = |link: &&Link| {
        if has_no_carrier(roots, &link.name) {
            return false;
        }
        match networkd(roots, link.index).admin_state.as_str() {
            // networkd reports this as soon as one of DHCPv4, DHCPv6 and router advertisements is
            // done.
            "configured" => return !known && waits_for_lease(roots, link),
            "failed" => return false,
            "unmanaged" | "linger" => {}
            // Also before networkd has written its file for the link.
            _ if networkd_runs => return true,
            _ => {}
        }
        let asked_for = any_client
            || clients
                .iter()
                .any(|args| args.len() < 2 || args.contains(&link.name));
        let addressed = locals
            .iter()
            .any(|local| local.interface == link.name && local.is_routable());
        asked_for && !addressed
    };
    let mut names: Vec<String> = links
        .iter()
        .filter(under_way)
        .map(|link| link.name.clone())
        .collect();
    if networkd_runs {
        names.extend(of_other_links(roots, links));
    }
    names
}

/// Links that networkd is configuring and that are not among `links` yet: a bridge over the guest's
/// interface, or the veth of a container, is recognised by its default route or its lease only,
/// which come later. Links of pods are `unmanaged`.
fn of_other_links(roots: &Roots, links: &[Link]) -> Vec<String> {
    let place = roots.sys("class/net");
    let mut names = list(&place).unwrap_or_default();
    names.truncate(MAX_LINKS);
    names.retain(|name| {
        let index = || {
            let text = read_text(&place.join(name).join("ifindex"), 64).ok()?;
            text.trim().parse().ok()
        };
        name != "lo"
            && !links.iter().any(|link| link.name == *name)
            && index().is_some_and(|index| {
                let state = networkd(roots, index).admin_state;
                matches!(state.as_str(), "pending" | "initialized" | "configuring")
            })
            && !has_no_carrier(roots, name)
    });
    names
}

/// Whether the link is up and has no carrier. The file of a link that is down cannot be read.
fn has_no_carrier(roots: &Roots, name: &str) -> bool {
    let carrier = read_text(&roots.sys("class/net").join(name).join("carrier"), 16);
    carrier.is_ok_and(|text| text.trim() == "0")
}
