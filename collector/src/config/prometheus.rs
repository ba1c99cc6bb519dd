//! Settings of the server from which longer histories are read.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::settings::Span;

use super::endpoint::{EndpointAuth, EndpointHeader, EndpointTls};

/// A server with the query API of Prometheus, such as Prometheus, Thanos, Mimir, Cortex or
/// VictoriaMetrics, that has the metrics of all VMs. The page reads histories from it that are
/// longer than an hour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PrometheusSettings {
    /// Its URL, required, e.g. `https://prometheus.monitoring:9090`; `/api/v1/query_range` is
    /// appended. `http://` requires a loopback address or `insecure`.
    pub url: String,
    /// Allow `http://` to an address that is not loopback: everyone on the network can then read
    /// answers and credentials.
    pub insecure: bool,
    /// Timeout of one history, 1s to 1m.
    pub timeout: Span,
    /// Labels that the series of this infra cluster's VMs have besides `namespace` and `name`, for
    /// a server that also has those of others, e.g. `infra_cluster: eu-1`.
    pub labels: BTreeMap<String, String>,
    /// Certificates in PEM files. They are read again for each history.
    pub tls: EndpointTls,
    /// Headers that are added to each request, e.g. `X-Scope-OrgID`.
    pub headers: Vec<EndpointHeader>,
    /// Credentials for the header Authorization.
    pub auth: EndpointAuth,
}

impl Default for PrometheusSettings {
    fn default() -> Self {
        Self {
            url: String::new(),
            insecure: false,
            timeout: Span::seconds(10),
            labels: BTreeMap::new(),
            tls: EndpointTls::default(),
            headers: Vec::new(),
            auth: EndpointAuth::default(),
        }
    }
}
