//! `UserCluster.spec.mla`: where the metrics of a tenant's VMs are sent.

use std::{collections::BTreeMap, fmt};

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use virtfleet_collector_core::mla::relabel::RelabelRule;
use virtfleet_wire::settings::Span;

/// Names of labels that the collector sets on each series of a VM. No external label, placement
/// label or guest may set them.
pub const RESERVED_LABELS: [&str; 7] = [
    "cluster",
    "namespace",
    "name",
    "instance",
    "job",
    "le",
    "quantile",
];

/// Where the metrics of a user cluster's VMs are sent, and what of them. The collector needs `mla`
/// in its own settings, too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MlaSpec {
    /// The receiver of Prometheus remote write.
    pub remote_write: RemoteWriteSpec,
    /// Labels that are added to each series. The names cluster, namespace,
    /// name, instance, job, le, quantile and those of placementLabels are reserved; the collector
    /// sets cluster to the name of the UserCluster. `__replica__` is refused: Cortex and Mimir
    /// would then drop the samples of all but one sender with the same label cluster.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = label_values, extend("maxProperties" = 16, "x-kubernetes-validations" = [
        { "rule": "!('__replica__' in self)", "message": REPLICA_REFUSED },
        {
            "rule": "!['cluster', 'namespace', 'name', 'instance', 'job', 'le', 'quantile'].exists(l, l in self)",
            "message": "cluster, namespace, name, instance, job, le and quantile are reserved: the collector sets them",
        },
    ]))]
    pub external_labels: BTreeMap<String, String>,
    /// Labels with the placement of the VM that are added to each series. Absent: none. Each value
    /// that changes, such as the infra node at a migration, starts new series; joining with
    /// virtfleet_vm_placement_info, which is always sent, does not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub placement_labels: Vec<PlacementLabelSpec>,
    /// Relabelling of each series, the external and placement labels included, with the words and
    /// the semantics of Prometheus' write_relabel_configs. A rule may remove or change every label:
    /// check that no two VMs get the same series.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 200), transform = rules)]
    pub relabel: Vec<RelabelRule>,
    /// Minimum time between two pages of a VM in the stream, 1s to 2m. Absent, or less:
    /// scrape.interval of the collector's settings, at which pages are pulled; of a longer time,
    /// the nearest pull is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Span>,
    /// Limits on this tenant.
    #[serde(default, skip_serializing_if = "StreamLimitsSpec::is_default")]
    pub limits: StreamLimitsSpec,
    /// Take no samples and send nothing. What is in the queue stays there until it is too old.
    #[serde(default)]
    pub suspend: bool,
}

/// Why the external label `__replica__` is refused.
pub const REPLICA_REFUSED: &str = "__replica__ makes Cortex and Mimir drop the samples of all but one sender with the \
                                   same label cluster, e.g. of KKP's own agent or of this collector; leave it out";

/// The receiver of Prometheus remote write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": HTTPS_OR_INSECURE, "message": HTTP_REFUSED },
    {
        "rule": "!has(self.auth) || !has(self.headers) || self.headers.all(h, !h.name.matches('^(?i)authorization$'))",
        "message": "auth is set, so headers must not have Authorization",
    },
]))]
#[serde(rename_all = "camelCase")]
pub struct RemoteWriteSpec {
    /// Its URL, e.g. `https://mla-gateway.example.com:30443/api/v1/push`. Credentials belong in
    /// auth. `http://` requires a loopback address or insecure.
    #[schemars(
        length(min = 8, max = 2048),
        regex(pattern = r"^https?://[^/?#@\s]+(/[^?#\s]*)?(\?[^#\s]*)?$")
    )]
    pub url: String,
    /// Version of the protocol. Auto: 2.0, and 1.0 once the receiver says that it has no other.
    #[serde(default)]
    pub protocol: RemoteWriteProtocol,
    /// Compression of requests. Auto: snappy with 2.0, which has no other; with 1.0 zstd for
    /// receivers that accept it, such as VictoriaMetrics, else snappy.
    #[serde(default)]
    pub compression: RemoteWriteCompression,
    /// Timeout of one request, 1s to 5m.
    #[serde(default = "default_timeout")]
    pub timeout: Span,
    /// Allow `http://` to an address that is not loopback: everyone on the network can then read
    /// samples and credentials, and can send samples of their own.
    #[serde(default)]
    pub insecure: bool,
    /// Certificates for `https://`. Absent: the authorities of the collector's system are trusted,
    /// and no client certificate is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<RemoteWriteTls>,
    /// Headers that are added to each request, e.g. `X-Scope-OrgID` for Cortex or Mimir without a
    /// gateway.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub headers: Vec<RequestHeaderSpec>,
    /// Credentials for the header Authorization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<RemoteWriteAuth>,
}

