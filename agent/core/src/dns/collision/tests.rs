use super::*;
use crate::dns::{
    asked::Range,
    fixtures::{asked, ip, ips, local, plain, resolved},
    seen::Kubelet,
};

fn found(asked: &Asked, seen: &Seen, nameserver: &str) -> Option<(CollisionKind, bool, String)> {
    let list = [(ip(nameserver), "a test".to_owned())];
    let mut found = find(asked, seen, &list);
    assert!(found.len() <= 1);
    found.pop().map(|one| (one.kind, one.now, one.with))
}

#[test]
fn the_node_local_address_collides_before_it_is_there_and_when_it_is() {
    let mut seen = resolved("169.254.20.10", "");
    let at = |seen: &Seen| found(&asked(), seen, "169.254.20.10");
    assert_eq!(
        at(&seen),
        Some((
            CollisionKind::NodeLocal,
            false,
            "dns.userCluster.nodeLocal".into()
        ))
    );
    seen.locals.push(local("169.254.20.10", "nodelocaldns"));
    assert_eq!(
        at(&seen),
        Some((CollisionKind::NodeLocal, true, "nodelocaldns".into()))
    );
    seen.locals.pop();
    seen.listeners.push(ip("169.254.20.10"));
    assert_eq!(
        at(&seen),
        Some((CollisionKind::NodeLocal, true, "a listener of this guest".into()))
    );
    // No cache, none foreseen; and one at an address that the settings do not know.
    let none = Asked {
        node_local: Vec::new(),
        ..asked()
    };
    assert_eq!(found(&none, &plain("", ""), "169.254.20.10"), None);
    let mut seen = plain("", "");
    seen.locals.push(local("169.254.25.10", "nodelocaldns"));
    assert_eq!(
        found(&none, &seen, "169.254.25.10"),
        Some((CollisionKind::NodeLocal, true, "nodelocaldns".into()))
    );
}

#[test]
fn every_interface_counts_and_ipv4_in_ipv6_is_ipv4() {
    let mut seen = plain("", "");
    seen.locals.push(local("10.96.0.10", "kube-ipvs0"));
    seen.locals.push(local("::ffff:10.96.0.11", "dummy0"));
    let local = |with: &str| Some((CollisionKind::LocalAddress, true, with.to_owned()));
    assert_eq!(found(&asked(), &seen, "10.96.0.10"), local("kube-ipvs0"));
    assert_eq!(found(&asked(), &seen, "::ffff:10.96.0.10"), local("kube-ipvs0"));
    assert_eq!(found(&asked(), &seen, "10.96.0.11"), local("dummy0"));
    assert_eq!(found(&asked(), &seen, "10.0.2.15"), local("eth0"));
    assert_eq!(found(&asked(), &seen, "0.0.0.0"), local("the guest itself"));
    assert_eq!(found(&asked(), &seen, "10.96.0.12"), None);
}

#[test]
fn kubelets_cluster_dns_the_settings_and_the_range_are_known() {
    let mut seen = plain("", "");
    seen.kubelet = Some(Kubelet {
        path: "/var/lib/kubelet/config.yaml".to_owned(),
        cluster_dns: ips("10.96.0.10"),
        ..Kubelet::default()
    });
    let asked = Asked {
        user_nameservers: ips("10.240.16.10"),
        service_ranges: vec![Range {
            network: ip("10.250.0.0"),
            prefix: 16,
        }],
        ..asked()
    };
    let dns = |now, with: &str| Some((CollisionKind::ClusterDns, now, with.to_owned()));
    assert_eq!(
        found(&asked, &seen, "10.96.0.10"),
        dns(false, "/var/lib/kubelet/config.yaml")
    );
    assert_eq!(
        found(&asked, &seen, "10.240.16.10"),
        dns(false, "dns.userCluster.nameservers")
    );
    let range = Some((CollisionKind::ServiceRange, false, "10.250.0.0/16".to_owned()));
    assert_eq!(found(&asked, &seen, "10.250.3.4"), range);
    seen.locals.push(local("10.96.0.10", "kube-ipvs0"));
    assert_eq!(found(&asked, &seen, "10.96.0.10"), dns(true, "kube-ipvs0"));
}

#[test]
fn a_resolver_on_the_loopback_is_legitimate_unless_it_was_meant_for_somebody_else() {
    let local = Some((CollisionKind::LocalAddress, true, "lo".to_owned()));
    // A file that nobody generates.
    let mut seen = plain("10.0.0.1", "");
    seen.listeners = ips("127.0.0.1");
    assert_eq!(found(&asked(), &seen, "127.0.0.1"), None);
    // A lease that says so means the sender; unless the settings say it, too.
    let seen = plain("127.0.0.1 ::1", "");
    assert_eq!(found(&asked(), &seen, "127.0.0.1"), local);
    assert_eq!(
        found(&asked(), &seen, "::1"),
        Some((CollisionKind::LocalAddress, true, "the loopback".into()))
    );
    let own = Asked {
        nameservers: ips("127.0.0.1"),
        ..asked()
    };
    assert_eq!(found(&own, &seen, "127.0.0.1"), None);
    // The user cluster's cache on the loopback.
    let node_local = Asked {
        node_local: ips("127.0.0.1"),
        ..own
    };
    assert_eq!(
        found(&node_local, &seen, "127.0.0.1").unwrap().0,
        CollisionKind::NodeLocal
    );
}

#[test]
fn systemd_resolved_does_not_forward_to_itself() {
    let seen = resolved("10.0.0.1", "");
    for stub in ["127.0.0.53", "127.0.0.54"] {
        assert_eq!(found(&asked(), &seen, stub).unwrap().0, CollisionKind::Stub);
        assert_eq!(found(&asked(), &plain("10.0.0.1", ""), stub), None);
    }
    // Another resolver on the loopback may be its upstream.
    assert_eq!(found(&asked(), &seen, "127.0.0.1"), None);
}

#[test]
fn each_nameserver_comes_once_with_its_first_origin() {
    let list = ["one", "two"].map(|from| (ip("169.254.20.10"), from.to_owned()));
    let found = find(&asked(), &plain("", ""), &list);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].given_by, "one");
}
