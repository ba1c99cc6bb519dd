//! DNS configuration from the platform, without the agent's own, so that it is equal before and
//! after a run.

use std::net::IpAddr;

use super::{
    effective::named,
    given, ours, resolv,
    resolv::ResolvConf,
    seen::{File, Owner, Seen, Source},
    split::{split_links, without_split},
};

/// Returns the base of the policy `Default`, and the origin of each nameserver.
///
/// In this order:
/// 1. systemd-resolved's configuration by others (`resolved.conf` and its drop-ins), then that of
///    the links, those with the default route first.
/// 2. For a plain file: `/etc/resolv.conf` by others, or the original before the agent replaced it.
///    Its nameservers are used if no link has any, and so are its search domains.
/// 3. Otherwise what systemd-resolved (from networkd, so never its own fallback) or NetworkManager
///    uses besides, while nothing of it is the agent's; later, the part of it that the agent's file
///    keeps.
///
/// Links with split DNS are left out: their nameservers answer only for their own domains
/// ([`super::split`]).
///
/// Options come only from a plain file by others: a stub's options are not the platform's.
pub fn inherited(seen: &Seen) -> (ResolvConf, Vec<(IpAddr, String)>) {
    let mut base = Base::default();
    if seen.owner == Owner::Resolved {
        base.add(&operators(seen), "systemd-resolved's configuration");
    }
    let mut links: Vec<_> = seen.links.iter().collect();
    links.retain(|link| !split_links(seen).any(|one| one.index == link.index));
    links.sort_by_key(|link| (!link.default_route, link.index));
    for link in links {
        for given in &link.given {
            let what = match given.source {
                Source::Dhcp => "the DHCP lease",
                Source::Advertised => "the router advertisement",
                Source::Static => "the configuration",
                Source::File => "the file",
            };
            base.add(&given.conf, &format!("{what} of {} ({})", link.name, given.path));
        }
    }
    if matches!(seen.owner, Owner::File | Owner::Resolvconf) {
        let file = platform_file(seen).map(resolv::parse).unwrap_or_default();
        if base.conf.nameservers.is_empty() {
            base.add(&file, ours::RESOLV_CONF);
        }
        if base.conf.searches.is_empty() {
            base.conf.searches.clone_from(&file.searches);
        }
        base.conf.options = file.options;
    } else if let Some(rest) = unattributed(seen) {
        base.add(&rest, &format!("the values given to {}", seen.owner.name()));
    }
    (base.conf, base.origins)
}

/// Returns the values that a file of the agent must keep because no other file has them: those in
/// use that neither a link nor a configuration explains, such as from networkd's router
/// advertisements or DHCPv6.
pub(super) fn to_be_kept(seen: &Seen) -> Option<ResolvConf> {
    let mut without = seen.clone();
    without.upstreams = None;
    without.resolv_conf = File::default();
    without.files.remove(ours::RESOLVED);
    without.files.remove(ours::NETWORK_MANAGER);
    let explained = inherited(&without).0;
    let mut kept = unattributed(seen)?;
    kept.nameservers
        .retain(|one| !explained.nameservers.contains(one));
    kept.searches.retain(|one| !explained.searches.contains(one));
    Some(kept).filter(|kept| !kept.nameservers.is_empty() || !kept.searches.is_empty())
}

/// Returns the values of unknown origin that systemd-resolved or NetworkManager uses: the current
/// ones while nothing of them is the agent's, otherwise those kept in the agent's file.
fn unattributed(seen: &Seen) -> Option<ResolvConf> {
    let (path, text) = match seen.owner {
        Owner::Resolved => (ours::RESOLVED, &seen.upstreams),
        Owner::NetworkManager => (ours::NETWORK_MANAGER, &seen.resolv_conf.text),
        Owner::File | Owner::Resolvconf => return None,
    };
    let Some(mine) = seen.files.get(path).filter(|text| ours::is_ours(text)) else {
        let mut conf = text
            .as_deref()
            .filter(|text| !ours::is_ours(text))
            .map(|text| without_split(seen, named(seen, resolv::parse(text))))?;
        conf.options.clear();
        conf.searches.retain(|one| one != ".");
        if seen.owner == Owner::Resolved {
            // The rest is its compiled-in fallback.
            conf.nameservers.retain(|one| seen.told.nameservers.contains(one));
            conf.zones.retain(|one, _| seen.told.nameservers.contains(one));
            conf.searches.retain(|one| seen.told.searches.contains(one));
        }
        if seen.owner == Owner::NetworkManager {
            // The loopback address is that of its own dnsmasq.
            conf.nameservers.retain(|one| !one.is_loopback());
        }
        return Some(conf);
    };
    read(mine)
}

/// Returns the platform's values that the agent's file for systemd-resolved keeps.
pub(super) fn kept(seen: &Seen) -> Option<ResolvConf> {
    let mine = seen
        .files
        .get(ours::RESOLVED)
        .filter(|text| ours::is_ours(text))?;
    read(mine).filter(|_| seen.owner == Owner::Resolved)
}

fn read(mine: &str) -> Option<ResolvConf> {
    let kept = mine.lines().find_map(|line| line.strip_prefix(ours::PLATFORM))?;
    let mut conf = ResolvConf::default();
    let (servers, searches) = kept.split_once(';').unwrap_or((kept, ""));
    servers
        .split_ascii_whitespace()
        .for_each(|word| conf.add_server(word));
    searches
        .split_ascii_whitespace()
        .for_each(|word| conf.add_search(word));
    Some(conf)
}

/// Returns `/etc/resolv.conf` as others wrote it.
fn platform_file(seen: &Seen) -> Option<&str> {
    let file = match &seen.original {
        Some(original) if ours::taken_over(&seen.resolv_conf) => original,
        _ => &seen.resolv_conf,
    };
    file.text.as_deref().filter(|text| !ours::is_ours(text))
}

/// Returns systemd-resolved's configuration by others: `resolved.conf`, then the drop-ins by name.
fn operators(seen: &Seen) -> ResolvConf {
    let mut texts: Vec<(&str, &str)> = Vec::new();
    for (path, text) in &seen.files {
        let place = if path.ends_with("/systemd/resolved.conf") {
            Some("")
        } else if path.contains("/systemd/resolved.conf.d/") {
            path.rsplit('/').next()
        } else {
            None
        };
        texts.extend(
            place
                .filter(|_| !ours::is_ours(text))
                .map(|place| (place, text.as_str())),
        );
    }
    texts.sort_unstable();
    let all: Vec<&str> = texts.iter().map(|(_, text)| *text).collect();
    given::resolved_conf(&all.join("\n"))
}

#[derive(Default)]
struct Base {
    conf: ResolvConf,
    origins: Vec<(IpAddr, String)>,
}

impl Base {
    fn add(&mut self, conf: &ResolvConf, from: &str) {
        for nameserver in &conf.nameservers {
            if !self.conf.nameservers.contains(nameserver) {
                self.origins.push((*nameserver, from.to_owned()));
            }
        }
        self.conf.append(conf);
    }
}

#[cfg(test)]
mod tests;
