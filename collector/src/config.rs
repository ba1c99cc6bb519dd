//! `CollectorConfig`: settings of the collector as types, their loading and validation.
//!
//! The docstrings of the types are the descriptions in the JSON Schema; their readers are authors
//! of the YAML.

mod access;
mod check;
mod check_access;
mod check_endpoint;
mod check_enrolment;
mod check_ingest;
mod check_mla;
mod check_prometheus;
mod endpoint;
mod enrolment;
mod ingest;
mod kubernetes;
mod load;
mod mla;
mod prometheus;
mod service_networks;
#[cfg(test)]
mod tests;
mod vms;

use std::net::SocketAddr;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use service_networks::with_service;
use virtfleet_collector_core::{
    dial::{DEFAULT_ALLOW, DialRules},
    managed::ManagedRules,
};
use virtfleet_wire::{
    report::MAX_REPORT_BYTES,
    settings::{AGENT_PORT, CONFIG_API_VERSION, LogSettings, Span},
};

pub use access::{AccessSettings, CertificateAccess, TokenReviewSettings};
pub use endpoint::{EndpointAuth, EndpointHeader, EndpointTls};
pub use enrolment::EnrolmentSettings;
pub use ingest::IngestSettings;
pub use kubernetes::{ClusterInventory, LabelSettings, LeaderSettings, UserClusterSettings};
pub use mla::{
    FleetRemoteWrite, FleetStreamSettings, MlaBatchSettings, MlaFlushSettings, MlaQueueSettings,
    MlaSeriesSettings, MlaSettings,
};
pub use prometheus::PrometheusSettings;
pub use vms::VmSettings;

pub const COLLECTOR_CONFIG_KIND: &str = "CollectorConfig";

/// Settings of virtfleet-collector.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct CollectorConfig {
    /// Always `virtfleet.io/v1alpha1`.
    pub api_version: String,
    /// Always `CollectorConfig`.
    pub kind: String,
    /// Source of VMs, nodes and user clusters.
    pub inventory: InventorySettings,
    /// Server of the API, the page and `/sd`.
    pub server: ServerSettings,
    /// Which VMs have an agent.
    pub vms: VmSettings,
    /// How the collector pulls agents.
    pub scrape: ScrapeSettings,
    /// Enrolment: the collector issues the certificates of agents. Absent: agents have certificates
    /// from elsewhere, see `scrape.tls`.
    pub enrolment: Option<EnrolmentSettings>,
    /// Port on which agents connect that the collector cannot dial (`push.collector` in their
    /// settings). Absent: no such port.
    pub ingest: Option<IngestSettings>,
    /// MLA: the collector sends the metrics of VMs to their tenants (`spec.mla` of a UserCluster)
    /// and to the operator. Absent: it sends nothing.
    pub mla: Option<MlaSettings>,
    /// A server with the query API of Prometheus, from which the page reads histories that are
    /// longer than an hour. Absent: the page shows the last hour.
    pub prometheus: Option<PrometheusSettings>,
    /// How the collector writes labels to user clusters. Only with `inventory.cluster`.
    pub labels: LabelSettings,
    /// Leader election: only the leader writes. Only with `inventory.cluster`.
    pub leader_election: LeaderSettings,
    /// Logging.
    pub log: LogSettings,
}

impl Default for CollectorConfig {
    fn default() -> Self {
        Self {
            api_version: CONFIG_API_VERSION.to_owned(),
            kind: COLLECTOR_CONFIG_KIND.to_owned(),
            inventory: InventorySettings::default(),
            server: ServerSettings::default(),
            vms: VmSettings::default(),
            scrape: ScrapeSettings::default(),
            enrolment: None,
            ingest: None,
            mla: None,
            prometheus: None,
            labels: LabelSettings::default(),
            leader_election: LeaderSettings::default(),
            log: LogSettings::default(),
        }
    }
}

