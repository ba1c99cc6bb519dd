//! Settings that apply only to live clusters.

use super::service_networks::with_service;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_collector_core::dial::DialRules;
use virtfleet_wire::settings::Span;

/// The API server of the infra cluster as the inventory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ClusterInventory {
    /// A kubeconfig file. Absent: the service account of the pod.
    pub kubeconfig: Option<String>,
    /// A context of that kubeconfig. Absent: its current context.
    pub context: Option<String>,
    /// Namespaces whose VMs, VMIs and migrations are watched, each with its own watch, so that a
    /// Role in each is enough. Empty: all namespaces with one watch.
    pub namespaces: Vec<String>,
    /// API servers of user clusters: allowed networks and limits.
    pub user_clusters: UserClusterSettings,
    /// Time between two reads of each ClusterSource. Absent: 15 s.
    pub source_interval: Option<Span>,
}

/// API servers of user clusters: allowed networks and limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct UserClusterSettings {
    /// Networks in which API servers of user clusters may be; by default every network. Loopback,
    /// link-local, multicast and service addresses (`scrape.serviceCIDRs`) are allowed only if an
    /// entry lies wholly inside their range: add the service range if hosted control planes are
    /// Services of the infra cluster. The infra API server itself is never allowed.
    #[serde(rename = "allowCIDRs")]
    #[schemars(with = "Vec<String>")]
    pub allow_cidrs: Vec<IpNet>,
    /// Maximum number of Nodes of one user cluster. A cluster with more Nodes, or with Nodes of
    /// more than 8 KiB on average, is Failed.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_nodes: u32,
}

/// Every IPv4 and IPv6 address.
pub(super) fn every_network() -> Vec<IpNet> {
    vec![
        IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0)),
        IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 0)),
    ]
}

impl Default for UserClusterSettings {
    fn default() -> Self {
        Self {
            allow_cidrs: every_network(),
            // Kubernetes' own limit
            // (https://kubernetes.io/docs/setup/best-practices/cluster-large/).
            max_nodes: 5000,
        }
    }
}

impl UserClusterSettings {
    /// Rules for connecting to user clusters; `service` are the infra cluster's service networks in
    /// the settings.
    pub fn dial_rules(&self, service: Option<&[IpNet]>) -> DialRules {
        // The kubeconfig has the port.
        with_service(self.allow_cidrs.clone(), service, 0)
    }
}

/// How the collector writes labels to user clusters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LabelSettings {
    /// Whether the collector writes labels; the plans are shown either way.
    pub write: bool,
    /// Maximum requests per second to one user cluster.
    #[schemars(range(min = 1, max = 1000))]
    pub requests_per_second: u32,
    /// Maximum concurrent requests to one user cluster.
    #[schemars(range(min = 1, max = 64))]
    pub parallel: u32,
    /// Interval between two plans of a Node whose labels could not follow safely.
    pub recheck: Span,
    /// Time for which an infra node must have lost a label before the label is removed from Nodes.
    /// Otherwise a flapping label would rewrite the Nodes of every tenant.
    pub confirm_removal: Span,
    /// Time for which a label of an infra node must have a new value before the Nodes of its VMs
    /// get it. A VM that moves to another infra node gets that node's labels at once.
    pub confirm_change: Span,
}

impl Default for LabelSettings {
    fn default() -> Self {
        Self {
            write: true,
            // 2,000 Nodes of one user cluster follow a changed policy within ten seconds; an idle
            // fleet sends no requests.
            requests_per_second: 250,
            parallel: 8,
            recheck: Span::seconds(60),
            confirm_removal: Span::seconds(30),
            confirm_change: Span::seconds(30),
        }
    }
}

/// Leader election: of several collectors, only the holder of the Lease writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LeaderSettings {
    /// Whether to use leader election. With `false` this collector always writes; only for a single
    /// collector.
    pub enabled: bool,
    /// The namespace of the Lease. Absent: that of the pod, else of the kubeconfig's context.
    pub namespace: Option<String>,
    /// The name of the Lease.
    pub name: String,
    /// A Service without selector, in the namespace of the Lease. The leader writes its own address
    /// into the EndpointSlice of the same name, so that the Service always leads to the leader. It
    /// takes the address from the environment variable `POD_IP`. Absent: no such Service.
    pub service: Option<String>,
    /// Validity of the Lease in seconds, unless it is renewed.
    #[schemars(range(min = 2, max = 3600))]
    pub lease_seconds: u32,
    /// Time in seconds for which the leader tries to renew the Lease before it stops writing. Less
    /// than `leaseSeconds`.
    #[schemars(range(min = 1))]
    pub renew_seconds: u32,
    /// Time in seconds between two tries. Less than `renewSeconds`.
    #[schemars(range(min = 1))]
    pub retry_seconds: u32,
}

impl Default for LeaderSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            namespace: None,
            name: "virtfleet-collector".to_owned(),
            service: None,
            lease_seconds: 15,
            renew_seconds: 10,
            retry_seconds: 2,
        }
    }
}
