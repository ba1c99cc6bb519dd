use std::fs;

use super::tree::Tree;

#[test]
fn links_that_somebody_is_still_at() {
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
    // The router was faster than the DHCP server.
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
    // Without a carrier nothing comes, whatever is tried.
    let cut = networkd("configuring");
    fs::write(cut.roots.sys("class/net/eth0/carrier"), "0\n").unwrap();
    assert!(!unsettled(&cut));

    // A client of its own: until its link has an address.
    let dhclient = |tree: Tree| tree.process(&["dhclient", "-4", "eth0"]);
    assert!(!unsettled(&dhclient(Tree::new())), "it has its address");
    let bare = dhclient(Tree::new());
    fs::write(bare.roots.proc("net/fib_trie"), "Main:\n").unwrap();
    assert!(unsettled(&bare));
    let alone = Tree::new();
    fs::write(alone.roots.proc("net/fib_trie"), "Main:\n").unwrap();
    assert!(!unsettled(&alone), "nobody is at it");
}
