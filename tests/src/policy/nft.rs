//! The rules of one pod as a table of nftables, for the network namespace that stands for the pod.

use std::net::IpAddr;

use ipnet::IpNet;

use super::allowed::{Allowed, AllowedPeers, AllowedPorts, PodRules};

/// Name of the table.
const TABLE: &str = "inet virtfleet_policies";

/// What the chains of the two directions differ in.
#[derive(Clone, Copy)]
struct Chain {
    name: &'static str,
    hook: &'static str,
    interface: &'static str,
    address: &'static str,
    /// ICMP error for connections that are denied. The client's error tells the direction.
    error: &'static str,
}

const INGRESS: Chain = Chain {
    name: "ingress",
    hook: "input",
    interface: "iif",
    address: "saddr",
    error: "admin-prohibited",
};
const EGRESS: Chain = Chain {
    name: "egress",
    hook: "output",
    interface: "oif",
    address: "daddr",
    error: "no-route",
};

/// Input for `nft -f`, which replaces the table in one transaction. Connections from and to the
/// addresses of the pod's node are allowed, as Kubernetes requires.
///
/// A denied connection fails at once, with EHOSTUNREACH if the other pod does not allow it, and
/// with ENETUNREACH if the own pod does not.
pub(super) fn table(rules: &PodRules, node: &[IpAddr]) -> String {
    let mut lines = vec![
        format!("add table {TABLE}"),
        format!("delete table {TABLE}"),
        format!("table {TABLE} {{"),
    ];
    for (direction, allowed) in [(INGRESS, &rules.ingress), (EGRESS, &rules.egress)] {
        if let Some(allowed) = allowed {
            lines.extend(chain(direction, allowed, node));
        }
    }
    lines.join("\n") + "\n}\n"
}

fn chain(chain: Chain, allowed: &[Allowed], node: &[IpAddr]) -> Vec<String> {
    let mut lines = vec![
        format!("  chain {} {{", chain.name),
        format!(
            "    type filter hook {} priority filter; policy accept;",
            chain.hook
        ),
        format!("    {} lo accept", chain.interface),
        // Replies, and errors that belong to a connection.
        "    ct state established,related accept".to_owned(),
        // IPv6's neighbour discovery is part of the link, which policies do not restrict.
        "    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept".to_owned(),
    ];
    for address in node {
        let matched = networks(chain, "", &[IpNet::from(*address)]);
        lines.push(format!("    {matched}accept"));
    }
    for one in allowed {
        for peers in peers(chain, &one.peers) {
            let ports = ports(&one.ports);
            lines.extend(ports.iter().map(|ports| format!("    {peers}{ports}accept")));
        }
    }
    lines.push(format!("    reject with icmpx {}", chain.error));
    lines.push("  }".to_owned());
    lines
}

/// The matches for these addresses, one for each family; each is empty or ends with a blank.
fn peers(chain: Chain, peers: &AllowedPeers) -> Vec<String> {
    let AllowedPeers::Networks {
        networks: all,
        except,
    } = peers
    else {
        return vec![String::new()];
    };
    let of_family = |all: &[IpNet], is_ipv4: bool| -> Vec<IpNet> {
        let all = all.iter().copied();
        all.filter(|network| network.addr().is_ipv4() == is_ipv4)
            .collect()
    };
    let families = [true, false].map(|is_ipv4| (of_family(all, is_ipv4), of_family(except, is_ipv4)));
    let families = families.iter().filter(|(allowed, _)| !allowed.is_empty());
    families
        .map(|(allowed, except)| networks(chain, "", allowed) + &networks(chain, "!= ", except))
        .collect()
}