/// Source of VMs, nodes and user clusters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct InventorySettings {
    /// A folder of Kubernetes manifests, which the collector watches: `infra/` with
    /// VirtualMachineInstances, VirtualMachines and Nodes, `clusters/<name>/` with a UserCluster
    /// and its Nodes, `policies/` with LabelPropagations.
    pub folder: String,
    /// The API server of the infra cluster instead of a folder; its UserCluster objects define the
    /// user clusters.
    pub cluster: Option<ClusterInventory>,
}

impl Default for InventorySettings {
    fn default() -> Self {
        Self {
            folder: "/etc/virtfleet/inventory".to_owned(),
            cluster: None,
        }
    }
}

/// Server of the API, the page and `/sd`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ServerSettings {
    /// Address and port. With port 0 the kernel chooses one. Without `tls` the server uses HTTP on
    /// a loopback address. Other addresses require `clientCA` or tokens (`access`), and `tls`; with
    /// `enrolment` and `inventory.cluster` the collector issues a certificate itself if `tls` has
    /// none.
    pub address: String,
    /// Address and port that serve only `/healthz` and `/readyz`, over HTTP without client
    /// authentication: kubelet has no client certificate. Absent: they are served at `address`.
    pub probe_address: Option<String>,
    /// Certificates for HTTPS.
    pub tls: ServerTls,
    /// Who may read the API.
    pub access: AccessSettings,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            address: "127.0.0.1:10912".to_owned(),
            probe_address: None,
            tls: ServerTls::default(),
            access: AccessSettings::default(),
        }
    }
}

/// Certificates in PEM files for HTTPS.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ServerTls {
    /// The collector's certificate and its chain.
    pub certificate: Option<String>,
    /// The certificate's private key.
    pub key: Option<String>,
    /// Authorities of client certificates, which are required unless `server.access` accepts
    /// tokens. A client with one may read what `server.access.certificates` says: by default
    /// everything. Agents' certificates are rejected, whoever signed them. Absent: no client
    /// certificate is required.
    #[serde(rename = "clientCA")]
    pub client_ca: Option<String>,
}

/// How the collector pulls agents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ScrapeSettings {
    /// Interval between two pulls of an agent.
    pub interval: Span,
    /// Timeout of a pull, from the dial to the last byte. At most `interval`.
    pub timeout: Span,
    /// Maximum number of concurrent pulls.
    #[schemars(range(min = 1))]
    pub concurrency: u32,
    /// The port of the agents.
    #[schemars(range(min = 1))]
    pub port: u16,
    /// Networks in which VMs may be dialled; by default the private ones (RFC 1918, 100.64.0.0/10,
    /// fc00::/7). Loopback, link-local, multicast and service addresses are dialled only if an
    /// entry lies wholly inside their range, e.g. `127.0.0.0/8`; a wide entry such as `0.0.0.0/0`
    /// does not allow them.
    #[serde(rename = "allowCIDRs")]
    #[schemars(with = "Vec<String>")]
    pub allow_cidrs: Vec<IpNet>,
    /// The infra cluster's service networks. Absent: those of its ServiceCIDR objects (Kubernetes
    /// 1.33 and newer, with `inventory.cluster`), else kubeadm's default, 10.96.0.0/12.
    #[serde(rename = "serviceCIDRs")]
    #[schemars(with = "Option<Vec<String>>")]
    pub service_cidrs: Option<Vec<IpNet>>,
    /// Maximum size of a report in bytes; at most 262144.
    #[schemars(range(min = 1, max = 262_144))]
    pub max_report_bytes: u64,
    /// Maximum size of a metrics page in bytes, after decompression.
    #[schemars(range(min = 1))]
    pub max_metrics_bytes: u64,
    /// Maximum number of samples of a metrics page that Prometheus scrapes through the collector.
    #[schemars(range(min = 1))]
    pub max_samples: u64,
    /// Certificates for pulling agents that did not enrol. Without this and without `enrolment` no
    /// agent is pulled; placement, labels and `/sd` are served nevertheless. With both, agents of
    /// either authority are pulled.
    pub tls: ScrapeTls,
}

