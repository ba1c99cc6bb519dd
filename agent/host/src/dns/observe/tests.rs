mod kubelet;
mod live;
mod network_manager;
mod settling;
mod tree;

use std::{fs, net::IpAddr};

use virtfleet_agent_core::dns::{
    effective,
    inherited::inherited,
    seen::{Link, Manager, Owner, Source},
    split::split_links,
};

use super::*;
use crate::{CommandOutput, FakeCommands};
use tree::{Tree, write};

const STUB: &str = "# This is /run/systemd/resolve/stub-resolv.conf managed by man:systemd-resolved(8).\n\
    # Third party programs should typically not access this file directly, see resolvconf(8).\n\
    nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch ns.svc.cluster.local\n";
const LEASE: &str = "ADDRESS=10.0.2.15\nDNS=10.96.0.10 169.254.20.10\nDOMAINNAME=ns.svc.cluster.local\n\
    DOMAIN_SEARCH_LIST=ns.svc.cluster.local svc.cluster.local cluster.local\nMTU=1450\n";

/// systemd-resolved with networkd and a lease, as in the cloud images of Debian 13, Ubuntu and
/// Flatcar.
fn resolved(network_file: &str, text: &str) -> Tree {
    Tree::new()
        .file("/run/systemd/resolve/stub-resolv.conf", STUB)
        .file(
            UPSTREAMS_FILE,
            "nameserver 10.96.0.10\nnameserver 169.254.20.10\nsearch ns.svc.cluster.local\n",
        )
        .symlink("/etc/resolv.conf", "../run/systemd/resolve/stub-resolv.conf")
        .file(network_file, text)
        .file(
            "/run/systemd/netif/links/2",
            &format!("ADMIN_STATE=configured\nNETWORK_FILE={network_file}\nDNS=10.96.0.10 169.254.20.10\n"),
        )
        .file("/run/systemd/netif/leases/2", LEASE)
        .process(&["/usr/lib/systemd/systemd-resolved"])
        .process(&["/usr/lib/systemd/systemd-networkd"])
}

fn addresses(words: &[&str]) -> Vec<IpAddr> {
    words.iter().map(|word| word.parse().unwrap()).collect()
}

fn only_link(seen: &Seen) -> &Link {
    assert_eq!(seen.links.len(), 1, "{:?}", seen.links);
    &seen.links[0]
}

#[test]
fn debian_13_with_resolved_and_networkd() {
    let tree = resolved(
        "/etc/systemd/network/10-cloud-init-eth0.network",
        "[Network]\nDHCP=yes\n",
    )
    .file(
        "/usr/lib/systemd/resolved.conf.d/10-vendor.conf",
        "[Resolve]\nDNS=192.0.2.7\n",
    )
    .file(
        "/etc/systemd/resolved.conf.d/10-vendor.conf",
        "[Resolve]\nFallbackDNS=\n",
    )
    .file(
        "/etc/systemd/network/gone.network.d/zz-virtfleet.conf",
        "# Written by virtfleet-agent\n",
    )
    .file("/usr/bin/systemctl", "");
    let seen = tree.observe();
    assert_eq!((seen.owner, seen.resolved), (Owner::Resolved, Some(252)));
    assert_eq!(
        seen.owner_because,
        "/etc/resolv.conf links to ../run/systemd/resolve/stub-resolv.conf"
    );
    assert!(!seen.resolv_conf.fixed && seen.resolv_conf.text.as_deref() == Some(STUB));
    let link = only_link(&seen);
    assert_eq!(
        (link.manager, link.index, link.default_route),
        (Manager::Networkd, 2, true)
    );
    assert_eq!(link.given.len(), 1, "{:?}", link.given);
    assert_eq!(link.given[0].mtu, Some(1450));
    assert_eq!(link.given[0].path, "/run/systemd/netif/leases/2");
    assert_eq!(
        inherited(&seen).0.nameservers,
        addresses(&["10.96.0.10", "169.254.20.10"])
    );
    assert_eq!(
        effective::effective(&seen).nameservers,
        addresses(&["10.96.0.10", "169.254.20.10"])
    );
    let paths: Vec<_> = seen.files.keys().map(String::as_str).collect();
    let expected = [
        "/etc/systemd/network/gone.network.d/zz-virtfleet.conf",
        "/etc/systemd/resolved.conf.d/10-vendor.conf",
    ];
    assert_eq!(paths, expected);
    assert!(!seen.missing_tools.contains(&"systemctl".to_owned()));
    assert!(seen.missing_tools.contains(&"networkctl".to_owned()));
    let locals: Vec<_> = seen
        .locals
        .iter()
        .map(|local| (local.address.to_string(), local.interface.as_str()))
        .collect();
    assert_eq!(
        locals,
        [("10.0.2.15".to_owned(), "eth0"), ("127.0.0.1".to_owned(), "lo")]
    );
}

