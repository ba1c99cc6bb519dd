use virtfleet_wire::settings::{DnsManage, Span};

use super::*;
use crate::dns::fixtures::{ip, ips, option, strings};

fn problems(settings: &DnsSettings) -> Vec<String> {
    match check(settings, None) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.into_iter().map(|one| one.path).collect(),
    }
}

#[test]
fn defaults_are_valid_and_use_the_detected_namespace() {
    let asked = check(&DnsSettings::default(), Some("tenant")).unwrap();
    assert_eq!(asked.manage, DnsManage::ReportOnly);
    assert_eq!(asked.namespace.as_deref(), Some("tenant"));
    assert_eq!(asked.node_local, ips("169.254.20.10"));
    assert_eq!((asked.probe_timeout_ms, asked.probe_interval_ms), (2_000, 60_000));
    // An invalid detected namespace is not reported.
    assert_eq!(
        check(&DnsSettings::default(), Some("a b")).unwrap().namespace,
        None
    );
}

#[test]
fn invalid_values_are_reported_with_their_key() {
    let mut settings = DnsSettings::default();
    settings.config.nameservers =
        strings("10.0.0.1 0.0.0.0 224.0.0.1 255.255.255.255 fe80::1 fd00::1%eth0 dns.example ::");
    settings.config.searches = vec![
        "ok.example.".into(),
        ".".into(),
        "a\nnameserver 6.6.6.6".into(),
        String::new(),
        "a b".into(),
    ];
    settings.config.options = vec![option("ndots:5"), option("a b"), option("x:1;2"), option("")];
    settings.cluster.nameservers = strings("10.96.0.10/32");
    settings.cluster.domain = "cluster local".into();
    settings.cluster.namespace = Some("a.b".into());
    settings.user_cluster.node_local = strings("169.254.20.10 169.254.20");
    settings.user_cluster.nameservers = strings("x");
    settings.user_cluster.service_ranges =
        strings("10.96.0.0/12 10.96.0.0 0.0.0.0/0 10.96.0.0/33 fd00::/129 ::ffff:10.0.0.0/95");
    settings.probe.names = strings("registry.example -bad-");
    settings.probe.timeout = Span::seconds(0);
    settings.probe.interval = Span::seconds(59);
    assert_eq!(
        problems(&settings),
        strings(
            "dns.config.nameservers[1] dns.config.nameservers[2] dns.config.nameservers[3] dns.config.nameservers[4] dns.config.nameservers[5] \
             dns.config.nameservers[6] dns.config.nameservers[7] dns.config.searches[2] dns.config.searches[3] dns.config.searches[4] \
             dns.config.options[1].name dns.config.options[2].value dns.config.options[3].name dns.cluster.nameservers[0] \
             dns.cluster.domain dns.cluster.namespace dns.userCluster.nodeLocal[1] dns.userCluster.nameservers[0] \
             dns.userCluster.serviceRanges[1] dns.userCluster.serviceRanges[2] dns.userCluster.serviceRanges[3] \
             dns.userCluster.serviceRanges[4] dns.userCluster.serviceRanges[5] dns.probe.names[1] dns.probe.timeout dns.probe.interval"
        )
    );
}

#[test]
fn policy_none_needs_a_nameserver() {
    let mut settings = DnsSettings {
        policy: DnsPolicy::None,
        ..DnsSettings::default()
    };
    assert_eq!(problems(&settings), ["dns.config.nameservers"]);
    settings.config.nameservers = strings("::ffff:10.0.0.1");
    assert_eq!(check(&settings, None).unwrap().nameservers, ips("10.0.0.1"));
}

#[test]
fn probe_limits_are_enforced() {
    let mut settings = DnsSettings::default();
    settings.probe.names = vec!["a.example".into(); 9];
    settings.probe.timeout = Span::seconds(11);
    assert_eq!(problems(&settings), ["dns.probe.names", "dns.probe.timeout"]);
}

#[test]
fn ranges_contain_their_addresses() {
    let held = |text: &str, address: &str| range(text).unwrap().contains(ip(address));
    assert!(held("10.96.5.5/12", "10.111.255.255"));
    assert!(held("10.96.0.0/12", "::ffff:10.96.0.10"));
    assert!(!held("10.96.0.0/12", "10.112.0.0"));
    assert!(held("10.0.0.1/32", "10.0.0.1") && !held("10.0.0.1/32", "10.0.0.2"));
    assert!(held("fd00:10:96::/112", "fd00:10:96::a") && !held("fd00:10:96::/112", "fd00:10:97::a"));
    assert!(held("::ffff:10.0.0.0/104", "10.1.2.3"));
    assert!(!held("fd00::/1", "10.1.2.3"));
    assert_eq!(range("10.96.5.5/12").unwrap().to_string(), "10.96.0.0/12");
}
