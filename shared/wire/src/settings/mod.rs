//! `AgentConfig`: the agent's settings as typed values, and their JSON Schema.
//!
//! The docstrings here are the schema's descriptions, so they are written for the person who writes
//! the YAML. Every field has a default; the defaults change nothing in the guest.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::duration::Span;

mod disks;
mod dns;
mod metrics;
mod nic;

pub use disks::{
    DiskContent, DiskEncryption, DiskFilesystem, DiskMatch, DiskOwner, DiskPlace, DiskSettings,
    Luks2Settings, ProofKind, SeedFrom,
};
pub use dns::{
    DnsConfig, DnsManage, DnsOption, DnsPolicy, DnsProbeSettings, DnsSettings, InfraDns, NODE_LOCAL_ADDRESS,
    UserClusterDns,
};
pub use metrics::{
    CpuSettings, DeviceFilter, EthtoolSettings, FieldsSettings, FilesystemSettings, HwmonSettings,
    IgnoredSettings, InterruptsSettings, IpvsSettings, MetricsProfile, MetricsSettings, NetclassSettings,
    NetdevSettings, RaplSettings, SlabinfoSettings, StatSettings, SysctlSettings, SystemdSettings,
    TextfileSettings,
};
pub use nic::{Multiqueue, NicSettings, RingSettings, Steering, VirtioSettings};

/// The settings' `apiVersion`.
pub const CONFIG_API_VERSION: &str = "virtfleet.io/v1alpha1";
/// The settings' `kind`.
pub const AGENT_CONFIG_KIND: &str = "AgentConfig";
/// The port on which an agent serves.
pub const AGENT_PORT: u16 = 10911;

/// Settings of virtfleet-agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct AgentConfig {
    /// Always `virtfleet.io/v1alpha1`.
    pub api_version: String,
    /// Always `AgentConfig`.
    pub kind: String,
    /// Where and to whom metrics and the report are served.
    pub server: ServerSettings,
    /// What is measured.
    pub metrics: MetricsSettings,
    /// Secondary disks, merged by `name`. None by default: a disk that is not named here is never
    /// touched.
    pub disks: Vec<DiskSettings>,
    /// Nameservers and search domains. By default looked at, and never changed.
    pub dns: DnsSettings,
    /// Queues of network interfaces. By default looked at, and never changed.
    pub nic: NicSettings,
    /// What else is asked of virtio devices. By default nothing.
    pub virtio: VirtioSettings,
    /// How the agent logs.
    pub log: LogSettings,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            api_version: CONFIG_API_VERSION.to_owned(),
            kind: AGENT_CONFIG_KIND.to_owned(),
            server: ServerSettings::default(),
            metrics: MetricsSettings::default(),
            disks: Vec::new(),
            dns: DnsSettings::default(),
            nic: NicSettings::default(),
            virtio: VirtioSettings::default(),
            log: LogSettings::default(),
        }
    }
}

/// Where and to whom metrics and the report are served.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ServerSettings {
    /// Addresses to listen on, merged by `name`. The one named `default` is HTTPS on every address,
    /// port 10911.
    pub listeners: Vec<Listener>,
    /// Certificates, for every listener that is not plain.
    pub tls: ServerTls,
    /// Connections that may be open at once. Beyond it one that is idle is closed for a new one,
    /// that of whoever has most first; when all are busy, the new one. At least 1.
    #[schemars(range(min = 1))]
    pub max_connections: u32,
    /// Requests that may be answered at once; more get 503. node_exporter's `--web.max-requests`,
    /// and its default.
    #[schemars(range(min = 1))]
    pub max_requests: u32,
    /// How long one request may take from its first byte to its answer's last.
    pub request_timeout: Span,
    /// How long running requests may go on after SIGTERM.
    pub shutdown_grace: Span,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            listeners: vec![Listener::default()],
            tls: ServerTls::default(),
            max_connections: 64,
            max_requests: 40,
            request_timeout: Span::seconds(20),
            shutdown_grace: Span::seconds(5),
        }
    }
}

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Listener {
    /// Names the listener, so that a later fragment can change it.
    pub name: String,
    /// Address and port, e.g. `[::]:10911` or `127.0.0.1:10911`. Port 0 lets the kernel choose.
    pub address: String,
    /// Serve HTTP without TLS. Refused on any but a loopback address.
    pub plain: bool,
}

impl Default for Listener {
    fn default() -> Self {
        Self {
            name: "default".to_owned(),
            address: format!("[::]:{AGENT_PORT}"),
            plain: false,
        }
    }
}

/// Certificates in PEM files; they are read again when they change. With `enrolment` the agent's
/// own certificate is not a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ServerTls {
    /// A collector issues the agent's certificate, for a key that the agent makes itself. Then
    /// `certificate` and `key` must not be set. Until there is a certificate, the agent answers
    /// only requests of collectors to enrol it.
    pub enrolment: bool,
    /// The agent's certificate and its chain. It carries
    /// `spiffe://<trust-domain>/vmi/<namespace>/<name>/<uid>` as URI and `agent.virtfleet.internal`
    /// as DNS name.
    pub certificate: Option<String>,
    /// The certificate's private key.
    pub key: Option<String>,
    /// The authorities whose client certificates are accepted.
    #[serde(rename = "clientCA")]
    pub client_ca: Option<String>,
    /// SPIFFE URIs or DNS names of clients that are authorized beside collectors
    /// (`spiffe://<trust-domain>/collector`), e.g. Prometheus. Empty: collectors only.
    pub clients: Vec<String>,
}

/// How a program logs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LogSettings {
    /// The least level that is logged.
    pub level: LogLevel,
    /// Text or JSON.
    pub format: LogFormat,
}

/// Levels, from quiet to talkative.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the usual five")]
pub enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

/// How a log line looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere and under systemd.
    #[default]
    Auto,
    /// One line of text.
    Text,
    /// One JSON object a line.
    Json,
}

/// The JSON Schema (2020-12) of [`AgentConfig`].
pub fn agent_config_schema() -> serde_json::Value {
    schemars::schema_for!(AgentConfig).to_value()
}