#[test]
fn a_network_file_is_read_with_its_drop_ins_but_not_the_agents() {
    let file = "/usr/lib/systemd/network/zz-default.network";
    let tree = resolved(file, "[Network]\nDHCP=yes\nDNS=192.0.2.1\n")
        .file(
            "/etc/systemd/network/zz-default.network.d/10-op.conf",
            "[Network]\nDNS=192.0.2.2\nDomains=op.example\n",
        )
        .file(
            "/usr/lib/systemd/network/zz-default.network.d/10-op.conf",
            "[Network]\nDNS=192.0.2.3\n",
        )
        .file(
            "/etc/systemd/network/zz-default.network.d/zz-virtfleet.conf",
            "# Written by virtfleet-agent\n[Network]\nDNS=\nDomains=\n",
        );
    let seen = tree.observe();
    let link = only_link(&seen);
    assert_eq!(link.profile.as_deref(), Some(file));
    let fixed = link
        .given
        .iter()
        .find(|given| given.source == Source::Static)
        .unwrap();
    assert_eq!(fixed.conf.nameservers, addresses(&["192.0.2.1", "192.0.2.2"]));
    assert_eq!(fixed.conf.searches, ["op.example"]);
    assert!(
        seen.files
            .contains_key("/etc/systemd/network/zz-default.network.d/zz-virtfleet.conf")
    );
}

#[test]
fn nameservers_that_an_operator_disabled_are_not_included() {
    let file = "/etc/systemd/network/10-x.network";
    let tree = resolved(file, "[Network]\nDHCP=yes\n").file(
        "/etc/systemd/network/10-x.network.d/10-op.conf",
        "[DHCPv4]\nUseDNS=no\n",
    );
    let seen = tree.observe();
    let given = &only_link(&seen).given;
    assert_eq!((given.len(), given[0].mtu), (1, Some(1450)));
    assert!(given[0].conf.nameservers.is_empty());
    // The agent's file has the same setting and is not an operator's.
    let ours = "# Written by virtfleet-agent\n[DHCPv4]\nUseDNS=no\n";
    let tree = tree
        .file("/etc/systemd/network/10-x.network.d/10-op.conf", "")
        .file("/etc/systemd/network/10-x.network.d/zz-virtfleet.conf", ours);
    let given = only_link(&tree.observe()).given.clone();
    assert_eq!(given[0].conf.nameservers.len(), 2);
}

#[test]
fn ubuntu_with_netplan() {
    let network = "/run/systemd/network/10-netplan-uplink.network";
    let tree = resolved(network, "[Network]\nDHCP=ipv4\n");
    let seen = tree.observe();
    let link = only_link(&seen);
    assert_eq!(
        (link.manager, link.profile.as_deref()),
        (Manager::Networkd, Some(network))
    );
    assert_eq!(link.given[0].conf.nameservers.len(), 2);
    assert!(seen.profiles.contains("10-netplan-uplink.network"));
    assert_eq!(seen.told.nameservers, addresses(&["10.96.0.10", "169.254.20.10"]));
    // An operator's `use-dns: false`, as netplan generates it.
    let tree = tree.file(network, "[Network]\nDHCP=ipv4\n\n[DHCP]\nUseDNS=false\n");
    assert!(only_link(&tree.observe()).given[0].conf.nameservers.is_empty());
}

const DHCLIENT: &str = "lease {\n  interface \"eth0\";\n  option domain-name-servers 10.96.0.10;\n  option domain-name \"cluster.local\";\n}\n";

