//! Settings of MLA: where and how samples are queued, and the operator's stream.

use std::collections::BTreeMap;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_collector_core::{dial::DialRules, mla::relabel::RelabelRule};
use virtfleet_wire::settings::Span;

use super::endpoint::{EndpointAuth, EndpointHeader, EndpointTls};
use crate::objects::{PlacementLabelSpec, RemoteWriteCompression, RemoteWriteProtocol, StreamLimitsSpec};

/// MLA: the collector sends the metrics of VMs by Prometheus remote write, those of each user
/// cluster to the receiver in `spec.mla` of its UserCluster, and those of the fleet to the
/// operator's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct MlaSettings {
    /// Networks in which receivers of user clusters may be; by default every network. Loopback,
    /// link-local (which includes the cloud metadata address) and multicast addresses are allowed
    /// only if an entry lies wholly inside their range. The infra API server is never allowed. Does
    /// not concern `fleet`.
    #[serde(rename = "allowCIDRs")]
    #[schemars(with = "Vec<String>")]
    pub allow_cidrs: Vec<IpNet>,
    /// Queues on disk: samples wait there until the receiver has them.
    pub queue: MlaQueueSettings,
    /// When queued samples are written.
    pub flush: MlaFlushSettings,
    /// Size of one request.
    pub batch: MlaBatchSettings,
    /// Number of series. A VM whose page has too many gets none of it sent.
    pub series: MlaSeriesSettings,
    /// The operator's stream. Absent: there is none.
    pub fleet: Option<FleetStreamSettings>,
}

impl Default for MlaSettings {
    fn default() -> Self {
        Self {
            allow_cidrs: super::kubernetes::every_network(),
            queue: MlaQueueSettings::default(),
            flush: MlaFlushSettings::default(),
            batch: MlaBatchSettings::default(),
            series: MlaSeriesSettings::default(),
            fleet: None,
        }
    }
}

impl MlaSettings {
    /// Rules for connecting to the receivers of user clusters. A receiver may be a Service of the
    /// infra cluster.
    pub fn dial_rules(&self) -> DialRules {
        // The URL has the port.
        DialRules::new(self.allow_cidrs.clone(), Vec::new(), 0)
    }
}

/// Queues on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct MlaQueueSettings {
    /// The folder of all queues. In a pod, put a volume there.
    pub folder: String,
    /// Maximum size of all queues together in bytes, at least 16777216 (16 MiB).
    #[schemars(range(min = 16_777_216))]
    pub max_bytes: u64,
    /// Maximum size of one stream's queue in bytes, at least 1048576 (1 MiB); the oldest samples
    /// are dropped first, and counted. A stream may have less.
    #[schemars(range(min = 1_048_576))]
    pub max_bytes_per_stream: u64,
    /// Maximum age of a queued sample, at least 1m; older ones are dropped, and counted.
    pub max_age: Span,
}

impl Default for MlaQueueSettings {
    fn default() -> Self {
        Self {
            folder: "/var/lib/virtfleet-collector/mla".to_owned(),
            max_bytes: 20 << 30,
            max_bytes_per_stream: 1 << 30,
            max_age: Span::seconds(24 * 3600),
        }
    }
}

/// When queued samples are written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct MlaFlushSettings {
    /// Maximum time for which samples wait in memory for a full request, 100ms to 1m.
    pub interval: Span,
    /// Maximum time until samples that the receiver does not have yet are synced to the disk, 100ms
    /// to 1m. A power cut loses at most so much.
    pub sync: Span,
}

impl Default for MlaFlushSettings {
    fn default() -> Self {
        Self {
            interval: Span::seconds(5),
            sync: Span::seconds(5),
        }
    }
}

/// Size of one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct MlaBatchSettings {
    /// Maximum number of samples in a request.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_samples: u32,
    /// Maximum size of a request in bytes before compression, 65536 (64 KiB) to 33554432 (32 MiB).
    /// The default stays below the 1 MiB that nginx, which KKP's gateway is, accepts by default.
    #[schemars(range(min = 65_536, max = 33_554_432))]
    pub max_bytes: u32,
}

impl Default for MlaBatchSettings {
    fn default() -> Self {
        Self {
            max_samples: 10_000,
            max_bytes: 1_000_000,
        }
    }
}

/// Limits on the number of series of VMs, after relabelling. A stream may have less.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct MlaSeriesSettings {
    /// Maximum number of series of one VM in a stream, at least 1.
    #[schemars(range(min = 1))]
    pub max_per_vm: u64,
    /// Maximum number of series of all VMs in one stream, at least `maxPerVm`.
    #[schemars(range(min = 1))]
    pub max_per_stream: u64,
}

impl Default for MlaSeriesSettings {
    fn default() -> Self {
        Self {
            max_per_vm: 50_000,
            max_per_stream: 10_000_000,
        }
    }
}

/// The operator's stream: the series of the platform about all VMs, and on request also the
/// samples of all guests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct FleetStreamSettings {
    /// The receiver of Prometheus remote write.
    pub remote_write: FleetRemoteWrite,
    /// Whether to send also the samples of all guests.
    pub guests: bool,
    /// Labels that are added to each series; as `spec.mla.externalLabels`
    /// of a UserCluster.
    pub external_labels: BTreeMap<String, String>,
    /// Labels with the placement of the VM that are added to each series; as
    /// `spec.mla.placementLabels` of a UserCluster.
    pub placement_labels: Vec<PlacementLabelSpec>,
    /// Relabelling with the words of Prometheus; as `spec.mla.relabel` of a UserCluster.
    pub relabel: Vec<RelabelRule>,
    /// Minimum time between two pages of a VM in the stream, and between two samples of the
    /// platform's series; as `spec.mla.interval` of a UserCluster.
    pub interval: Option<Span>,
    /// Limits; as `spec.mla.limits` of a UserCluster.
    pub limits: StreamLimitsSpec,
}

/// The receiver of the operator's stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct FleetRemoteWrite {
    /// Its URL, required, e.g. `https://mimir.example.com/api/v1/push`. `http://` requires a
    /// loopback address or `insecure`.
    pub url: String,
    /// Version of the protocol. Auto: 2.0, and 1.0 once the receiver says that it has no other.
    pub protocol: RemoteWriteProtocol,
    /// Compression of requests. Auto: snappy with 2.0, which has no other; with 1.0 zstd for
    /// receivers that accept it, such as VictoriaMetrics, else snappy.
    pub compression: RemoteWriteCompression,
    /// Timeout of one request, 1s to 5m.
    pub timeout: Span,
    /// Allow `http://` to an address that is not loopback: everyone on the network can then read
    /// samples and credentials.
    pub insecure: bool,
    /// Certificates in PEM files. They are read again when they change.
    pub tls: EndpointTls,
    /// Headers that are added to each request, e.g. `X-Scope-OrgID`.
    pub headers: Vec<EndpointHeader>,
    /// Credentials for the header Authorization.
    pub auth: EndpointAuth,
}

impl Default for FleetRemoteWrite {
    fn default() -> Self {
        Self {
            url: String::new(),
            protocol: RemoteWriteProtocol::default(),
            compression: RemoteWriteCompression::default(),
            timeout: Span::seconds(30),
            insecure: false,
            tls: EndpointTls::default(),
            headers: Vec::new(),
            auth: EndpointAuth::default(),
        }
    }
}
