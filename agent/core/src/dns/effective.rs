//! What is in use now, behind a stub.

use super::{
    ours, resolv,
    resolv::ResolvConf,
    seen::{Owner, Seen},
    split::without_split,
};

/// What programs in the guest resolve by: nameservers and search domains behind systemd-resolved's stub or NetworkManager's dnsmasq, and the options of
/// `/etc/resolv.conf`, which is where the C library reads them. Without the nameservers of links with split DNS, which are asked for their own domains only.
pub fn effective(seen: &Seen) -> ResolvConf {
    let file = seen
        .resolv_conf
        .text
        .as_deref()
        .map(resolv::parse)
        .unwrap_or_default();
    match (seen.owner, &seen.upstreams) {
        (Owner::Resolved, Some(upstreams)) => ResolvConf {
            options: file.options,
            ..without_split(seen, named(seen, resolv::parse(upstreams)))
        },
        (Owner::NetworkManager, _) if stub_only(&file) => behind_network_manager(seen, file),
        _ => file,
    }
}

/// The same with names of interfaces: systemd-resolved writes indexes, which are others after a boot.
pub(super) fn named(seen: &Seen, mut conf: ResolvConf) -> ResolvConf {
    for zone in conf.zones.values_mut() {
        if let Ok(index) = zone.parse::<u32>()
            && let Some(link) = seen.links.iter().find(|link| link.index == index)
        {
            zone.clone_from(&link.name);
        }
    }
    conf
}

/// Whether a file names only addresses of the guest's own loopback.
pub(super) fn stub_only(conf: &ResolvConf) -> bool {
    !conf.nameservers.is_empty() && conf.nameservers.iter().all(std::net::IpAddr::is_loopback)
}

/// NetworkManager forwards from its dnsmasq to what we have told it, else to what was given on its links.
fn behind_network_manager(seen: &Seen, file: ResolvConf) -> ResolvConf {
    let told = seen
        .files
        .get(ours::NETWORK_MANAGER)
        .filter(|text| ours::is_ours(text))
        .and_then(|text| text.lines().find_map(|line| line.strip_prefix("servers=")));
    let mut behind = ResolvConf::default();
    match told {
        Some(servers) => servers.split(',').for_each(|word| behind.add_server(word)),
        None => {
            for given in seen.links.iter().flat_map(|link| &link.given) {
                behind.append(&given.conf);
            }
        }
    }
    if behind.nameservers.is_empty() {
        return file;
    }
    ResolvConf {
        searches: file.searches,
        options: file.options,
        ..behind
    }
}

#[cfg(test)]
mod tests;
