//! Kubelet's merge of policy, platform and config (`pkg/kubelet/network/dns/dns.go`), and its
//! limits.
//!
//! Three differences, in points that kubelet leaves open or that a node cannot use:
//! - Options have a stable order; kubelet's is that of a Go map.
//! - A trailing dot of a search domain in the config is removed, as kubelet does for the
//!   platform's.
//! - An empty platform configuration stays empty; kubelet's `--resolv-conf=""` would add 127.0.0.1.

use serde::{Deserialize, Serialize};

use virtfleet_wire::settings::{DnsOption, DnsPolicy};

use super::{asked::Asked, resolv::ResolvConf};

/// Kubelet's limits with ExpandedDNSConfig (GA in 1.28).
pub mod limits {
    /// Maximum number of nameservers that a resolver uses (`MAXNS` of resolv.h).
    pub const NAMESERVERS: usize = 3;
    /// Maximum number of search domains.
    pub const SEARCHES: usize = 32;
    /// Maximum number of characters of all search domains with the spaces between them.
    pub const SEARCH_CHARACTERS: usize = 2048;
    /// Maximum number of characters of one search domain.
    pub const SEARCH_LENGTH: usize = 253;
    /// Maximum number of search domains that KubeVirt's admission allows in `spec.dnsConfig`
    /// (`vmi-create-admitter.go`).
    pub const KUBEVIRT_SEARCHES: usize = 6;
    /// Maximum number of characters of these search domains.
    pub const KUBEVIRT_SEARCH_CHARACTERS: usize = 256;
    /// Maximum size of DHCP option 119 in bytes; beyond it virt-launcher panics (kubevirt #3187,
    /// #4541,
    /// #12615).
    pub const OPTION_119_BYTES: usize = 255;
}

/// Values that the merge left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "trimmed")]
pub enum Trimmed {
    /// Nameservers after the third.
    Nameservers { values: Vec<String> },
    /// Search domains after the 32nd, or beyond 2,048 characters.
    Searches { values: Vec<String> },
    /// A search domain of more than 253 characters.
    LongSearch {
        /// Its first 64 characters.
        value: String,
    },
}

/// Problem that does not affect the guest, but other places.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Warning {
    /// `ClusterFirst` without `cluster.nameservers`: `Default` is used, as kubelet does (with an
    /// event).
    NoClusterDns,
    /// More than 6 search domains, or 256 characters: KubeVirt's admission rejects them in a VM's
    /// `dnsConfig`.
    BeyondKubevirtAdmission,
    /// The search domains do not fit into DHCP option 119.
    BeyondOption119,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Merged {
    /// Requested configuration, before nameservers are excluded.
    pub conf: ResolvConf,
    /// Values that were left out.
    pub trimmed: Vec<Trimmed>,
    pub warnings: Vec<Warning>,
}

/// Merges the requested configuration with the platform's.
///
/// 1. The base by policy. `None`: nothing. `Default`: the platform's, including options.
///    `ClusterFirst`: only the cluster's nameservers; `<namespace>.svc.<domain>`, `svc.<domain>`,
///    `<domain>` and then the platform's search domains; `ndots:5` as the only option.
///    `ClusterFirst` in the host network, or without a nameserver of the cluster (with a warning),
///    is `Default`.
/// 2. The config is appended. The first of equal entries stays; an option replaces one of the same
///    name.
/// 3. The limits: the first 3 nameservers; the first 32 search domains, without those of more than
///    253 characters; then domains are removed from the end until they have at most 2,048
///    characters.
pub fn merge(asked: &Asked, platform: &ResolvConf) -> Merged {
    let mut warnings = Vec::new();
    let mut conf = base(asked, platform, &mut warnings);
    for nameserver in &asked.nameservers {
        conf.add_nameserver(*nameserver, None);
    }
    for search in &asked.searches {
        conf.add_search(search);
    }
    for option in &asked.options {
        let value = option.value.clone().filter(|value| !value.is_empty());
        conf.set_option(DnsOption {
            name: option.name.clone(),
            value,
        });
    }
    let mut trimmed = Vec::new();
    trim_nameservers(&mut conf, &mut trimmed);
    trim_searches(&mut conf.searches, &mut trimmed);
    if asked.searches.len() > limits::KUBEVIRT_SEARCHES
        || joined(&asked.searches) > limits::KUBEVIRT_SEARCH_CHARACTERS
    {
        warnings.push(Warning::BeyondKubevirtAdmission);
    }
    if option_119_bytes(&conf.searches) > limits::OPTION_119_BYTES {
        warnings.push(Warning::BeyondOption119);
    }
    Merged {
        conf,
        trimmed,
        warnings,
    }
}