#[test]
fn debian_12_with_ifupdown_and_dhclient() {
    let tree = Tree::new()
        .file(
            "/etc/resolv.conf",
            "domain cluster.local\nnameserver 10.96.0.10\n",
        )
        .file(
            "/etc/network/interfaces",
            "source interfaces.d/*\nauto eth0\niface eth0 inet dhcp\n",
        )
        .file(
            "/etc/network/interfaces.d/50-cloud-init",
            "iface eth0 inet6 static\n  dns-nameservers fd00::53\n",
        )
        .file("/var/lib/dhcp/dhclient.eth0.leases", DHCLIENT)
        .file(
            "/var/lib/dhcp/dhclient.leases",
            "lease { interface \"eth7\"; option domain-name-servers 192.0.2.7; }",
        );
    let seen = tree.observe();
    assert_eq!((seen.owner, seen.resolved), (Owner::File, None));
    assert_eq!(seen.owner_because, "/etc/resolv.conf is a plain file");
    let given: Vec<_> = only_link(&seen)
        .given
        .iter()
        .map(|given| given.path.as_str())
        .collect();
    assert_eq!(
        given,
        ["/etc/network/interfaces.d/50-cloud-init"],
        "no client holds that lease"
    );

    let tree = tree.process(&[
        "dhclient",
        "-4",
        "-pf",
        "/run/dhclient.eth0.pid",
        "-lf",
        "/var/lib/dhcp/dhclient.eth0.leases",
        "eth0",
    ]);
    let seen = tree.observe();
    assert_eq!(
        seen.owner_because,
        "/etc/resolv.conf is a plain file, and dhclient runs"
    );
    let link = only_link(&seen);
    assert_eq!(link.manager, Manager::Other);
    let given: Vec<_> = link
        .given
        .iter()
        .map(|given| (given.source, given.path.as_str()))
        .collect();
    let expected = [
        (Source::Dhcp, "/var/lib/dhcp/dhclient.eth0.leases"),
        (Source::Static, "/etc/network/interfaces.d/50-cloud-init"),
    ];
    assert_eq!(given, expected);
    assert_eq!(
        inherited(&seen).0.nameservers,
        addresses(&["10.96.0.10", "fd00::53"])
    );
}

#[test]
fn resolvconf_and_dhcpcd() {
    let text = "# Dynamic resolv.conf(5) file for glibc resolver(3) generated by resolvconf(8)\nnameserver 10.96.0.10\n";
    let tree = Tree::new()
        .file("/run/resolvconf/resolv.conf", text)
        .symlink("/etc/resolv.conf", "/etc/resolvconf/run/resolv.conf")
        .symlink("/etc/resolvconf/run", "../../run/resolvconf")
        .file(
            "/run/resolvconf/interface/eth0.dhclient",
            "nameserver 10.96.0.10\n",
        );
    let seen = tree.observe();
    assert_eq!(seen.owner, Owner::Resolvconf, "{}", seen.owner_because);
    assert_eq!(seen.resolv_conf.text.as_deref(), Some(text));
    assert_eq!(only_link(&seen).given[0].source, Source::Dhcp);
    // openresolv writes the file itself.
    let seen = Tree::new()
        .file("/etc/resolv.conf", "# Generated by resolvconf\n")
        .observe();
    assert_eq!(seen.owner, Owner::Resolvconf);

    let tree = Tree::new()
        .file(
            "/etc/resolv.conf",
            "# Generated by dhcpcd from eth0.dhcp\nnameserver 10.96.0.10\n",
        )
        .file(
            "/run/dhcpcd/hook-state/resolv.conf/eth0.dhcp",
            "nameserver 10.96.0.10\n",
        );
    assert_eq!(only_link(&tree.observe()).given, []);
    let seen = tree.process(&["dhcpcd"]).observe();
    assert_eq!(seen.owner, Owner::File);
    let given = &only_link(&seen).given;
    assert_eq!((given.len(), given[0].source), (1, Source::Dhcp));
    assert!(given[0].path.contains("dhcpcd"));
}

#[test]
fn a_plain_file_with_the_stub_belongs_to_resolved_only_while_it_runs() {
    let tree = Tree::new().file("/etc/resolv.conf", STUB);
    assert_eq!(tree.observe().owner, Owner::File);
    assert_eq!(
        tree.process(&["/usr/lib/systemd/systemd-resolved"])
            .observe()
            .owner,
        Owner::Resolved
    );
}

#[test]
fn programs_of_containers_are_excluded() {
    let tree = Tree::new()
        .process(&["/usr/lib/systemd/systemd-resolved"])
        .file("/etc/resolv.conf", STUB);
    write(
        &tree.roots.proc("101/status"),
        "Name:\tsystemd-resolve\nNSpid:\t101\t7\n",
    );
    assert_eq!(tree.observe().resolved, None);
    write(
        &tree.roots.proc("101/status"),
        "Name:\tsystemd-resolve\nNSpid:\t101\n",
    );
    assert_eq!(tree.observe().resolved, Some(252));
}

