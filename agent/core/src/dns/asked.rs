//! Checked settings `dns`, with parsed addresses and ranges.

mod check;

use std::net::IpAddr;

use virtfleet_wire::settings::{DnsManage, DnsOption, DnsPolicy};

pub use check::{Problem, check};

/// Address range, e.g. `10.240.16.0/20`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// First address.
    pub network: IpAddr,
    /// Prefix length in bits.
    pub prefix: u8,
}

impl Range {
    /// Whether the address is in the range. An IPv4-mapped IPv6 address is treated as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.network, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let rest = 32u32.saturating_sub(self.prefix.into());
                u64::from(network.to_bits()) >> rest == u64::from(address.to_bits()) >> rest
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let rest = 128u32.saturating_sub(self.prefix.into());
                let cut = |bits: u128| bits.checked_shr(rest).unwrap_or(0);
                cut(network.to_bits()) == cut(address.to_bits())
            }
            _ => false,
        }
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

/// Valid settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Which changes are allowed.
    pub manage: DnsManage,
    pub policy: DnsPolicy,
    /// Whether the policy applies to something in the host network, for which kubelet turns
    /// `ClusterFirst` into `Default`. Always false for the guest of a VM.
    pub host_network: bool,
    /// `config.nameservers`.
    pub nameservers: Vec<IpAddr>,
    /// `config.searches`, unchanged.
    pub searches: Vec<String>,
    /// `config.options`.
    pub options: Vec<DnsOption>,
    /// `cluster.nameservers`.
    pub cluster_nameservers: Vec<IpAddr>,
    /// `cluster.domain` without a trailing dot; may be empty.
    pub cluster_domain: String,
    /// `cluster.namespace`, or the namespace that the agent detected.
    pub namespace: Option<String>,
    /// `userCluster.nodeLocal`.
    pub node_local: Vec<IpAddr>,
    /// `userCluster.nameservers`.
    pub user_nameservers: Vec<IpAddr>,
    /// `userCluster.serviceRanges`.
    pub service_ranges: Vec<Range>,
    /// `probe.names`.
    pub probe_names: Vec<String>,
    /// `probe.timeout`, in milliseconds.
    pub probe_timeout_ms: u64,
    /// `probe.interval`, in milliseconds; at least 60,000.
    pub probe_interval_ms: u64,
}

impl Asked {
    /// Whether the infra cluster's DNS comes first, by kubelet's rule; false if it has no known
    /// nameserver.
    pub fn cluster_first(&self) -> bool {
        let policy = match self.policy {
            DnsPolicy::ClusterFirst => !self.host_network,
            DnsPolicy::ClusterFirstWithHostNet => true,
            DnsPolicy::Default | DnsPolicy::None => false,
        };
        policy && !self.cluster_nameservers.is_empty()
    }
}
