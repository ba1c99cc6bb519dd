//! NetworkPolicy documents of `networking.k8s.io/v1`.
//!
//! A field that is unknown, or that would have no effect, is an error: a test that ignores a field
//! passes where it must fail.

use std::fmt;

use anyhow::{Context as _, Result, bail, ensure};
use ipnet::IpNet;
use serde::Deserialize;
use serde_json::Value;
use virtfleet_wire::layered::parse_yaml;

use super::selector::LabelSelector;

/// A policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkPolicy {
    /// Its namespace. It selects pods of this namespace only.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The pods to which it applies.
    pub pods: LabelSelector,
    /// What may connect to these pods. `None`: the policy does not restrict it.
    pub ingress: Option<Vec<PolicyRule>>,
    /// What these pods may connect to. `None`: the policy does not restrict it.
    pub egress: Option<Vec<PolicyRule>>,
}

/// What a policy allows: any of the ports of any of the peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyRule {
    /// Other ends of the connection. Empty: any.
    pub peers: Vec<PolicyPeer>,
    /// Ports of the end that accepts the connection. Empty: any.
    pub ports: Vec<PolicyPort>,
}

/// The other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyPeer {
    /// Pods with these labels, in the policy's namespace or in namespaces with these labels.
    Pods {
        /// Labels of the pods.
        pods: LabelSelector,
        /// Labels of their namespaces. `None`: the policy's namespace.
        namespaces: Option<LabelSelector>,
    },
    /// Addresses.
    Block(IpBlock),
}

/// A network without some networks in it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IpBlock {
    /// The network.
    pub cidr: IpNet,
    /// Networks in it that are not allowed.
    #[serde(default)]
    pub except: Vec<IpNet>,
}

/// Ports of one protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyPort {
    /// The protocol.
    pub protocol: Protocol,
    /// The ports.
    pub port: PortMatch,
}

/// Ports by number or by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortMatch {
    /// All ports of the protocol.
    Any,
    /// First and last port.
    Range(u16, u16),
    /// Name of a container port.
    Named(String),
}

/// Transport protocol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        })
    }
}

/// Direction of a connection, as seen from the selected pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Direction {
    /// To the pod.
    Ingress,
    /// From the pod.
    Egress,
}

