//! Configuration of systemd-resolved, and per-link settings that other programs made in it.

use super::{add_route, pairs, words};
use crate::dns::{
    resolv::ResolvConf,
    seen::{Given, Source},
};

/// Parses `resolved.conf` or its drop-ins: `DNS=` and `Domains=` of `[Resolve]`. Concatenated files
/// are read like resolved reads them: values add up, an empty one clears earlier ones. Route-only
/// domains are left out, and so is `FallbackDNS=`, which is used only if nothing else is
/// configured.
pub fn resolved_conf(text: &str) -> ResolvConf {
    let mut conf = ResolvConf::default();
    sections(text, "[Resolve]", &mut conf);
    conf
}

/// Parses `/run/systemd/resolve/netif/<index>`: values that NetworkManager or an admin (`resolvectl
/// dns`) set on a link.
pub fn resolved_link(text: &str) -> Given {
    let mut given = Given {
        source: Source::Static,
        ..Given::default()
    };
    for (key, value) in pairs(text) {
        match key {
            "SERVERS" => words(&value).iter().for_each(|word| given.conf.add_server(word)),
            "DOMAINS" => words(&value).iter().for_each(|word| {
                given.conf.add_search(word);
                add_route(&mut given.routes, word);
            }),
            _ => {}
        }
    }
    given
}

/// Returns the route-only domains (`Domains=~corp.example`) of one section, without `~`. An empty
/// value clears earlier ones.
pub(super) fn routes(text: &str, section: &str) -> Vec<String> {
    let mut routes = Vec::new();
    let mut inside = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line == section;
        }
        if let Some((_, value)) = line
            .split_once('=')
            .filter(|(key, _)| inside && key.trim() == "Domains")
        {
            let values = words(value);
            if values.is_empty() {
                routes.clear();
            }
            for word in &values {
                add_route(&mut routes, word);
            }
        }
    }
    routes
}

/// Parses `DNS=` and `Domains=` of one section.
pub(super) fn sections(text: &str, section: &str, conf: &mut ResolvConf) {
    let mut inside = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line == section;
        }
        let Some((key, value)) = line.split_once('=').filter(|_| inside) else {
            continue;
        };
        let values = words(value);
        match key.trim() {
            "DNS" if values.is_empty() => {
                conf.nameservers.clear();
                conf.zones.clear();
            }
            "DNS" => values.iter().for_each(|word| conf.add_server(word)),
            "Domains" if values.is_empty() => conf.searches.clear(),
            // No name contains `~`, so routes are dropped. To resolved, `.` is a route and no
            // search domain.
            "Domains" => values
                .iter()
                .filter(|word| *word != ".")
                .for_each(|word| conf.add_search(word)),
            _ => {}
        }
    }
}
