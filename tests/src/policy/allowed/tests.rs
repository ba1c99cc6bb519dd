use std::net::IpAddr;

use super::*;
use crate::policy::{
    document::read_policies,
    pod::{ContainerPort, PodNamespace},
};

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Two namespaces, with a server and a client each.
fn pods() -> Vec<Pod> {
    let one = PodNamespace::new("one", &[("team", "a")]);
    let two = PodNamespace::new("two", &[("team", "b")]);
    let mut server = Pod::new(&one, &[("app", "server")], address("10.0.1.1"));
    server.addresses.push(address("fd00::1"));
    server.ports.push(ContainerPort {
        name: "web".to_owned(),
        protocol: Protocol::Tcp,
        number: 8080,
    });
    vec![
        server,
        Pod::new(&one, &[("app", "client")], address("10.0.1.3")),
        Pod::new(&two, &[("app", "server")], address("10.0.2.5")),
        Pod::new(&two, &[("app", "client")], address("10.0.2.7")),
    ]
}

/// What policies of the namespace `one`, with these specs, allow the pod with this index, as text.
fn allowed_by(specs: &[&str], pod: usize) -> Result<[String; 2]> {
    let head = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: p, namespace: one}\n";
    let documents: Vec<String> = specs.iter().map(|spec| format!("{head}spec: {spec}\n")).collect();
    let policies = read_policies(&documents.join("---\n"))?;
    let pods = pods();
    let rules = rules_of(&policies, &pods, &pods[pod])?;
    Ok([rules.ingress, rules.egress].map(|allowed| match allowed {
        None => "open".to_owned(),
        Some(allowed) => allowed.iter().map(text).collect::<Vec<_>>().join("; "),
    }))
}

fn text(allowed: &Allowed) -> String {
    let list = |networks: &[IpNet]| {
        networks
            .iter()
            .map(IpNet::to_string)
            .collect::<Vec<_>>()
            .join("+")
    };
    let peers = match &allowed.peers {
        AllowedPeers::Any => "any".to_owned(),
        AllowedPeers::Networks { networks, except } if except.is_empty() => list(networks),
        AllowedPeers::Networks { networks, except } => format!("{} without {}", list(networks), list(except)),
    };
    let ports = allowed.ports.iter().map(|ports| {
        let range = ports.range.map(|(first, last)| format!("{first}-{last}"));
        format!("{}:{}", ports.protocol, range.as_deref().unwrap_or("*"))
    });
    std::iter::once(peers).chain(ports).collect::<Vec<_>>().join(" ")
}

#[test]
fn policies_follow_the_rules_of_kubernetes() {
    // Specs, index of the pod, ingress, egress.
    let cases: &[(&[&str], usize, [&str; 2])] = &[
        // Without a policy, or with one for other pods or of another namespace, a pod is open.
        (&[], 0, ["open", "open"]),
        (
            &["{podSelector: {matchLabels: {app: client}}}"],
            0,
            ["open", "open"],
        ),
        (&["{podSelector: {}}"], 2, ["open", "open"]),
        // A policy restricts the directions of its types only.
        (&["{podSelector: {}}"], 0, ["", "open"]),
        (&["{podSelector: {}, policyTypes: [Egress]}"], 0, ["open", ""]),
        (&["{podSelector: {}, ingress: [{}]}"], 0, ["any", "open"]),
        // Pods of the own namespace.
        (
            &["{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}"],
            0,
            ["10.0.1.3/32", "open"],
        ),
        // All pods of namespaces, and some pods of namespaces.
        (
            &["{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}}}]}]}"],
            0,
            ["10.0.2.5/32+10.0.2.7/32", "open"],
        ),
        (
            &[
                "{podSelector: {}, ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: client}}}]}]}",
            ],
            0,
            ["10.0.1.3/32+10.0.2.7/32", "open"],
        ),
        // Two peers are alternatives.
        (
            &[
                "{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}}}, {podSelector: {}}]}]}",
            ],
            1,
            [
                "10.0.2.5/32+10.0.2.7/32; 10.0.1.1/32+10.0.1.3/32+fd00::1/128",
                "open",
            ],
        ),
        // The label that each namespace has.
        (
            &[
                "{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: \
               {kubernetes.io/metadata.name: two}}}]}]}",
            ],
            0,
            ["10.0.2.5/32+10.0.2.7/32", "open"],
        ),
        // A peer that selects no pod allows nothing.
        (
            &["{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: none}}}]}]}"],
            0,
            ["", "open"],
        ),
        // Addresses.
        (
            &[
                "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8, 172.16.0.0/12]}}]}]}",
            ],
            0,
            ["open", "0.0.0.0/0 without 10.0.0.0/8+172.16.0.0/12"],
        ),
        // Policies add up, and a pod may be selected by several.
        (
            &[
                "{podSelector: {}}",
                "{podSelector: {matchLabels: {app: server}}, ingress: [{ports: [{port: 80}]}]}",
                "{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{protocol: UDP, port: 53}]}]}",
            ],
            0,
            ["any tcp:80-80", "any udp:53-53"],
        ),
        // Names are ports of the pod that accepts: the selected one, or the peer.
        (
            &[
                "{podSelector: {matchLabels: {app: server}}, ingress: [{ports: [{port: web}, {port: 1, endPort: 9}]}]}",
            ],
            0,
            ["any tcp:8080-8080 tcp:1-9", "open"],
        ),
        (
            &[
                "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: server}}}], ports: [{port: web}]}]}",
            ],
            1,
            ["open", "10.0.1.1/32+fd00::1/128 tcp:8080-8080"],
        ),
        (
            &["{podSelector: {}, ingress: [{ports: [{protocol: SCTP}]}]}"],
            0,
            ["any sctp:*", "open"],
        ),
    ];
    for (specs, pod, expected) in cases {
        let allowed = allowed_by(specs, *pod).unwrap();
        assert_eq!(allowed, *expected, "{specs:?}");
    }
}

#[test]
fn a_name_that_no_port_has_is_an_error() {
    for spec in [
        "{podSelector: {}, ingress: [{ports: [{port: wbe}]}]}",
        "{podSelector: {}, ingress: [{ports: [{protocol: UDP, port: web}]}]}",
        "{podSelector: {}, egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8}}], ports: [{port: web}]}]}",
        "{podSelector: {}, egress: [{to: [{podSelector: {}}], ports: [{port: web}]}]}",
    ] {
        let error = format!("{:#}", allowed_by(&[spec], 0).unwrap_err());
        assert!(
            error.contains("policy one/p: ") && error.contains("port"),
            "{spec}: {error}"
        );
    }
}
