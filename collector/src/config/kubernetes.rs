//! Settings that have a meaning only with live clusters.

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
    /// A context of that kubeconfig. Absent: its current one.
    pub context: Option<String>,
    /// The namespaces whose VMs, VMIs and migrations are watched, each on its own, so that a Role in each is enough. Empty: all
    /// namespaces with one watch.
    pub namespaces: Vec<String>,
    /// To which API servers of user clusters the collector connects, and how much of one it keeps.
    pub user_clusters: UserClusterSettings,
}

/// To which API servers of user clusters the collector connects, and how much of one it keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct UserClusterSettings {
    /// Networks in which API servers of user clusters may be; default is every one. Loopback, link-local, multicast and service
    /// addresses (`scrape.serviceCIDRs`) are connected to only if an entry lies wholly inside their range: add the service range
    /// where hosted control planes are Services of the infra cluster. The infra API server itself is never connected to.
    #[serde(rename = "allowCIDRs")]
    #[schemars(with = "Vec<String>")]
    pub allow_cidrs: Vec<IpNet>,
    /// Maximum number of Nodes of one user cluster. A cluster that has more, or Nodes of more than 8 KiB on average, is Failed.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_nodes: u32,
}

impl Default for UserClusterSettings {
    fn default() -> Self {
        Self {
            allow_cidrs: vec![
                IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0)),
                IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 0)),
            ],
            // What Kubernetes is made for (https://kubernetes.io/docs/setup/best-practices/cluster-large/).
            max_nodes: 5000,
        }
    }
}

impl UserClusterSettings {
    /// Which addresses are connected to; `service` are the infra cluster's service networks as the settings have them.
    pub fn dial_rules(&self, service: Option<&[IpNet]>) -> DialRules {
        // The kubeconfig says the port.
        super::with_service(self.allow_cidrs.clone(), service, 0)
    }
}

/// How labels are written to user clusters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LabelSettings {
    /// Whether anything is written at all; what would be written is shown either way.
    pub write: bool,
    /// The most requests a second to one user cluster.
    #[schemars(range(min = 1, max = 1000))]
    pub requests_per_second: u32,
    /// The most requests at once to one user cluster.
    #[schemars(range(min = 1, max = 64))]
    pub parallel: u32,
    /// How often a Node whose labels could not follow is looked at again.
    pub recheck: Span,
    /// For how long an infra node must have lost a label before it is taken from Nodes. A label that flaps would rewrite the Nodes
    /// of every tenant.
    pub confirm_removal: Span,
    /// For how long a label of an infra node must have another value before Nodes of the VMs there get it. A VM that moves to
    /// another infra node has that node's labels at once.
    pub confirm_change: Span,
}

impl Default for LabelSettings {
    fn default() -> Self {
        Self {
            write: true,
            // A fleet of 2,000 Nodes in one user cluster follows an edited policy within ten seconds; idle, nothing is asked.
            requests_per_second: 250,
            parallel: 8,
            recheck: Span::seconds(60),
            confirm_removal: Span::seconds(30),
            confirm_change: Span::seconds(30),
        }
    }
}

/// Which of several collectors writes: the one that holds the Lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LeaderSettings {
    /// Off: this collector writes without asking anybody. Only for one that is alone.
    pub enabled: bool,
    /// The namespace of the Lease. Absent: that of the pod, else of the kubeconfig's context.
    pub namespace: Option<String>,
    /// The name of the Lease.
    pub name: String,
    /// How long a Lease holds that is not renewed.
    #[schemars(range(min = 2, max = 3600))]
    pub lease_seconds: u32,
    /// How long the leader tries to renew before it stops to write. Less than `leaseSeconds`.
    #[schemars(range(min = 1))]
    pub renew_seconds: u32,
    /// How long between two tries. Less than `renewSeconds`.
    #[schemars(range(min = 1))]
    pub retry_seconds: u32,
}

impl Default for LeaderSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            namespace: None,
            name: "virtfleet-collector".to_owned(),
            lease_seconds: 15,
            renew_seconds: 10,
            retry_seconds: 2,
        }
    }
}
