//! Foreign routes and rules, as iproute2 6.1 and 6.15 print them.

use super::*;

const ROUTES: &str = "ip -json route show table all";
const RULES: &str = "ip -json -details rule show";
const OWN: &str = r#"[{"dst":"default","gateway":"10.79.1.1","dev":"eth0","protocol":"dhcp","metric":1024,"flags":[]},{"type":"local","dst":"127.0.0.1","dev":"lo","table":"local","protocol":"kernel"}]"#;
const BIRD: &str = r#"[{"dst":"10.79.1.0/24","dev":"eth0","protocol":"kernel"},{"dst":"10.200.0.0/24","gateway":"10.79.1.1","dev":"eth0","protocol":"80","flags":[]}]"#;
const OWN_RULES: &str = r#"[{"priority":0,"src":"all","table":"local","protocol":"kernel"}]"#;
const A_RULE: &str = r#"[{"priority":0,"src":"all","table":"local","protocol":"kernel"},{"priority":9,"src":"all","dst":"10.200.2.0","dstlen":24,"table":"main","protocol":"unspec"}]"#;

fn tree() -> Tree {
    Tree::new()
        .file("/run/systemd/netif/links/2", "ADMIN_STATE=configured\nNETWORK_FILE=/etc/systemd/network/10-eth0.network\nDNS=10.0.0.1\nDOMAINS=a.example\n")
        .process(&["/lib/systemd/systemd-networkd"])
}

#[test]
fn links_are_not_reconfigured_if_kubelet_runs_or_networkd_would_remove_foreign_routes() {
    let seen = tree().observe_with(&[(ROUTES, OWN), (RULES, OWN_RULES)]);
    assert_eq!(seen.live, None);
    assert_eq!(
        seen.links[0].told.nameservers,
        ["10.0.0.1".parse::<IpAddr>().unwrap()]
    );
    assert_eq!(seen.links[0].told.searches, ["a.example"]);
    let kubelet = tree().process(&["/usr/bin/kubelet"]);
    assert_eq!(kubelet.observe().live.unwrap(), "kubelet runs");
    for node in ["k3s-server", "k3s-agent", "kubelite"] {
        assert_eq!(
            tree().process(&[node]).observe().live.unwrap(),
            format!("{node} runs")
        );
    }
    // If networkd manages nothing, it removes nothing.
    assert_eq!(
        Tree::new()
            .process(&["kubelet"])
            .observe_with(&[(ROUTES, BIRD)])
            .live,
        None
    );

    let reason = |routes, rules| tree().observe_with(&[(ROUTES, routes), (RULES, rules)]).live;
    assert_eq!(reason(OWN, OWN_RULES), None);
    assert!(reason(BIRD, OWN_RULES).unwrap().contains("routes of protocol 80"));
    assert!(reason(OWN, A_RULE).unwrap().contains("rules of protocol unspec"));
    assert!(reason("", "nonsense").unwrap().contains("unknown"));
    assert!(reason("[{", OWN_RULES).unwrap().contains("unknown"));
    // Without `ip` the state is unknown, except in early boot, when there is no container network.
    assert!(tree().observe().live.unwrap().contains("unknown"));
    let early = tree().file("/run/systemd/system/x", "");
    assert_eq!(early.observe().live, None);
}

#[test]
fn networkd_that_keeps_foreign_routes_may_reconfigure_links() {
    let keep = "[Network]\nManageForeignRoutes=no\nManageForeignRoutingPolicyRules = false\n";
    let live = |tree: Tree| tree.observe_with(&[(ROUTES, BIRD), (RULES, A_RULE)]).live;
    assert_eq!(live(tree().file("/etc/systemd/networkd.conf", keep)), None);
    let drop_in = "/usr/lib/systemd/networkd.conf.d/cni.conf";
    assert_eq!(live(tree().file(drop_in, keep)), None);
    // One of the two is not sufficient, and a drop-in overrides the file.
    let half = tree().file(drop_in, "[Network]\nManageForeignRoutes=no\n");
    assert!(live(half).unwrap().contains("rules"));
    let again = tree()
        .file("/etc/systemd/networkd.conf", keep)
        .file(drop_in, "[Network]\nManageForeignRoutes=yes\n");
    assert!(live(again).unwrap().contains("routes"));
}
