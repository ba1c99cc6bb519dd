//! `dns`: nameservers and search domains of the guest.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::Span;

/// Default address of NodeLocal DNS (Kubernetes' `nodelocaldns` manifest, which KKP and Gardener
/// use unchanged).
pub const NODE_LOCAL_ADDRESS: &str = "169.254.20.10";

/// DNS of the guest. `policy` and `config` have the meaning of Kubernetes' `dnsPolicy` and
/// `dnsConfig`. The cluster in `ClusterFirst` is the infra cluster, as in the VM's spec: a node
/// never resolves names through the DNS of the user cluster that runs on it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct DnsSettings {
    /// Whether the agent changes DNS, only reports it, or does neither.
    pub manage: DnsManage,
    /// Base of the nameservers and search domains.
    pub policy: DnsPolicy,
    /// Nameservers, search domains and options that are added to those of the policy.
    pub config: DnsConfig,
    /// DNS of the infra cluster, for the policy `ClusterFirst`.
    pub cluster: InfraDns,
    /// Addresses that the user cluster occupies on its nodes. No nameserver of a node may have one
    /// of them.
    pub user_cluster: UserClusterDns,
    /// Probes that verify that nameservers answer.
    pub probe: DnsProbeSettings,
}

/// What the agent may do to the guest's DNS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DnsManage {
    /// Neither probe nor change it. The agent restores what it changed before, except its own file
    /// that kubelet reads: that file stays and is kept up to date.
    Off,
    /// Read, probe and report it. Only `virtfleet-agent apply dns` changes it. The agent also
    /// writes `/var/lib/virtfleet/resolv.conf` if a finding tells the admin to name this file in
    /// kubelet's configuration, and keeps it up to date.
    #[default]
    ReportOnly,
    /// Correct it at boot and on every change.
    Auto,
}

/// Kubernetes' `dnsPolicy`, with kubelet's meaning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DnsPolicy {
    /// The infra cluster's DNS (`cluster`), with its search domains before those of the platform.
    /// Without `cluster.nameservers` the same as `Default`.
    ClusterFirst,
    /// Same as `ClusterFirst`. A pod in the host's network needs this value; a VM does not.
    ClusterFirstWithHostNet,
    /// The DNS of the platform: from DHCP, router advertisements or the image's own network
    /// configuration. In a VM with `dnsPolicy: ClusterFirst` this already is the infra cluster's
    /// DNS.
    #[default]
    Default,
    /// Only `config`, which must then contain a nameserver.
    None,
}

/// Kubernetes' `dnsConfig`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct DnsConfig {
    /// Addresses of nameservers, appended to those of the policy. The guest uses the first three of
    /// the result.
    pub nameservers: Vec<String>,
    /// Search domains, appended to those of the policy. The guest uses the first 32 of the result,
    /// with at most 2,048 characters.
    pub searches: Vec<String>,
    /// Options of resolv.conf(5). An option here replaces the policy's option of the same name.
    pub options: Vec<DnsOption>,
}

/// An option of resolv.conf(5).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct DnsOption {
    /// Name of the option, e.g. `ndots`, `edns0`.
    pub name: String,
    /// Value of the option, e.g. `5`. Absent for an option without a value.
    pub value: Option<String>,
}

/// DNS of the infra cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct InfraDns {
    /// Addresses of its cluster DNS: those of the DNS service, or of its NodeLocal cache if VMs can
    /// reach it.
    pub nameservers: Vec<String>,
    /// Cluster domain.
    pub domain: String,
    /// Namespace of the VM, for the search domains. Default: the namespace that the agent finds in
    /// the guest. If it finds none, the search domains do not contain a namespace.
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

/// Addresses that the user cluster occupies on its nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct UserClusterDns {
    /// Addresses on which its NodeLocal DNS cache listens, or will listen. Set `[]` if it has no
    /// such cache.
    pub node_local: Vec<String>,
    /// Addresses of its cluster DNS, e.g. `10.240.16.10`. The agent reads those in kubelet's
    /// configuration itself.
    pub nameservers: Vec<String>,
    /// Service ranges, e.g. `10.240.16.0/20`. kube-proxy intercepts traffic to these addresses.
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

/// Probes of nameservers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct DnsProbeSettings {
    /// Names that a working nameserver resolves, e.g. `registry.example.com`. Default: none; the
    /// agent then queries no name outside of the cluster's domain.
    pub names: Vec<String>,
    /// Maximum time to wait for an answer.
    pub timeout: Span,
    /// Probe interval of a nameserver while nothing changes; at least one minute.
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