#[derive(Deserialize)]
enum ApiVersion {
    #[serde(rename = "networking.k8s.io/v1")]
    V1,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WrittenPolicy {
    #[serde(rename = "apiVersion")]
    _api_version: ApiVersion,
    #[serde(rename = "kind")]
    _kind: String,
    metadata: WrittenMetadata,
    spec: WrittenSpec,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenMetadata {
    name: String,
    namespace: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WrittenSpec {
    pod_selector: LabelSelector,
    policy_types: Option<Vec<Direction>>,
    ingress: Option<Vec<WrittenIngress>>,
    egress: Option<Vec<WrittenEgress>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenIngress {
    #[serde(default)]
    from: Vec<WrittenPeer>,
    #[serde(default)]
    ports: Vec<WrittenPort>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenEgress {
    #[serde(default)]
    to: Vec<WrittenPeer>,
    #[serde(default)]
    ports: Vec<WrittenPort>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WrittenPeer {
    pod_selector: Option<LabelSelector>,
    namespace_selector: Option<LabelSelector>,
    ip_block: Option<IpBlock>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WrittenPort {
    #[serde(default)]
    protocol: Protocol,
    port: Option<WrittenNumber>,
    end_port: Option<u16>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenNumber {
    Number(u16),
    Name(String),
}

/// The policies of a file with one or several documents; documents of other kinds are left out.
pub fn read_policies(text: &str) -> Result<Vec<NetworkPolicy>> {
    let documents = parse_yaml(text).context("not YAML")?;
    let documents = documents.iter().map(virtfleet_wire::layered::Node::to_json);
    let policies = documents.filter(|document| document["kind"] == "NetworkPolicy");
    policies.map(|document| policy(&document)).collect()
}

fn policy(document: &Value) -> Result<NetworkPolicy> {
    let name = &document["metadata"]["name"];
    let written = WrittenPolicy::deserialize(document).with_context(|| format!("NetworkPolicy {name}"))?;
    let WrittenMetadata { name, namespace } = written.metadata;
    let spec = written.spec;
    let types = spec.policy_types.unwrap_or_else(|| {
        let mut types = vec![Direction::Ingress];
        types.extend(spec.egress.as_ref().map(|_| Direction::Egress));
        types
    });
    let ingress = spec.ingress.map(|rules| {
        let rules = rules.into_iter().map(|rule| (rule.from, rule.ports));
        rules.collect::<Vec<_>>()
    });
    let egress = spec.egress.map(|rules| {
        let rules = rules.into_iter().map(|rule| (rule.to, rule.ports));
        rules.collect::<Vec<_>>()
    });
    let read = |direction, written| {
        rules(types.contains(&direction), written)
            .with_context(|| format!("NetworkPolicy {namespace}/{name}: {direction:?}"))
    };
    Ok(NetworkPolicy {
        pods: spec.pod_selector,
        ingress: read(Direction::Ingress, ingress)?,
        egress: read(Direction::Egress, egress)?,
        name,
        namespace,
    })
}

type WrittenRules = Vec<(Vec<WrittenPeer>, Vec<WrittenPort>)>;

fn rules(is_restricted: bool, written: Option<WrittenRules>) -> Result<Option<Vec<PolicyRule>>> {
    if !is_restricted {
        ensure!(
            written.is_none(),
            "the rules have no effect: policyTypes does not name this direction"
        );
        return Ok(None);
    }
    let rules = written.into_iter().flatten().map(|(peers, ports)| {
        Ok(PolicyRule {
            peers: peers.into_iter().map(peer).collect::<Result<_>>()?,
            ports: ports.into_iter().map(port).collect::<Result<_>>()?,
        })
    });
    rules.collect::<Result<_>>().map(Some)
}

fn peer(written: WrittenPeer) -> Result<PolicyPeer> {
    match (written.pod_selector, written.namespace_selector, written.ip_block) {
        (None, None, Some(block)) => {
            let outside = block.except.iter().find(|except| !block.cidr.contains(*except));
            if let Some(outside) = outside {
                bail!("except {outside} is not in {}", block.cidr);
            }
            Ok(PolicyPeer::Block(block))
        }
        (None, None, None) => bail!("a peer has no selector and no ipBlock"),
        (pods, namespaces, None) => Ok(PolicyPeer::Pods {
            pods: pods.unwrap_or_default(),
            namespaces,
        }),
        (_, _, Some(block)) => bail!("ipBlock {} stands beside a selector", block.cidr),
    }
}

fn port(written: WrittenPort) -> Result<PolicyPort> {
    let port = match (written.port, written.end_port) {
        (None, None) => PortMatch::Any,
        (Some(WrittenNumber::Name(name)), None) => PortMatch::Named(name),
        (Some(WrittenNumber::Number(first)), last) => {
            let last = last.unwrap_or(first);
            ensure!(
                0 < first && first <= last,
                "{first} to {last} is no range of ports"
            );
            PortMatch::Range(first, last)
        }
        (_, Some(last)) => bail!("endPort {last} needs a port number"),
    };
    Ok(PolicyPort {
        protocol: written.protocol,
        port,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> Result<NetworkPolicy> {
        let head =
            "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: p, namespace: n}\n";
        let mut policies = read_policies(&format!("kind: Service\n---\n{head}spec: {text}\n"))?;
        assert_eq!(policies.len(), 1);
        Ok(policies.remove(0))
    }

    #[test]
    fn the_directions_follow_from_types_and_rules() {
        let cases = [
            ("{podSelector: {}}", [Some(0), None]),
            ("{podSelector: {}, egress: []}", [Some(0), Some(0)]),
            ("{podSelector: {}, ingress: [{}]}", [Some(1), None]),
            ("{podSelector: {}, policyTypes: [Egress]}", [None, Some(0)]),
            (
                "{podSelector: {}, policyTypes: [Egress, Ingress], egress: [{}]}",
                [Some(0), Some(1)],
            ),
        ];
        for (text, expected) in cases {
            let policy = spec(text).unwrap();
            let counts = [policy.ingress, policy.egress].map(|rules| rules.map(|rules| rules.len()));
            assert_eq!(counts, expected, "{text}");
        }
    }

    #[test]
    fn peers_and_ports_are_read() {
        let policy = spec(
            "{podSelector: {}, ingress: [{from: [{namespaceSelector: {}}, {ipBlock: {cidr: 10.0.0.0/8, except: \
             [10.1.0.0/16]}}], ports: [{port: 80}, {protocol: UDP, port: 1, endPort: 9}, {port: api}, {protocol: \
             SCTP}]}]}",
        );
        let rule = policy.unwrap().ingress.unwrap().remove(0);
        let block = IpBlock {
            cidr: "10.0.0.0/8".parse().unwrap(),
            except: vec!["10.1.0.0/16".parse().unwrap()],
        };
        let everywhere = PolicyPeer::Pods {
            pods: LabelSelector::default(),
            namespaces: Some(LabelSelector::default()),
        };
        assert_eq!(rule.peers, [everywhere, PolicyPeer::Block(block)]);
        let ports = [
            (Protocol::Tcp, PortMatch::Range(80, 80)),
            (Protocol::Udp, PortMatch::Range(1, 9)),
            (Protocol::Tcp, PortMatch::Named("api".to_owned())),
            (Protocol::Sctp, PortMatch::Any),
        ];
        assert_eq!(
            rule.ports,
            ports.map(|(protocol, port)| PolicyPort { protocol, port })
        );
    }

    #[test]
    fn nothing_is_ignored() {
        let cases = [
            ("{podSelector: {}, typo: 1}", "typo"),
            ("{podSelector: {matchlabels: {}}}", "matchlabels"),
            ("{podSelector: {}, ingress: [{to: []}]}", "to"),
            ("{podSelector: {}, ingress: [{from: [{}]}]}", "no selector"),
            (
                "{podSelector: {}, ingress: [{from: [{podSelector: {}, ipBlock: {cidr: 10.0.0.0/8}}]}]}",
                "beside",
            ),
            (
                "{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [11.0.0.0/16]}}]}]}",
                "not in",
            ),
            (
                "{podSelector: {}, policyTypes: [Ingress], egress: []}",
                "no effect",
            ),
            (
                "{podSelector: {}, ingress: [{ports: [{port: api, endPort: 5}]}]}",
                "endPort",
            ),
            (
                "{podSelector: {}, ingress: [{ports: [{port: 9, endPort: 5}]}]}",
                "range",
            ),
            ("{podSelector: {}, ingress: [{ports: [{port: 70000}]}]}", ""),
            ("{}", "podSelector"),
        ];
        for (text, expected) in cases {
            let error = format!("{:#}", spec(text).unwrap_err());
            assert!(error.contains(expected), "{text}: {error}");
        }
        let other = "apiVersion: networking.k8s.io/v2\nkind: NetworkPolicy\nmetadata: {name: p, namespace: n}\n\
                     spec: {podSelector: {}}\n";
        read_policies(other).unwrap_err();
    }
}
