//! Who can connect to what: every host to every port of every other one.

use std::collections::{BTreeMap, BTreeSet};

use virtfleet_tests::policy::{NODE, NetworkPolicy, PolicyScene, Reach};

/// Client, server and port.
type Connection = (String, String, u16);

/// Servers that a name in a table stands for.
fn servers<'a>(scene: &PolicyScene, name: &'a str) -> Vec<&'a str> {
    let vms = ["vm-a", "vm-b", "other-vm"];
    match name {
        "vms" => vms.to_vec(),
        "outside" => vec!["api-server", "user-api-server", "internet"],
        // All that a tenant's or the collector's policies do not select.
        "rest" => {
            let is_rest = |name: &&str| {
                !vms.contains(name)
                    && !["collector", "relay", NODE].contains(name)
                    && !scene.ports(name).unwrap().is_empty()
            };
            scene.names().into_iter().filter(is_rest).collect()
        }
        name => vec![name],
    }
}

/// The connections of a table with lines `client: server:port server:*`. The port `*` is every port
/// of the server, and the client `*` every one without a line. See [`servers`] for groups of
/// servers. The node, which is not listed, reaches everything.
fn expected(scene: &PolicyScene, table: &str) -> BTreeSet<Connection> {
    let lines = table.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines: BTreeMap<&str, &str> = lines.map(|line| line.split_once(": ").unwrap()).collect();
    let unknown = lines
        .keys()
        .find(|name| **name != "*" && !scene.names().contains(name));
    assert_eq!(unknown, None, "no such client");
    let mut connections = BTreeSet::new();
    for client in scene.names() {
        let line = match client {
            NODE => "collector:* relay:* vms:* rest:*",
            client => lines.get(client).unwrap_or(&lines["*"]),
        };
        for target in line.split_ascii_whitespace() {
            let (name, port) = target.split_once(':').unwrap();
            let before = connections.len();
            for server in servers(scene, name)
                .into_iter()
                .filter(|server| *server != client)
            {
                let ports = scene.ports(server).unwrap().iter();
                let ports = ports.filter(|one| port == "*" || port == one.to_string());
                connections.extend(ports.map(|port| (client.to_owned(), server.to_owned(), *port)));
            }
            assert!(connections.len() > before, "{client}: {target}");
        }
    }
    connections
}

/// Dials every port from every host, and checks that exactly the expected connections are open.
pub(super) fn check(scene: &PolicyScene, text: &str) {
    let expected = expected(scene, text);
    let (mut open, mut dialled) = (BTreeSet::new(), 0);
    let names = scene.names();
    for client in &names {
        let servers = names.iter().filter(|name| *name != client && **name != NODE);
        let targets: Vec<(&str, u16)> = servers
            .flat_map(|server| scene.ports(server).unwrap().iter().map(|port| (*server, *port)))
            .collect();
        dialled += targets.len();
        let reached = scene.dial(client, &targets).unwrap();
        let reached = targets.iter().zip(reached);
        let reached = reached.filter(|(_, reach)| *reach == Reach::Open);
        open.extend(reached.map(|((server, port), _)| ((*client).to_owned(), (*server).to_owned(), *port)));
    }
    let (missing, more): (Vec<_>, Vec<_>) = (
        expected.difference(&open).collect(),
        open.difference(&expected).collect(),
    );
    assert!(
        missing.is_empty() && more.is_empty(),
        "of {dialled} connections these are denied: {missing:#?}\nand these open: {more:#?}"
    );
}

/// What became of a connection, written as `client server:port`.
pub(super) fn reach(scene: &PolicyScene, connection: &str) -> Reach {
    let (client, target) = connection.split_once(' ').unwrap();
    let (server, port) = target.split_once(':').unwrap();
    scene.dial(client, &[(server, port.parse().unwrap())]).unwrap()[0]
}

/// Checks that each of these connections, written as `client server:port`, has this result.
pub(super) fn check_each(scene: &PolicyScene, connections: &[&str], expected: Reach) {
    for connection in connections {
        assert_eq!(reach(scene, connection), expected, "{connection}");
    }
}

/// Checks that each peer of `tested` is needed: without it, one of `connections` is denied.
/// `others` are applied, too.
pub(super) fn check_each_peer_is_needed(
    scene: &mut PolicyScene,
    others: &[NetworkPolicy],
    tested: &[NetworkPolicy],
    connections: &[&str],
) {
    let variants = without_each_peer(tested);
    assert!(!variants.is_empty(), "there is no peer to remove");
    for (removed, policies) in variants {
        scene.apply(&[others, &policies].concat()).unwrap();
        let mut open = connections.iter().map(|one| reach(scene, one) == Reach::Open);
        assert!(
            open.any(|open| !open),
            "{removed} is not needed for {connections:?}"
        );
    }
    scene.apply(&[others, tested].concat()).unwrap();
    check_each(scene, connections, Reach::Open);
}

/// For each peer of each rule: its description, and the policies without it.
fn without_each_peer(policies: &[NetworkPolicy]) -> Vec<(String, Vec<NetworkPolicy>)> {
    let mut variants = Vec::new();
    for (index, policy) in policies.iter().enumerate() {
        for is_ingress in [true, false] {
            let rules = if is_ingress {
                &policy.ingress
            } else {
                &policy.egress
            };
            for (number, rule) in rules.iter().flatten().enumerate() {
                for peer in 0..rule.peers.len() {
                    let mut changed = policies.to_vec();
                    let policy = &mut changed[index];
                    let rules = if is_ingress {
                        &mut policy.ingress
                    } else {
                        &mut policy.egress
                    };
                    let rules = rules.as_mut().unwrap();
                    rules[number].peers.remove(peer);
                    // A rule without peers would allow all.
                    rules.retain(|rule| !rule.peers.is_empty());
                    let direction = if is_ingress { "ingress" } else { "egress" };
                    let peer = format!("peer {peer} of {direction} rule {number} of {}", policy.name);
                    variants.push((peer, changed));
                }
            }
        }
    }
    variants
}