/// Returns the size of search domains in DHCP option 119 (RFC 3397) without compression, which
/// KubeVirt's DHCP server does not use: per label its length byte and its characters, and a zero
/// after each name.
pub fn option_119_bytes(searches: &[String]) -> usize {
    let bytes = |name: &String| match name.trim_end_matches('.') {
        "" => 1,
        name => name.len() + 2,
    };
    searches.iter().map(bytes).sum()
}

fn base(asked: &Asked, platform: &ResolvConf, warnings: &mut Vec<Warning>) -> ResolvConf {
    let mut conf = ResolvConf::default();
    if asked.cluster_first() {
        for nameserver in &asked.cluster_nameservers {
            conf.add_nameserver(*nameserver, None);
        }
        let domain = asked.cluster_domain.as_str();
        if !domain.is_empty() {
            if let Some(namespace) = &asked.namespace {
                conf.add_search(&format!("{namespace}.svc.{domain}"));
            }
            conf.add_search(&format!("svc.{domain}"));
            conf.add_search(domain);
        }
        for search in &platform.searches {
            conf.add_search(search);
        }
        conf.set_option(DnsOption {
            name: "ndots".to_owned(),
            value: Some("5".to_owned()),
        });
        return conf;
    }
    match asked.policy {
        DnsPolicy::None => return conf,
        DnsPolicy::ClusterFirst if asked.host_network => {}
        DnsPolicy::ClusterFirst | DnsPolicy::ClusterFirstWithHostNet => warnings.push(Warning::NoClusterDns),
        DnsPolicy::Default => {}
    }
    conf.append(platform);
    for option in &platform.options {
        conf.set_option(option.clone());
    }
    conf
}

fn trim_nameservers(conf: &mut ResolvConf, trimmed: &mut Vec<Trimmed>) {
    if conf.nameservers.len() <= limits::NAMESERVERS {
        return;
    }
    let rest = conf.nameservers.split_off(limits::NAMESERVERS);
    let values = rest.iter().map(|one| conf.shown(*one)).collect();
    conf.zones.retain(|one, _| !rest.contains(one));
    trimmed.push(Trimmed::Nameservers { values });
}

/// Characters of all search domains with the spaces between them.
fn joined(searches: &[String]) -> usize {
    let letters: usize = searches.iter().map(String::len).sum();
    letters + searches.len().saturating_sub(1)
}

fn trim_searches(searches: &mut Vec<String>, trimmed: &mut Vec<Trimmed>) {
    let beyond = searches.split_off(searches.len().min(limits::SEARCHES));
    let long = |name: &String| name.len() > limits::SEARCH_LENGTH;
    for name in searches.iter().filter(|name| long(name)) {
        let value = name.chars().take(64).collect();
        trimmed.push(Trimmed::LongSearch { value });
    }
    searches.retain(|name| !long(name));
    let mut values = Vec::new();
    while joined(searches) > limits::SEARCH_CHARACTERS {
        values.extend(searches.pop());
    }
    values.reverse();
    values.extend(beyond);
    if !values.is_empty() {
        trimmed.push(Trimmed::Searches { values });
    }
}

#[cfg(test)]
mod tests;