impl Default for ScrapeSettings {
    fn default() -> Self {
        Self {
            interval: Span::seconds(30),
            timeout: Span::seconds(10),
            concurrency: 64,
            port: AGENT_PORT,
            allow_cidrs: DEFAULT_ALLOW.to_vec(),
            service_cidrs: None,
            max_report_bytes: MAX_REPORT_BYTES as u64,
            max_metrics_bytes: 16 * 1024 * 1024,
            max_samples: 50_000,
            tls: ScrapeTls::default(),
        }
    }
}

/// Certificates in PEM files for pulling agents, and the trust domain of agents' certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ScrapeTls {
    /// The authorities of agents' certificates.
    pub ca: Option<String>,
    /// The collector's client certificate and its chain.
    pub certificate: Option<String>,
    /// The certificate's private key.
    pub key: Option<String>,
    /// The trust domain in agents' certificates:
    /// `spiffe://<trustDomain>/vmi/<namespace>/<name>/<uid>`.
    pub trust_domain: Option<String>,
}

impl CollectorConfig {
    /// Which VMs have an agent that is pulled.
    pub fn managed_rules(&self) -> ManagedRules {
        ManagedRules {
            selector: self.vms.selector.as_ref().map(Into::into).unwrap_or_default(),
            nodes_of_unmanaged: self.vms.nodes_of_unmanaged,
        }
    }

    /// Rules for dialling agents.
    pub fn dial_rules(&self) -> DialRules {
        let scrape = &self.scrape;
        let rules = with_service(
            scrape.allow_cidrs.clone(),
            scrape.service_cidrs.as_deref(),
            scrape.port,
        );
        let rules = if self.inventory.cluster.is_some() {
            rules.pods_only()
        } else {
            rules
        };
        if self.pulls_agents() {
            rules.with_pull_interval(scrape.interval.0)
        } else {
            rules.without_pulls()
        }
    }

    pub fn pulls_agents(&self) -> bool {
        self.scrape.tls.is_set() || self.enrolment.is_some()
    }

    /// Whether the collector issues the certificate of its API itself: on a cluster with enrolment,
    /// if the settings name none and others than this machine connect.
    pub fn issues_api_certificate(&self) -> bool {
        let is_possible = self.enrolment.is_some() && self.inventory.cluster.is_some();
        is_possible && self.server.tls.certificate.is_none() && !self.server.is_local()
    }

    /// The trust domain in agents' certificates; none if agents are not pulled.
    pub fn trust_domain(&self) -> Option<&str> {
        match &self.enrolment {
            Some(enrolment) => Some(&enrolment.trust_domain),
            None => self.scrape.tls.trust_domain.as_deref(),
        }
    }

    /// The JSON Schema (2020-12).
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(Self).to_value()
    }
}

impl ScrapeTls {
    /// Whether any of the keys is set. The validation then requires all of them.
    pub fn is_set(&self) -> bool {
        [&self.ca, &self.certificate, &self.key, &self.trust_domain]
            .iter()
            .any(|key| key.is_some())
    }
}

impl ServerSettings {
    /// Whether HTTP without TLS is served: there is no certificate, and the address is a loopback
    /// one.
    pub fn is_plain(&self) -> bool {
        self.tls.certificate.is_none() && self.is_local()
    }

    /// Whether only this machine can connect.
    fn is_local(&self) -> bool {
        let address = self.address.parse::<SocketAddr>();
        address.is_ok_and(|address| address.ip().to_canonical().is_loopback())
    }

    /// Whether no client is authenticated. The validation allows it on loopback addresses only.
    pub fn is_open(&self) -> bool {
        self.tls.client_ca.is_none() && !self.access.has_tokens()
    }
}
