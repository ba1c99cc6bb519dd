//! What policies allow one pod: selectors and names of ports become addresses and numbers.
//!
//! The rules of Kubernetes: a pod that no policy of a direction selects is open in that direction;
//! otherwise it may do what any of these policies allows. A connection needs the egress of the one
//! pod and the ingress of the other.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use ipnet::IpNet;

use super::{
    document::{NetworkPolicy, PolicyPeer, PolicyPort, PolicyRule, PortMatch, Protocol},
    pod::Pod,
};

/// What a pod may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodRules {
    /// Connections to the pod that are allowed. `None`: all.
    pub ingress: Option<Vec<Allowed>>,
    /// Connections from the pod that are allowed. `None`: all.
    pub egress: Option<Vec<Allowed>>,
}

/// Allowed connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Allowed {
    /// Addresses of the other end.
    pub peers: AllowedPeers,
    /// Ports of the end that accepts the connection. Empty: any.
    pub ports: Vec<AllowedPorts>,
}

/// Addresses of the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AllowedPeers {
    /// Any address.
    Any,
    /// Addresses in `networks`, except those in `except`. No network overlaps another.
    Networks {
        /// Networks that are allowed.
        networks: Vec<IpNet>,
        /// Networks in them that are not.
        except: Vec<IpNet>,
    },
}

/// Ports of a protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AllowedPorts {
    /// The protocol.
    pub protocol: Protocol,
    /// First and last port. `None`: all.
    pub range: Option<(u16, u16)>,
}

/// What the policies allow `pod`, which is one of `pods`.
pub(super) fn rules_of(policies: &[NetworkPolicy], pods: &[Pod], pod: &Pod) -> Result<PodRules> {
    let mut rules = PodRules {
        ingress: None,
        egress: None,
    };
    for policy in policies {
        if policy.namespace != pod.namespace.name || !policy.pods.matches(&pod.labels) {
            continue;
        }
        let resolve = |written: &[PolicyRule], is_ingress: bool| {
            let target = is_ingress.then_some(pod);
            let allowed = written
                .iter()
                .map(|rule| allowed(rule, &policy.namespace, pods, target));
            let allowed = allowed.collect::<Result<Vec<_>>>();
            let allowed = allowed.with_context(|| format!("policy {}/{}", policy.namespace, policy.name))?;
            anyhow::Ok(allowed.into_iter().flatten())
        };
        if let Some(written) = &policy.ingress {
            rules
                .ingress
                .get_or_insert_default()
                .extend(resolve(written, true)?);
        }
        if let Some(written) = &policy.egress {
            rules
                .egress
                .get_or_insert_default()
                .extend(resolve(written, false)?);
        }
    }
    Ok(rules)
}

/// What a rule allows; `target` is the pod whose ports it names. `None`: ports of the peers.
fn allowed(rule: &PolicyRule, namespace: &str, pods: &[Pod], target: Option<&Pod>) -> Result<Vec<Allowed>> {
    if rule.peers.is_empty() {
        let ports = numbers(&rule.ports, target)?;
        let peers = AllowedPeers::Any;
        return Ok(vec![Allowed { peers, ports }]);
    }
    let mut all = Vec::new();
    for peer in &rule.peers {
        match peer {
            PolicyPeer::Block(block) => all.push(Allowed {
                peers: AllowedPeers::Networks {
                    networks: vec![block.cidr.trunc()],
                    except: IpNet::aggregate(&block.except),
                },
                ports: numbers(&rule.ports, target)?,
            }),
            PolicyPeer::Pods {
                pods: selector,
                namespaces,
            } => {
                let is_in = |pod: &&Pod| match namespaces {
                    Some(namespaces) => namespaces.matches(&pod.namespace.labels),
                    None => pod.namespace.name == namespace,
                };
                let selected = pods.iter().filter(is_in);
                // Pods whose ports have equal numbers are one rule.
                let mut by_ports = BTreeMap::<Vec<AllowedPorts>, Vec<IpNet>>::new();
                for pod in selected.filter(|pod| selector.matches(&pod.labels)) {
                    let ports = numbers(&rule.ports, target.or(Some(pod)))?;
                    let networks = by_ports.entry(ports).or_default();
                    networks.extend(pod.addresses.iter().map(|address| IpNet::from(*address)));
                }
                all.extend(by_ports.into_iter().map(|(ports, networks)| Allowed {
                    peers: AllowedPeers::Networks {
                        networks: IpNet::aggregate(&networks),
                        except: Vec::new(),
                    },
                    ports,
                }));
            }
        }
    }
    Ok(all)
}

/// The ports, with the numbers that names have in `target`.
fn numbers(ports: &[PolicyPort], target: Option<&Pod>) -> Result<Vec<AllowedPorts>> {
    let ports = ports.iter().map(|port| {
        let range = match &port.port {
            PortMatch::Any => None,
            PortMatch::Range(first, last) => Some((*first, *last)),
            PortMatch::Named(name) => {
                let target = target.with_context(|| {
                    format!("the port {name:?} needs peers that are pods: addresses have no names")
                })?;
                let number = target.port(name, port.protocol).with_context(|| {
                    let (protocol, labels) = (port.protocol, &target.labels);
                    format!(
                        "the pod with the labels {labels:?} has no {protocol} port with the name {name:?}"
                    )
                })?;
                Some((number, number))
            }
        };
        Ok(AllowedPorts {
            protocol: port.protocol,
            range,
        })
    });
    ports.collect()
}

#[cfg(test)]
mod tests;
