//! Kubelet's merge of policy, platform and config (`pkg/kubelet/network/dns/dns.go`), and its limits.
//!
//! It differs in three things that kubelet leaves open or that a node cannot have: options are in a stable order (kubelet's is that of a Go map: none); a dot at the end of
//! a search domain of the config is cut off as kubelet does with the platform's; and an empty platform stays empty, where kubelet's `--resolv-conf=""` would
//! put 127.0.0.1.

use serde::{Deserialize, Serialize};

use virtfleet_wire::settings::{DnsOption, DnsPolicy};

use super::{asked::Asked, resolv::ResolvConf};

/// Kubelet's limits with ExpandedDNSConfig (GA in 1.28).
pub mod limits {
    /// Nameservers that a resolver uses (`MAXNS` of resolv.h).
    pub const NAMESERVERS: usize = 3;
    /// Search domains.
    pub const SEARCHES: usize = 32;
    /// Characters of all search domains with the spaces between them.
    pub const SEARCH_CHARACTERS: usize = 2048;
    /// Characters of one search domain.
    pub const SEARCH_LENGTH: usize = 253;
    /// Search domains that KubeVirt's admission lets pass in `spec.dnsConfig` (`vmi-create-admitter.go`).
    pub const KUBEVIRT_SEARCHES: usize = 6;
    /// Characters of them.
    pub const KUBEVIRT_SEARCH_CHARACTERS: usize = 256;
    /// Bytes that DHCP option 119 has room for; beyond it virt-launcher panics (kubevirt #3187, #4541, #12615).
    pub const OPTION_119_BYTES: usize = 255;
}

/// What the merge left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "trimmed")]
pub enum Trimmed {
    /// Nameservers beyond the third.
    Nameservers {
        /// Those.
        values: Vec<String>,
    },
    /// Search domains beyond the 32nd, or beyond 2,048 characters.
    Searches {
        /// Those.
        values: Vec<String>,
    },
    /// A search domain of more than 253 characters.
    LongSearch {
        /// Its first 64 characters.
        value: String,
    },
}

/// Something that is not wrong in the guest, and would bite elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Warning {
    /// `ClusterFirst` without `cluster.nameservers`: `Default` was used, as kubelet does with an event.
    NoClusterDns,
    /// More than 6 search domains, or 256 characters: KubeVirt's admission refuses the same in a VM's `dnsConfig`.
    BeyondKubevirtAdmission,
    /// The search domains would not fit into DHCP option 119.
    BeyondOption119,
}

/// The result.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Merged {
    /// What the resolver should have, were every nameserver good.
    pub conf: ResolvConf,
    /// What was left out of it.
    pub trimmed: Vec<Trimmed>,
    /// What else somebody should know.
    pub warnings: Vec<Warning>,
}

/// Merges what is asked for with what the platform gave.
///
/// 1. The base by policy. `None`: nothing. `Default`: the platform's, options too. `ClusterFirst`: the cluster's nameservers alone, `<namespace>.svc.<domain>`,
///    `svc.<domain>`, `<domain>` and then the platform's search domains, and `ndots:5` as the only option. `ClusterFirst` in the host's network, or without a
///    nameserver of the cluster (with a warning), is `Default`.
/// 2. The config behind it: of duplicates the first stays; an option of the same name is replaced in its place.
/// 3. The limits: the first 3 nameservers; the first 32 search domains; of these none of more than 253 characters; then from the end until all have at most 2,048.
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

/// The bytes of search domains in DHCP option 119 (RFC 3397) without its compression, which KubeVirt's DHCP server does not use: for each label its length and
/// its characters, and a zero behind each name.
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

/// All search domains with the blanks between them.
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
