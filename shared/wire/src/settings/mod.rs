//! `AgentConfig`: the agent's settings as typed values, and their JSON Schema.
//!
//! The docstrings here are the schema's descriptions, for authors of the YAML. Every field has a
//! default, and the defaults change nothing in the guest.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::duration::Span;

mod disks;
mod dns;
mod metrics;
mod nic;
mod push;
mod removed;

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
    InterruptsSettings, IpvsSettings, MetricsProfile, MetricsSettings, NetclassSettings, NetdevSettings,
    SlabinfoSettings, StatSettings, SysctlSettings, SystemdSettings, TextfileSettings,
};
pub use nic::{Multiqueue, NicSettings, RingSettings, Steering, VirtioSettings};
pub use push::PushSettings;
pub use removed::REMOVED_COLLECTORS;

/// The settings' `apiVersion`.
pub const CONFIG_API_VERSION: &str = "virtfleet.io/v1alpha1";
/// The settings' `kind`.
pub const AGENT_CONFIG_KIND: &str = "AgentConfig";
/// Default port of an agent.
pub const AGENT_PORT: u16 = 10911;

/// Settings of virtfleet-agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct AgentConfig {
    /// Always `virtfleet.io/v1alpha1`.
    pub api_version: String,
    /// Always `AgentConfig`.
    pub kind: String,
    /// Addresses, certificates and limits of the server for metrics and the report.
    pub server: ServerSettings,
    /// Connection to the collector, for an agent that no collector can reach. Default: none.
    pub push: PushSettings,
    /// Metrics: collectors, devices and limits.
    pub metrics: MetricsSettings,
    /// Secondary disks, merged by `name`. Default: none. The agent never changes a disk that is not
    /// listed here.
    pub disks: Vec<DiskSettings>,
    /// Nameservers and search domains. By default the agent reports them and never changes them.
    pub dns: DnsSettings,
    /// Queues of network interfaces. By default the agent reports them and never changes them.
    pub nic: NicSettings,
    /// Other settings of virtio devices. By default the agent changes none.
    pub virtio: VirtioSettings,
    /// Level and format of log messages.
    pub log: LogSettings,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            api_version: CONFIG_API_VERSION.to_owned(),
            kind: AGENT_CONFIG_KIND.to_owned(),
            server: ServerSettings::default(),
            push: PushSettings::default(),
            metrics: MetricsSettings::default(),
            disks: Vec::new(),
            dns: DnsSettings::default(),
            nic: NicSettings::default(),
            virtio: VirtioSettings::default(),
            log: LogSettings::default(),
        }
    }
}

/// Addresses, certificates and limits of the server for metrics and the report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ServerSettings {
    /// Addresses to listen on, merged by `name`. The listener `default` serves HTTPS on every
    /// address, port 10911.
    pub listeners: Vec<Listener>,
    /// Certificates for every listener that is not `plain`.
    pub tls: ServerTls,
    /// Maximum number of open connections. At the limit, the agent closes an idle connection to
    /// accept a new one, first of the peer with the most connections. If all are busy, it closes
    /// the new one. At least 1.
    #[schemars(range(min = 1))]
    pub max_connections: u32,
    /// Maximum number of requests that the agent answers at the same time. Further requests get
    /// status 503. Corresponds to node_exporter's `--web.max-requests`, with the same default.
    #[schemars(range(min = 1))]
    pub max_requests: u32,
    /// Maximum time of one request, from its first byte to the last byte of the response.
    pub request_timeout: Span,
    /// Maximum time that running requests may take after SIGTERM.
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
    /// Name of the listener. A later fragment refers to the listener by it.
    pub name: String,
    /// Address and port, e.g. `[::]:10911` or `127.0.0.1:10911`. With port 0 the kernel chooses a
    /// port.
    pub address: String,
    /// Serve HTTP without TLS. Rejected unless the address is a loopback address.
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

/// Certificates in PEM files. The agent reads them again when they change. With `enrolment` the
/// agent's own certificate is not a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ServerTls {
    /// A collector issues the agent's certificate, for a key that the agent makes itself. Then
    /// `certificate` and `key` must not be set. Until there is a certificate, the agent answers
    /// only requests of collectors to enrol it.
    pub enrolment: bool,
    /// The agent's certificate and its chain. The certificate contains
    /// `spiffe://<trust-domain>/vmi/<namespace>/<name>/<uid>` as URI and `agent.virtfleet.internal`
    /// as DNS name.
    pub certificate: Option<String>,
    /// The certificate's private key.
    pub key: Option<String>,
    /// CA certificates that sign accepted client certificates.
    #[serde(rename = "clientCA")]
    pub client_ca: Option<String>,
    /// SPIFFE URIs or DNS names of clients that are authorized in addition to collectors
    /// (`spiffe://<trust-domain>/collector`), e.g. Prometheus. Empty: collectors only.
    pub clients: Vec<String>,
}

/// Level and format of log messages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LogSettings {
    /// Minimum level of log messages.
    pub level: LogLevel,
    /// Format of log messages: text or JSON.
    pub format: LogFormat,
}

/// Log levels, from the fewest messages to the most.
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

/// Format of log messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text on a terminal; JSON elsewhere and under systemd.
    #[default]
    Auto,
    /// One line of text per message.
    Text,
    /// One JSON object per line.
    Json,
}

/// The JSON Schema (2020-12) of [`AgentConfig`].
pub fn agent_config_schema() -> serde_json::Value {
    schemars::schema_for!(AgentConfig).to_value()
}
