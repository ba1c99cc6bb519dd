use std::fs;

use super::tree::Tree;

#[test]
fn links_that_are_still_being_configured() {
    let networkd = |state: &str| {
        Tree::new()
            .file("/run/systemd/netif/links/2", &format!("ADMIN_STATE={state}\n"))
            .process(&["/usr/lib/systemd/systemd-networkd"])
    };
    let unsettled = |tree: &Tree| tree.observe().unsettled == ["eth0"];
    for state in ["pending", "initialized", "configuring", ""] {
        assert!(unsettled(&networkd(state)), "{state}");
    }
    for state in ["configured", "failed", "unmanaged"] {
        assert!(!unsettled(&networkd(state)), "{state}");
    }
    // The router advertisement arrived before the DHCP answer.
    let file = "/run/systemd/network/10-eth0.network";
    let advertised = |text: &str, more: &str| {
        networkd(&format!("configured\nNETWORK_FILE={file}\n{more}")).file(file, text)
    };
    let dhcp = "[Match]\nName=eth0\n[Network]\nDHCP=yes\n";
    assert!(unsettled(&advertised(dhcp, "")));
    assert!(!unsettled(&advertised(dhcp, "DNS=10.0.0.1")));
    assert!(!unsettled(&advertised("[Network]\nDHCP=ipv6\n", "")));
    let leased = advertised(dhcp, "").file("/run/systemd/netif/leases/2", "ADDRESS=10.0.2.15\n");
    assert!(!unsettled(&leased));
    // Without a carrier no configuration arrives.
    let cut = networkd("configuring");
    fs::write(cut.roots.sys("class/net/eth0/carrier"), "0\n").unwrap();
    assert!(!unsettled(&cut));

    // A separate DHCP client: unsettled until its link has an address.
    let dhclient = |tree: Tree| tree.process(&["dhclient", "-4", "eth0"]);
    assert!(!unsettled(&dhclient(Tree::new())), "the link has an address");
    let bare = dhclient(Tree::new());
    fs::write(bare.roots.proc("net/fib_trie"), "Main:\n").unwrap();
    assert!(unsettled(&bare));
    let alone = Tree::new();
    fs::write(alone.roots.proc("net/fib_trie"), "Main:\n").unwrap();
    assert!(!unsettled(&alone), "no client configures it");
}

#[test]
fn a_bridge_is_waited_for_before_it_has_a_route_or_a_lease() {
    let tree = |state: &str, carrier: &str| {
        let tree = Tree::new()
            .file("/run/systemd/netif/links/2", "ADMIN_STATE=configured\n")
            .file("/run/systemd/netif/links/3", &format!("ADMIN_STATE={state}\n"))
            .process(&["/usr/lib/systemd/systemd-networkd"]);
        let bridge = tree.roots.sys("class/net/br0");
        fs::create_dir_all(&bridge).unwrap();
        fs::write(bridge.join("ifindex"), "3\n").unwrap();
        fs::write(bridge.join("uevent"), "DEVTYPE=bridge\n").unwrap();
        fs::write(bridge.join("carrier"), carrier).unwrap();
        tree
    };
    for state in ["pending", "initialized", "configuring"] {
        assert_eq!(tree(state, "1\n").observe().unsettled, ["br0"], "{state}");
    }
    for (state, carrier) in [
        ("unmanaged", "1\n"),
        ("configured", "1\n"),
        ("configuring", "0\n"),
    ] {
        assert!(tree(state, carrier).observe().unsettled.is_empty(), "{state}");
    }
}
