//! Current DNS configuration, including the upstreams of a stub.

pub(super) use super::stub::stub_only;
use super::{
    given, ours, resolv,
    resolv::ResolvConf,
    seen::{Owner, Seen},
    split::without_split,
};

/// Returns the configuration that programs in the guest use: nameservers and search domains behind
/// systemd-resolved's stub or NetworkManager's dnsmasq, and the options in `/etc/resolv.conf`, from
/// which the C library reads them. Nameservers of links with split DNS are left out: they answer
/// only for their own domains.
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

/// Replaces interface indexes with names: systemd-resolved writes indexes, which change at a
/// reboot.
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

/// Returns the configuration in the agent's own file, even if the resolver has not loaded it yet;
/// `None` without such a file. For a plain file that is `/etc/resolv.conf` itself, if the agent
/// replaced it.
pub(super) fn configured(seen: &Seen) -> Option<ResolvConf> {
    let own = |path: &str| seen.files.get(path).filter(|text| ours::is_ours(text));
    match seen.owner {
        Owner::Resolved => own(ours::RESOLVED).map(|text| given::resolved_conf(text)),
        Owner::NetworkManager => {
            let text = own(ours::NETWORK_MANAGER)?;
            let servers = text.lines().find_map(|line| line.strip_prefix("servers="))?;
            let mut conf = ResolvConf::default();
            servers.split(',').for_each(|word| conf.add_server(word));
            Some(conf)
        }
        Owner::File | Owner::Resolvconf if ours::taken_over(&seen.resolv_conf) => {
            seen.resolv_conf.text.as_deref().map(resolv::parse)
        }
        Owner::File | Owner::Resolvconf => None,
    }
}

/// Upstreams of NetworkManager's dnsmasq: those that the agent configured, else those of its links.
fn behind_network_manager(seen: &Seen, file: ResolvConf) -> ResolvConf {
    let behind = configured(seen).unwrap_or_else(|| {
        let mut given = ResolvConf::default();
        for one in seen.links.iter().flat_map(|link| &link.given) {
            given.append(&one.conf);
        }
        given
    });
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
