//! Validation of the settings `dns`, beyond what their types check.

use std::net::IpAddr;

use virtfleet_wire::settings::{DnsOption, DnsPolicy, DnsSettings};

use super::{Asked, Range};
use crate::dns::names;

/// Minimum of `dns.probe.interval` in milliseconds: it bounds the load from ten thousand VMs.
const MIN_INTERVAL_MS: u64 = 60_000;
/// Maximum of `dns.probe.timeout` in milliseconds: it bounds the duration of a run.
const MAX_TIMEOUT_MS: u64 = 10_000;
/// Maximum number of `dns.probe.names`: each is one more query per nameserver.
const MAX_PROBE_NAMES: usize = 8;

/// Invalid setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Key, e.g. `dns.config.nameservers[1]`.
    pub path: String,
    /// What is wrong, and which values are valid.
    pub message: String,
}

/// Validates the settings and parses addresses and ranges. `namespace` is the detected one; the
/// settings override it.
///
/// Stricter than Kubernetes for addresses that can never work (`0.0.0.0`, multicast, link-local
/// IPv6 without interface) and for characters that could break a configuration file. More than
/// three nameservers are allowed, since the merge trims them like kubelet.
///
/// # Errors
///
/// All problems, if any setting is invalid.
pub fn check(settings: &DnsSettings, namespace: Option<&str>) -> Result<Asked, Vec<Problem>> {
    let mut check = Check::default();
    let config = &settings.config;
    let cluster = &settings.cluster;
    let user = &settings.user_cluster;
    let asked = Asked {
        manage: settings.manage,
        policy: settings.policy,
        host_network: false,
        nameservers: check.addresses("dns.config.nameservers", &config.nameservers),
        searches: check.searches(&config.searches),
        options: check.options(&config.options),
        cluster_nameservers: check.addresses("dns.cluster.nameservers", &cluster.nameservers),
        cluster_domain: check.domain(&cluster.domain),
        namespace: check.namespace(cluster.namespace.as_deref(), namespace),
        node_local: check.addresses("dns.userCluster.nodeLocal", &user.node_local),
        user_nameservers: check.addresses("dns.userCluster.nameservers", &user.nameservers),
        service_ranges: check.ranges(&user.service_ranges),
        probe_names: check.probe_names(&settings.probe.names),
        probe_timeout_ms: check.timeout(settings.probe.timeout.0.as_millis()),
        probe_interval_ms: check.interval(settings.probe.interval.0.as_millis()),
    };
    if settings.policy == DnsPolicy::None && config.nameservers.is_empty() {
        check.refuse(
            "dns.config.nameservers",
            "must name at least one, because dns.policy is None",
        );
    }
    if check.problems.is_empty() {
        Ok(asked)
    } else {
        Err(check.problems)
    }
}

#[derive(Default)]
struct Check {
    problems: Vec<Problem>,
}

impl Check {
    fn refuse(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.problems.push(Problem {
            path: path.into(),
            message: message.into(),
        });
    }

    fn addresses(&mut self, path: &str, words: &[String]) -> Vec<IpAddr> {
        let mut good = Vec::new();
        for (index, word) in words.iter().enumerate() {
            match address(word) {
                Ok(address) => good.push(address),
                Err(message) => self.refuse(format!("{path}[{index}]"), message),
            }
        }
        good
    }

    fn searches(&mut self, words: &[String]) -> Vec<String> {
        for (index, word) in words.iter().enumerate() {
            // `.` makes the resolver try names unchanged first; Kubernetes allows it.
            if word != "." {
                self.name(&format!("dns.config.searches[{index}]"), word);
            }
        }
        words.to_vec()
    }

    fn name(&mut self, path: &str, name: &str) {
        if let Some(objection) = names::objection(name) {
            self.refuse(path, format!("{name:?} {objection}"));
        }
    }

    fn options(&mut self, options: &[DnsOption]) -> Vec<DnsOption> {
        for (index, option) in options.iter().enumerate() {
            let path = format!("dns.config.options[{index}]");
            if !names::option_word(&option.name) {
                let message = format!(
                    "{:?} is not a valid option name such as ndots or edns0",
                    option.name
                );
                self.refuse(format!("{path}.name"), message);
            }
            if let Some(value) = option.value.as_deref()
                && !value.is_empty()
                && !names::option_word(value)
            {
                let message =
                    format!("{value:?} is not a valid option value: use letters, digits, -, _ and .");
                self.refuse(format!("{path}.value"), message);
            }
        }
        options.to_vec()
    }