#[test]
fn the_original_file_determines_the_owner() {
    let original =
        r#"{"link":"/etc/resolvconf/run/resolv.conf","text":"nameserver 10.96.0.10\n","fixed":false}"#;
    let tree = Tree::new()
        .file(
            "/etc/resolv.conf",
            "# Written by virtfleet-agent from x\nnameserver 192.0.2.1\n",
        )
        .file("/var/lib/virtfleet/dns/original.json", original)
        .file(
            "/var/lib/virtfleet/dns/last-good.json",
            r#"{"nameservers":["192.0.2.1"]}"#,
        );
    let seen = tree.observe();
    assert_eq!(seen.owner, Owner::Resolvconf);
    assert_eq!(
        seen.original.unwrap().text.as_deref(),
        Some("nameserver 10.96.0.10\n")
    );
    assert_eq!(seen.last_good.unwrap().nameservers, addresses(&["192.0.2.1"]));
    // Neither can be read: the owner is unknown, without an error.
    let tree = tree
        .file("/var/lib/virtfleet/dns/original.json", "?")
        .file("/var/lib/virtfleet/dns/last-good.json", "?");
    let seen = tree.observe();
    assert_eq!(
        (seen.owner, seen.original, seen.last_good),
        (Owner::File, None, None)
    );
}

#[test]
fn malformed_files_count_as_missing() {
    let tree = resolved("/etc/systemd/network/10-x.network", "[Network]\n");
    let malformed = [
        "/etc/resolv.conf.d/x",
        "/etc/systemd/resolved.conf/x",
        "/run/systemd/netif/leases/2/x",
        "/var/lib/kubelet/config.yaml/x",
        "/etc/systemd/resolved.conf.d/zz-virtfleet.conf/x",
        "/var/lib/virtfleet/dns/original.json/x",
    ];
    fs::remove_file(tree.roots.root("/run/systemd/netif/leases/2")).unwrap();
    let tree = malformed.iter().fold(tree, |tree, path| tree.file(path, ""));
    fs::write(tree.roots.root("/run/systemd/netif/links/2"), b"\xff\xfe\0").unwrap();
    let fifo = tree.roots.root(UPSTREAMS_FILE);
    fs::remove_file(&fifo).unwrap();
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    write(&tree.roots.proc("net/route"), "odd\n\u{0}\n");
    let seen = tree.observe();
    assert_eq!((seen.owner, seen.upstreams.as_deref()), (Owner::Resolved, None));
    assert_eq!(only_link(&seen).manager, Manager::Other);
    // A foreign file at the agent's path: included, but not the agent's.
    assert_eq!(seen.files["/etc/systemd/resolved.conf.d/zz-virtfleet.conf"], "");
    drop(tree.dir);
}

#[test]
fn a_missing_resolv_conf_and_a_dangling_link() {
    let seen = Tree::new().observe();
    assert_eq!(
        (seen.owner, seen.owner_because.as_str()),
        (Owner::File, "there is no /etc/resolv.conf")
    );
    let seen = Tree::new()
        .symlink("/etc/resolv.conf", "/run/systemd/resolve/stub-resolv.conf")
        .observe();
    assert_eq!((seen.owner, seen.resolv_conf.text), (Owner::Resolved, None));
}

#[test]
fn the_real_machine_is_observed() {
    let seen = observe(&Roots::default(), &FakeCommands::new(|_| None), "boot").unwrap();
    assert!(
        seen.locals
            .iter()
            .any(|local| local.address == IpAddr::from([127, 0, 0, 1]))
    );
    assert!(seen.links.iter().all(|link| link.name != "lo"));
}

/// State after `resolvectl domain wg0 ~corp.example` and with networkd's `Domains=~…`.
#[test]
fn route_only_domains_are_found_from_all_sources() {
    let tree = resolved("/etc/systemd/network/10-eth0.network", "[Network]\nDHCP=yes\n")
        .file(
            "/run/systemd/resolve/netif/7",
            "SERVERS=10.8.0.1\nDOMAINS=~corp.example\n",
        )
        .file(
            "/run/systemd/netif/links/8",
            "ADMIN_STATE=configured\nNETWORK_FILE=/etc/systemd/network/20-tun.network\nDNS=10.9.0.1\nROUTE_DOMAINS=site.example\n",
        )
        .file(
            "/etc/systemd/network/20-tun.network",
            "[Network]\nDNS=10.9.0.1\nDomains=~site.example\n",
        );
    tree.link("wg0", 7, false);
    tree.link("tun0", 8, false);
    let seen = tree.observe();
    let routes = |name: &str| {
        let link = seen.links.iter().find(|link| link.name == name).unwrap();
        link.routes.clone()
    };
    assert_eq!(routes("wg0"), ["corp.example"]);
    assert_eq!(routes("tun0"), ["site.example"]);
    assert!(routes("eth0").is_empty());
    let split: Vec<&str> = split_links(&seen).map(|link| link.name.as_str()).collect();
    assert_eq!(split, ["wg0", "tun0"]);
}