/// `http://` is refused unless its samples stay on this machine or the admin accepts the risk.
const HTTPS_OR_INSECURE: &str = "self.url.startsWith('https://') || (has(self.insecure) && self.insecure) || \
    self.url.matches('^http://(localhost|127[.][0-9.]+|[[]::1[]])(:[0-9]+)?([/?]|$)')";
/// Why a URL is refused.
pub const HTTP_REFUSED: &str = "http:// shows samples and credentials to everyone on the network; use https://, or set \
                                insecure: true";

fn default_timeout() -> Span {
    Span::seconds(30)
}

/// Version of Prometheus remote write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum RemoteWriteProtocol {
    #[default]
    Auto,
    V1,
    V2,
}

/// Compression of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum RemoteWriteCompression {
    #[default]
    Auto,
    Snappy,
    Zstd,
}

/// Certificates for `https://`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("minProperties" = 1))]
#[serde(rename_all = "camelCase")]
pub struct RemoteWriteTls {
    /// A Secret in the infra cluster with the client certificate and its chain (`tls.crt` or
    /// `client.crt`), its private key (`tls.key` or `client.key`), and the authorities of the
    /// receiver's certificate (`ca.crt`), all in PEM. Without `ca.crt` the authorities of the
    /// collector's system are trusted; without certificate and key no client certificate is shown.
    /// The Secret is watched, and new certificates are used at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<InfraSecretRef>,
    /// The name in the receiver's certificate. Absent: the host in the URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub server_name: Option<String>,
}

/// A Secret in the infra cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InfraSecretRef {
    /// The Secret's namespace. The collector needs the verbs list and watch on Secrets there.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A key of a Secret in the infra cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InfraSecretKey {
    /// The Secret's namespace. The collector needs the verbs list and watch on Secrets there.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in the Secret.
    #[serde(default = "default_token_key")]
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

impl InfraSecretKey {
    pub fn secret(&self) -> InfraSecretRef {
        InfraSecretRef {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }
}

fn default_token_key() -> String {
    "token".to_owned()
}

/// A header of each request. Exactly one of value and secret is set.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend(
    "oneOf" = [{"required": ["value"]}, {"required": ["secret"]}],
    "x-kubernetes-validations" = [{ "rule": HEADER_ALLOWED, "message": HEADER_REFUSED }],
))]
#[serde(rename_all = "camelCase")]
pub struct RequestHeaderSpec {
    /// Its name. Headers of HTTP itself and of the protocol are refused: Host, Connection,
    /// Content-*, Transfer-Encoding, User-Agent, X-Prometheus-* and the like.
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[A-Za-z0-9!#$%&'*+.^_|~-]+$"))]
    pub name: String,
    /// Its value, if it is not secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub value: Option<String>,
    /// The Secret with its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<InfraSecretKey>,
}

/// Values may be secret, too.
impl fmt::Debug for RequestHeaderSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestHeaderSpec")
            .field("name", &self.name)
            .field("secret", &self.secret)
            .finish_non_exhaustive()
    }
}

/// [`is_forbidden_header`] as a CEL expression.
const HEADER_ALLOWED: &str = "!self.name.matches('^(?i)(host|connection|keep-alive|proxy-.*|te|trailer|transfer-encoding|\
    upgrade|expect|user-agent|accept-encoding|content-.*|x-prometheus-.*|retry-attempt)$')";
/// Why a header is refused.
pub const HEADER_REFUSED: &str =
    "the header belongs to HTTP or to the remote-write protocol; the collector sets it";

/// Whether a header belongs to HTTP or to the remote-write protocol.
pub fn is_forbidden_header(name: &str) -> bool {
    const NAMES: [&str; 11] = [
        "host",
        "connection",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "expect",
        "user-agent",
        "accept-encoding",
        "retry-attempt",
    ];
    const PREFIXES: [&str; 3] = ["proxy-", "content-", "x-prometheus-"];
    let name = name.to_ascii_lowercase();
    NAMES.contains(&name.as_str()) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Credentials for the header Authorization. Exactly one of basic and bearer is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("oneOf" = [{"required": ["basic"]}, {"required": ["bearer"]}]))]
