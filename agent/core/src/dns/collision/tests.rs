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
fn node_local_address_collides_even_before_it_exists() {
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
        Some((CollisionKind::NodeLocal, true, "a listener in this guest".into()))
    );
    // No cache, so no prediction; and a cache at an address that is not in the settings.
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
fn addresses_of_all_interfaces_collide() {
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
fn cluster_dns_and_service_range_collide() {
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
fn loopback_resolver_is_allowed_unless_from_a_lease() {
    let local = Some((CollisionKind::LocalAddress, true, "lo".to_owned()));
    // A file that is not generated.
    let mut seen = plain("10.0.0.1", "");
    seen.listeners = ips("127.0.0.1");
    assert_eq!(found(&asked(), &seen, "127.0.0.1"), None);
    // In a lease the address means the sender, unless the settings have it, too.
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
    // The user cluster's cache on a loopback address.
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
fn stub_as_upstream_of_resolved_collides() {
    let seen = resolved("10.0.0.1", "");
    for stub in ["127.0.0.53", "127.0.0.54"] {
        assert_eq!(found(&asked(), &seen, stub).unwrap().0, CollisionKind::Stub);
        assert_eq!(found(&asked(), &plain("10.0.0.1", ""), stub), None);
    }
    // Another resolver on a loopback address may be its upstream.
    assert_eq!(found(&asked(), &seen, "127.0.0.1"), None);
}

#[test]
fn each_nameserver_is_listed_once_with_its_first_origin() {
    let list = ["one", "two"].map(|from| (ip("169.254.20.10"), from.to_owned()));
    let found = find(&asked(), &plain("", ""), &list);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].given_by, "one");
}
