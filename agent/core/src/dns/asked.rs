//! The settings `dns`, checked: every address and range parsed.

mod check;

use std::net::IpAddr;

use virtfleet_wire::settings::{DnsManage, DnsOption, DnsPolicy};

pub use check::{Problem, check};

/// A range of addresses, e.g. `10.240.16.0/20`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Its first address.
    pub network: IpAddr,
    /// The bits that its addresses share.
    pub prefix: u8,
}

impl Range {
    /// Whether the address lies in it. IPv4 in IPv6 is IPv4.
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

/// What is asked for, when the settings make sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// What may be done.
    pub manage: DnsManage,
    /// The policy.
    pub policy: DnsPolicy,
    /// Whether the policy is that of something in the host's network: kubelet turns `ClusterFirst` into `Default` then. Never so for a VM's guest.
    pub host_network: bool,
    /// `config.nameservers`.
    pub nameservers: Vec<IpAddr>,
    /// `config.searches`, as they were written.
    pub searches: Vec<String>,
    /// `config.options`.
    pub options: Vec<DnsOption>,
    /// `cluster.nameservers`.
    pub cluster_nameservers: Vec<IpAddr>,
    /// `cluster.domain`, without a dot at the end; empty for none.
    pub cluster_domain: String,
    /// `cluster.namespace`, or what the agent knows of itself.
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
    /// Whether the infra cluster's DNS comes first, as kubelet decides it; false also when no address of it is known.
    pub fn cluster_first(&self) -> bool {
        let policy = match self.policy {
            DnsPolicy::ClusterFirst => !self.host_network,
            DnsPolicy::ClusterFirstWithHostNet => true,
            DnsPolicy::Default | DnsPolicy::None => false,
        };
        policy && !self.cluster_nameservers.is_empty()
    }
}
