//! Ways between the collector and an agent: direct, through a relay in the tenant's network, or
//! over a connection that the agent opened (push).
//!
//! A relay passes bytes below TLS. The collector verifies the agent's certificate on every way, so
//! a relay can prevent answers but not read or forge them. A further way, such as VSOCK, becomes a
//! variant of [`AgentWay`].

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::ids::ClusterName;

use crate::{
    host_port::HostPort,
    pull_result::Failure,
    special_ranges::{SpecialRange, check_special},
};

/// How the collector reaches an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum AgentWay {
    /// The collector connects to the VM's address.
    Direct,
    /// The collector connects to the relay of the VM's user cluster, which connects to the VM's
    /// address.
    Relay(RelayWay),
    /// The agent has connected to the collector, which sends its requests over that connection. The
    /// VM is not dialled meanwhile.
    Push {
        /// Address and port from which the agent connected: of the VM, of a relay, or of a NAT.
        peer: SocketAddr,
    },
}

/// The relay of a user cluster: `spec.relay` of its `UserCluster`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RelayWay {
    /// The user cluster.
    pub cluster: ClusterName,
    /// Address of the relay.
    pub address: HostPort,
    /// `scrape.allowCIDRs`; see [`RelayWay::check`].
    #[serde(skip)]
    pub allow: Arc<[IpNet]>,
    /// `scrape.interval`, for which the relay keeps a silent connection open.
    #[serde(skip)]
    pub pull_interval: Option<Duration>,
}

impl RelayWay {
    /// Checks whether the collector may connect to an address of the relay. An admin names the
    /// relay, so its address needs no entry in `scrape.allowCIDRs`, and may be that of a Service.
    /// But a tenant may control what its DNS name resolves to: loopback, link-local (cloud
    /// metadata) and multicast addresses need an entry inside their range.
    ///
    /// # Errors
    /// The special range of the address.
    pub fn check(&self, address: IpAddr) -> Result<(), SpecialRange> {
        check_special(address, &self.allow)
    }
}

impl fmt::Display for AgentWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct => f.write_str("direct"),
            Self::Relay(relay) => write!(f, "relay of UserCluster {} ({})", relay.cluster, relay.address),
            Self::Push { peer } => write!(f, "push from {peer}"),
        }
    }
}

impl AgentWay {
    /// The way, and why it is used.
    pub fn describe(&self) -> String {
        match self {
            Self::Direct => format!("{self}: no relay is configured for its user cluster"),
            Self::Relay(_) => self.to_string(),
            Self::Push { .. } => {
                format!("{self}: the agent has connected, so the VM is not dialled")
            }
        }
    }

    /// The kind of the way, as in JSON.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Relay(_) => "relay",
            Self::Push { .. } => "push",
        }
    }

    /// Whether the agent opened the connection.
    pub fn is_push(&self) -> bool {
        matches!(self, Self::Push { .. })
    }

    /// Adds the way to the message of a failure, unless it is direct. A relay is another possible
    /// cause of every failure.
    #[must_use]
    pub fn explain(&self, failure: Failure) -> Failure {
        match self {
            Self::Direct => failure,
            Self::Relay(_) => failure.reworded(format_args!("through the {self}: {}", failure.message())),
            // Why an agent has no certificate does not depend on the way.
            Self::Push { .. } if failure.enrolment.is_some() => failure,
            Self::Push { peer } => Failure::new(
                failure.class,
                format_args!(
                    "over the connection that the agent opened from {peer}: {}",
                    failure.message()
                ),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pull_result::FailureClass;

    fn relay(allow: &[&str]) -> RelayWay {
        RelayWay {
            cluster: "a".parse().unwrap(),
            address: "relay.a.svc:10915".parse().unwrap(),
            allow: allow.iter().map(|net| net.parse().unwrap()).collect(),
            pull_interval: None,
        }
    }

    #[test]
    fn a_name_of_a_relay_leads_to_no_special_address() {
        for address in [
            "127.0.0.1",
            "169.254.169.254",
            "::1",
            "::ffff:169.254.169.254",
            "224.0.0.1",
        ] {
            let address = address.parse().unwrap();
            relay(&["0.0.0.0/0", "::/0"]).check(address).unwrap_err();
        }
        relay(&[]).check("10.96.0.5".parse().unwrap()).unwrap();
        relay(&[]).check("203.0.113.9".parse().unwrap()).unwrap();
        relay(&["127.0.0.0/8"])
            .check("127.0.0.1".parse().unwrap())
            .unwrap();
    }

    #[test]
    fn a_failure_names_the_relay() {
        let failure = Failure::new(FailureClass::Tls, "TLS failed");
        assert_eq!(AgentWay::Direct.explain(failure.clone()), failure);
        let explained = AgentWay::Relay(relay(&[])).explain(failure);
        assert_eq!(explained.class, FailureClass::Tls);
        assert_eq!(
            explained.message(),
            "through the relay of UserCluster a (relay.a.svc:10915): TLS failed"
        );
    }

    #[test]
    fn push_names_the_peer() {
        let peer = "10.0.0.5:40000".parse().unwrap();
        let way = AgentWay::Push { peer };
        assert_eq!(
            serde_json::to_value(&way).unwrap(),
            serde_json::json!({ "kind": "push", "peer": "10.0.0.5:40000" })
        );
        assert!(
            way.describe().starts_with("push from 10.0.0.5:40000: "),
            "{}",
            way.describe()
        );
        let explained = way.explain(Failure::new(FailureClass::Timeout, "no answer"));
        assert_eq!(
            explained.message(),
            "over the connection that the agent opened from 10.0.0.5:40000: no answer"
        );
        for way in [AgentWay::Direct, AgentWay::Relay(relay(&[])), way] {
            assert_eq!(serde_json::to_value(&way).unwrap()["kind"], way.kind());
        }
    }
}
