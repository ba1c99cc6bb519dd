//! `push`: the agent connects to the collector if no collector can reach it (decision 0033).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{duration::Span, host_port::HostPort};

/// Connection to the collector, for an agent that no collector can reach. Then the collector pulls
/// over that connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PushSettings {
    /// Address of the collector or of a relay: `host:port`, with a DNS name, an IPv4 address, or an
    /// IPv6 address in brackets, e.g. `virtfleet-relay.cluster-a.svc:10913`. Absent: the agent
    /// never connects.
    pub collector: Option<HostPort>,
    /// The agent connects if no collector has connected to it and pulled for this time. At least
    /// 1s, and longer than two intervals between pulls of the collector.
    pub after: Span,
    /// File with a join token of the user cluster, at most 256 bytes, readable by the agent's user.
    /// The agent shows the token only to collectors. It is needed if the collector cannot know the
    /// VM by its source address: behind a relay or a NAT. Absent: no token.
    pub token_file: Option<String>,
    /// The kubelet's client certificate and key, usually
    /// `/var/lib/kubelet/pki/kubelet-client-current.pem`. With it, root's runs sign the agent's key
    /// with the kubelet's key, and the agent shows this proof to collectors instead of a join
    /// token. The agent itself never reads the file. Absent: no proof.
    pub kubelet_certificate: Option<String>,
}

impl Default for PushSettings {
    fn default() -> Self {
        Self {
            collector: None,
            after: Span::seconds(90),
            token_file: None,
            kubelet_certificate: None,
        }
    }
}
