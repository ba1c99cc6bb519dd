//! `dns`: which nameservers and search domains the guest is to have.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::Span;

/// Where NodeLocal DNS listens unless somebody chose otherwise (Kubernetes' `nodelocaldns`
/// manifest; KKP and Gardener use it as it is).
pub const NODE_LOCAL_ADDRESS: &str = "169.254.20.10";

/// The guest's DNS, with Kubernetes' meaning of policy and config. The cluster of `ClusterFirst` is
/// the infra cluster, as in the VM's spec: a node never resolves through the DNS of the user
/// cluster that it carries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct DnsSettings {
    /// What may be done: look, put right, or neither.
    pub manage: DnsManage,
    /// What the nameservers and search domains start from.
    pub policy: DnsPolicy,
    /// What is added to them.
    pub config: DnsConfig,
    /// The infra cluster's DNS, for the policy `ClusterFirst`.
    pub cluster: InfraDns,
    /// What the user cluster occupies on its nodes, and no nameserver of a node may be.
    pub user_cluster: UserClusterDns,
    /// How nameservers are asked whether they answer.
    pub probe: DnsProbeSettings,
}

/// What may be done to the guest's DNS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DnsManage {
    /// Nothing: neither looked at nor changed. What was changed before is put back; the file of
    /// ours that kubelet reads stays and is kept up to date.
    Off,
    /// Looked at, probed and reported; changed only by `virtfleet-agent apply dns`.
    #[default]
    ReportOnly,
    /// Put right at boot and whenever it changes.
    Auto,
}

/// Kubernetes' `dnsPolicy`, as kubelet means it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DnsPolicy {
    /// The infra cluster's DNS (`cluster`) and its search domains before those of the platform.
    /// Without `cluster.nameservers`: as `Default`.
    ClusterFirst,
    /// As `ClusterFirst`; a pod in the host's network would need it, a VM does not.
    ClusterFirstWithHostNet,
    /// What the platform gives: by DHCP, router advertisement or the image's own network
    /// configuration. In a VM with `dnsPolicy: ClusterFirst` that is the infra cluster's DNS
    /// already.
    #[default]
    Default,
    /// Nothing but `config`, which must name a nameserver.
    None,
}

/// Kubernetes' `dnsConfig`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct DnsConfig {
    /// Addresses, after those of the policy. The first three of all are used.
    pub nameservers: Vec<String>,
    /// Search domains, after those of the policy. The first 32 of all are used, at most 2,048
    /// characters.
    pub searches: Vec<String>,
    /// Options of resolv.conf(5); one that the policy sets too is replaced.
    pub options: Vec<DnsOption>,
}

/// An option of resolv.conf(5).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct DnsOption {
    /// E.g. `ndots`, `edns0`.
    pub name: String,
    /// E.g. `5`; absent for an option without a value.
    pub value: Option<String>,
}

/// The DNS of the infra cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct InfraDns {
    /// Its cluster DNS: the addresses of its DNS service, or of its NodeLocal cache where VMs reach
    /// it.
    pub nameservers: Vec<String>,
    /// Its domain.
    pub domain: String,
    /// The namespace of the VM, for the search domains. Absent: what the agent knows by itself,
    /// else search domains without it.
    pub namespace: Option<String>,
}

impl Default for InfraDns {
    fn default() -> Self {
        Self {
            nameservers: Vec::new(),
            domain: "cluster.local".to_owned(),
            namespace: None,
        }
    }
}

/// What the user cluster occupies on its nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct UserClusterDns {
    /// Where its NodeLocal DNS cache listens, or will: an address or several, or none (`[]`) when
    /// it has no such cache.
    pub node_local: Vec<String>,
    /// Its cluster DNS, e.g. `10.240.16.10`. Those in kubelet's configuration are known without.
    pub nameservers: Vec<String>,
    /// Its service ranges, e.g. `10.240.16.0/20`: kube-proxy takes these addresses for itself.
    pub service_ranges: Vec<String>,
}

impl Default for UserClusterDns {
    fn default() -> Self {
        Self {
            node_local: vec![NODE_LOCAL_ADDRESS.to_owned()],
            nameservers: Vec::new(),
            service_ranges: Vec::new(),
        }
    }
}

/// How nameservers are asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct DnsProbeSettings {
    /// Names that a good nameserver resolves, e.g. `registry.example.com`. None by default: nothing
    /// outside of the cluster's domain is asked for.
    pub names: Vec<String>,
    /// How long one answer may take.
    pub timeout: Span,
    /// How often a nameserver is asked while nothing happens; at least a minute.
    pub interval: Span,
}

impl Default for DnsProbeSettings {
    fn default() -> Self {
        Self {
            names: Vec::new(),
            timeout: Span::seconds(2),
            interval: Span::seconds(60),
        }
    }
}
