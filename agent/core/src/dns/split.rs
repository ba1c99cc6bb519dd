//! Split DNS: links whose nameservers answer only for some domains, such as a VPN's (`resolvectl
//! domain wg0 ~corp.example`).
//!
//! systemd-resolved sends names below such a route-only domain to the link's nameservers, and all
//! others elsewhere. These nameservers cannot replace the platform's, and the link must keep them.
//! So they are not part of the platform's configuration, and the agent writes no file for the link.
//! The agent's `Domains=~.` does not redirect the names, because the longest matching domain wins
//! (systemd-resolved.service(8), "Protocols and Routing").

use std::net::IpAddr;

use super::{
    effective::stub_only,
    given, ours, resolv,
    resolv::ResolvConf,
    seen::{Link, Manager, Owner, Seen},
};

/// Returns links with nameservers for certain domains, if systemd-resolved or NetworkManager's
/// dnsmasq supports them.
///
/// A link with the default route or with the route-only domain `.` is excluded: its nameservers
/// resolve everything.
pub fn split_links(seen: &Seen) -> impl Iterator<Item = &Link> {
    let file = seen.resolv_conf.text.as_deref().map(resolv::parse);
    let by_resolved = seen.owner == Owner::Resolved;
    let by_dnsmasq = seen.owner == Owner::NetworkManager && file.as_ref().is_some_and(stub_only);
    seen.links.iter().filter(move |link| {
        let honoured = by_resolved || (by_dnsmasq && link.manager == Manager::NetworkManager);
        honoured && is_split(link)
    })
}

fn is_split(link: &Link) -> bool {
    let routed = !link.routes.is_empty() && !link.routes.iter().any(|domain| domain == ".");
    routed && !link.default_route && nameservers(link).next().is_some()
}

/// Nameservers of a link, from any source.
pub fn nameservers(link: &Link) -> impl Iterator<Item = IpAddr> + '_ {
    let given = link.given.iter().flat_map(|given| &given.conf.nameservers);
    given.chain(&link.told.nameservers).copied()
}

/// Removes the nameservers that only split links have: systemd-resolved lists those of all links.
pub(super) fn without_split(seen: &Seen, mut conf: ResolvConf) -> ResolvConf {
    if seen.owner != Owner::Resolved {
        return conf;
    }
    let split: Vec<&Link> = split_links(seen).collect();
    if split.is_empty() {
        return conf;
    }
    let mut others: Vec<IpAddr> = Vec::new();
    for link in &seen.links {
        if !split.iter().any(|one| one.index == link.index) {
            others.extend(nameservers(link));
        }
    }
    let configured = seen
        .files
        .iter()
        .filter(|(path, _)| path.contains("/systemd/resolved.conf"));
    for (_, text) in configured {
        others.extend(given::resolved_conf(text).nameservers);
    }
    let theirs: Vec<IpAddr> = split.iter().flat_map(|link| nameservers(link)).collect();
    let only_split = |one: &IpAddr| theirs.contains(one) && !others.contains(one);
    conf.nameservers.retain(|one| !only_split(one));
    conf.zones.retain(|one, _| !only_split(one));
    conf
}

/// Path of the agent's drop-in for a link managed by networkd.
pub(super) fn drop_in(link: &Link) -> Option<String> {
    let profile = link
        .profile
        .as_deref()
        .filter(|_| link.manager == Manager::Networkd)?;
    ours::networkd_drop_in(profile)
}

#[cfg(test)]
mod tests;