/// The match for networks of one family, which ends with a blank; empty without networks.
fn networks(chain: Chain, operator: &str, networks: &[IpNet]) -> String {
    let Some(first) = networks.first() else {
        return String::new();
    };
    let (family, protocol) = if first.addr().is_ipv4() {
        ("ip", "ipv4")
    } else {
        ("ip6", "ipv6")
    };
    if first.prefix_len() == 0 {
        return format!("meta nfproto {operator}{protocol} ");
    }
    let listed: Vec<String> = networks.iter().map(IpNet::to_string).collect();
    format!(
        "{family} {} {operator}{{ {} }} ",
        chain.address,
        listed.join(", ")
    )
}

/// The matches for these ports; each is empty or ends with a blank.
fn ports(ports: &[AllowedPorts]) -> Vec<String> {
    if ports.is_empty() {
        return vec![String::new()];
    }
    let ports = ports.iter().map(|one| {
        let protocol = one.protocol;
        match one.range {
            None => format!("meta l4proto {protocol} "),
            Some((first, last)) if first == last => format!("{protocol} dport {first} "),
            Some((first, last)) => format!("{protocol} dport {first}-{last} "),
        }
    });
    ports.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::document::Protocol;

    fn rules_in(text: &str) -> Vec<&str> {
        let lines = text.lines().map(str::trim);
        let lines = lines.skip_while(|line| !line.starts_with("icmpv6")).skip(1);
        lines.take_while(|line| !line.starts_with("reject")).collect()
    }

    fn allowed(networks: &[&str], except: &[&str], ports: &[AllowedPorts]) -> Allowed {
        let parsed = |all: &[&str]| all.iter().map(|one| one.parse().unwrap()).collect();
        Allowed {
            peers: AllowedPeers::Networks {
                networks: parsed(networks),
                except: parsed(except),
            },
            ports: ports.to_vec(),
        }
    }

    #[test]
    fn each_direction_with_a_policy_has_a_chain() {
        let none = PodRules {
            ingress: None,
            egress: None,
        };
        assert!(!table(&none, &[]).contains("chain"));
        let denied = PodRules {
            ingress: Some(Vec::new()),
            egress: None,
        };
        let text = table(
            &denied,
            &["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
        );
        assert!(
            text.contains("chain ingress") && !text.contains("chain egress"),
            "{text}"
        );
        assert_eq!(
            rules_in(&text),
            [
                "ip saddr { 10.0.0.1/32 } accept",
                "ip6 saddr { fd00::1/128 } accept"
            ]
        );
    }

    #[test]
    fn addresses_and_ports_are_matched_together() {
        let tcp = |range| AllowedPorts {
            protocol: Protocol::Tcp,
            range,
        };
        let any = Allowed {
            peers: AllowedPeers::Any,
            ports: Vec::new(),
        };
        let cases = [
            (any, vec!["accept"]),
            (
                allowed(
                    &["10.0.0.1/32", "fd00::1/128"],
                    &[],
                    &[tcp(Some((80, 80))), tcp(None)],
                ),
                vec![
                    "ip daddr { 10.0.0.1/32 } tcp dport 80 accept",
                    "ip daddr { 10.0.0.1/32 } meta l4proto tcp accept",
                    "ip6 daddr { fd00::1/128 } tcp dport 80 accept",
                    "ip6 daddr { fd00::1/128 } meta l4proto tcp accept",
                ],
            ),
            (
                allowed(
                    &["0.0.0.0/0"],
                    &["10.0.0.0/8", "172.16.0.0/12"],
                    &[tcp(Some((1, 9)))],
                ),
                vec!["meta nfproto ipv4 ip daddr != { 10.0.0.0/8, 172.16.0.0/12 } tcp dport 1-9 accept"],
            ),
            (allowed(&["::/0"], &[], &[]), vec!["meta nfproto ipv6 accept"]),
            // No pod is selected, so nothing is allowed.
            (allowed(&[], &[], &[]), Vec::new()),
        ];
        for (one, expected) in cases {
            let rules = PodRules {
                ingress: None,
                egress: Some(vec![one]),
            };
            let text = table(&rules, &[]);
            assert_eq!(rules_in(&text), expected, "{text}");
        }
    }
}