#[serde(rename_all = "camelCase")]
pub struct RemoteWriteAuth {
    /// Basic authentication: a Secret with the keys username and password, such as one of the type
    /// kubernetes.io/basic-auth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basic: Option<BasicAuthSecret>,
    /// A bearer token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bearer: Option<BearerSecret>,
}

/// Basic authentication.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BasicAuthSecret {
    /// The Secret with the keys username and password.
    pub secret: InfraSecretRef,
}

/// A bearer token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BearerSecret {
    /// The Secret with the token.
    pub secret: InfraSecretKey,
}

/// A label with the placement of the VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.source == 'NodeLabel' ? has(self.key) && has(self.name) : !has(self.key)",
        "message": "the source NodeLabel needs key and name; the others have no key",
    },
    {
        "rule": "!has(self.name) || !(self.name in ['cluster', 'namespace', 'name', 'instance', 'job', 'le', 'quantile'])",
        "message": "cluster, namespace, name, instance, job, le and quantile are reserved: the collector sets them",
    },
]))]
#[serde(rename_all = "camelCase")]
pub struct PlacementLabelSpec {
    /// What the label has: the zone or region of the infra node, the name of the infra node, or
    /// one of its labels.
    pub source: PlacementSource,
    /// The key of the infra node's label, e.g. `topology.example.com/rack`. Only with NodeLabel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317))]
    pub key: Option<String>,
    /// The name of the label in the series. Absent: zone, region or infra_node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 128),
        regex(pattern = r"^([A-Za-z]|_[A-Za-z0-9])[A-Za-z0-9_]*$")
    )]
    pub name: Option<String>,
}

/// Part of the placement of a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PlacementSource {
    Zone,
    Region,
    InfraNode,
    NodeLabel,
}

impl PlacementLabelSpec {
    /// The name of the label in the series; empty for a NodeLabel without name, which is invalid.
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(match self.source {
            PlacementSource::Zone => "zone",
            PlacementSource::Region => "region",
            PlacementSource::InfraNode => "infra_node",
            PlacementSource::NodeLabel => "",
        })
    }
}

/// Limits on one stream of samples.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StreamLimitsSpec {
    /// Maximum size of the queue on disk in bytes; the oldest samples are dropped first. Absent, or
    /// more: mla.queue.maxBytesPerStream of the collector's settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1_048_576, max = 1_099_511_627_776_u64), extend("format" = "int64"))]
    pub queue_bytes: Option<u64>,
    /// Maximum age of a queued sample. Absent, or more: mla.queue.maxAge of the collector's
    /// settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_age: Option<Span>,
    /// Maximum number of samples of one VM's page; a page with more counts as failed. Absent, or
    /// more: scrape.maxSamples of the collector's settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000), extend("format" = "int64"))]
    pub samples_per_vm: Option<u64>,
    /// Maximum number of series of one VM after relabelling; a page with more counts as failed.
    /// Absent, or more: mla.series.maxPerVm of the collector's settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000), extend("format" = "int64"))]
    pub series_per_vm: Option<u64>,
    /// Maximum number of series of all VMs after relabelling; the page of a VM that would exceed it
    /// counts as failed. Absent, or more: mla.series.maxPerStream of the collector's settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000), extend("format" = "int64"))]
    pub series: Option<u64>,
    /// Maximum number of labels of a series; series with more are dropped and counted. Absent: 40,
    /// as in KKP's Cortex, which would refuse them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 5, max = 256), extend("format" = "int32"))]
    pub label_names: Option<u32>,
    /// Maximum bytes of a label's value; series with longer ones are dropped and counted. Absent:
    /// 2048, as in Cortex and Mimir.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 64, max = 65_536), extend("format" = "int32"))]
    pub label_value_bytes: Option<u32>,
}

impl StreamLimitsSpec {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Limits the values of a map of labels.
fn label_values(schema: &mut Schema) {
    schema.insert(
        "additionalProperties".to_owned(),
        serde_json::json!({ "type": "string", "minLength": 1, "maxLength": 1024 }),
    );
}

/// A CustomResourceDefinition forbids `additionalProperties: false`, as the API server drops
/// unknown keys by itself, and it knows no unsigned numbers.
fn rules(schema: &mut Schema) {
    if let Some(items) = schema.get_mut("items") {
        if let Some(rule) = items.as_object_mut() {
            rule.remove("additionalProperties");
        }
        if let Some(modulus) = items.pointer_mut("/properties/modulus") {
            modulus["format"] = "int64".into();
        }
    }
}