    fn domain(&mut self, domain: &str) -> String {
        if !domain.is_empty() {
            self.name("dns.cluster.domain", domain);
        }
        domain.strip_suffix('.').unwrap_or(domain).to_owned()
    }

    /// Checks the namespace, which must be one label. An invalid detected one is ignored, since it
    /// is not in the settings.
    fn namespace(&mut self, declared: Option<&str>, known: Option<&str>) -> Option<String> {
        let is_label = |name: &str| names::objection(name).is_none() && !name.contains('.');
        if let Some(name) = declared {
            if !is_label(name) {
                let message = format!("{name:?} is not a valid namespace: use letters, digits and -");
                self.refuse("dns.cluster.namespace", message);
            }
            return Some(name.to_owned());
        }
        known.filter(|name| is_label(name)).map(str::to_owned)
    }

    fn ranges(&mut self, words: &[String]) -> Vec<Range> {
        let mut good = Vec::new();
        for (index, word) in words.iter().enumerate() {
            match range(word) {
                Ok(range) => good.push(range),
                Err(message) => self.refuse(format!("dns.userCluster.serviceRanges[{index}]"), message),
            }
        }
        good
    }

    fn probe_names(&mut self, words: &[String]) -> Vec<String> {
        for (index, word) in words.iter().enumerate() {
            self.name(&format!("dns.probe.names[{index}]"), word);
        }
        if words.len() > MAX_PROBE_NAMES {
            let message = format!("has {} names; at most {MAX_PROBE_NAMES} are allowed", words.len());
            self.refuse("dns.probe.names", message);
        }
        words
            .iter()
            .map(|word| word.strip_suffix('.').unwrap_or(word).to_owned())
            .collect()
    }

    fn timeout(&mut self, ms: u128) -> u64 {
        let ms = u64::try_from(ms).unwrap_or(u64::MAX);
        if ms == 0 || ms > MAX_TIMEOUT_MS {
            let message = format!("must be more than 0 and at most {}s", MAX_TIMEOUT_MS / 1000);
            self.refuse("dns.probe.timeout", message);
        }
        ms
    }

    fn interval(&mut self, ms: u128) -> u64 {
        let ms = u64::try_from(ms).unwrap_or(u64::MAX);
        if ms < MIN_INTERVAL_MS {
            self.refuse("dns.probe.interval", "must be at least 1m");
        }
        ms
    }
}

fn address(word: &str) -> Result<IpAddr, String> {
    if word.contains('%') {
        return Err(format!(
            "{word:?} names an interface; a nameserver in the settings must have an address without one"
        ));
    }
    let address: IpAddr = word
        .parse()
        .map_err(|_| format!("{word:?} is not an address such as 10.96.0.10 or fd00:10:96::a"))?;
    let address = address.to_canonical();
    let why = match address {
        _ if address.is_unspecified() => Some("is the unspecified address"),
        _ if address.is_multicast() => Some("is a multicast address"),
        IpAddr::V4(v4) if v4.is_broadcast() => Some("is the broadcast address"),
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            Some("is a link-local address, which is reachable only through a certain interface")
        }
        _ => None,
    };
    why.map_or(Ok(address), |why| Err(format!("{word} {why}")))
}

fn range(word: &str) -> Result<Range, String> {
    let refuse = || format!("{word:?} is not a range such as 10.96.0.0/12 or fd00:10:96::/112");
    let (network, prefix) = word.split_once('/').ok_or_else(refuse)?;
    let network: IpAddr = network.parse().map_err(|_| refuse())?;
    let prefix: u8 = prefix.parse().map_err(|_| refuse())?;
    let (network, prefix) = match (network, network.to_canonical()) {
        (IpAddr::V6(_), IpAddr::V4(v4)) => (IpAddr::V4(v4), prefix.checked_sub(96).ok_or_else(refuse)?),
        (_, same) => (same, prefix),
    };
    let most = if network.is_ipv4() { 32 } else { 128 };
    if prefix > most {
        return Err(refuse());
    }
    if prefix == 0 {
        return Err(format!(
            "{word} contains every address; no nameserver would remain"
        ));
    }
    let network = match network {
        IpAddr::V4(v4) => IpAddr::V4((v4.to_bits() & (u32::MAX << (32 - prefix))).into()),
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() & (u128::MAX << (128 - prefix))).into()),
    };
    Ok(Range { network, prefix })
}

#[cfg(test)]
mod tests;
