use super::*;
use crate::dns::fixtures::{conf, ip, network_manager, plain, resolved, strings};

#[test]
fn admin_configuration_precedes_links() {
    let mut seen = resolved("10.0.0.1", "a.example");
    let mut second = crate::dns::fixtures::link("10.0.0.2 10.0.0.1", "b.example");
    second.name = "eth1".to_owned();
    second.index = 1;
    second.default_route = false;
    seen.links.insert(0, second);
    seen.files.insert(
        "/etc/systemd/resolved.conf".into(),
        "[Resolve]\nDNS=10.9.9.9\nDomains=op.example\n".into(),
    );
    seen.files.insert(
        "/etc/systemd/resolved.conf.d/10-x.conf".into(),
        "[Resolve]\nDNS=\nDNS=10.9.9.8\n".into(),
    );
    seen.files.insert(
        ours::RESOLVED.into(),
        format!("{} x\n[Resolve]\nDNS=6.6.6.6\n", ours::MARK),
    );
    let (base, from) = inherited(&seen);
    assert_eq!(
        base,
        conf("10.9.9.8 10.0.0.1 10.0.0.2", "op.example a.example b.example", "")
    );
    assert_eq!(
        from[0],
        (ip("10.9.9.8"), "systemd-resolved's configuration".to_owned())
    );
    assert_eq!(
        from[1],
        (
            ip("10.0.0.1"),
            "the DHCP lease of eth0 (/run/systemd/netif/leases/2)".to_owned()
        )
    );
    assert_eq!(from.len(), 3);
}

#[test]
fn plain_file_is_used_without_a_lease_and_for_options() {
    let mut seen = plain("10.0.0.1", "");
    seen.resolv_conf.text = Some("nameserver 10.0.0.7\nsearch file.example\noptions rotate\n".into());
    assert_eq!(inherited(&seen).0, conf("10.0.0.1", "file.example", "rotate"));
    seen.links.clear();
    let (base, from) = inherited(&seen);
    assert_eq!(base, conf("10.0.0.7", "file.example", "rotate"));
    assert_eq!(from[0].1, "/etc/resolv.conf");
    // Replaced: the original is used, never the agent's file.
    seen.original = Some(std::mem::take(&mut seen.resolv_conf));
    seen.resolv_conf.text = Some(format!("{} x\nnameserver 6.6.6.6\noptions ndots:9\n", ours::MARK));
    assert_eq!(inherited(&seen).0, base);
    seen.original = None;
    assert_eq!(inherited(&seen).0, ResolvConf::default());
    // An admin has replaced it again.
    seen.original = Some(File {
        text: Some("nameserver 10.0.0.8\n".into()),
        ..File::default()
    });
    seen.resolv_conf.text = Some("nameserver 10.0.0.9\n".into());
    assert_eq!(inherited(&seen).0, conf("10.0.0.9", "", ""));
}

#[test]
fn values_of_unknown_origin_are_kept_in_own_file() {
    let mut seen = resolved("1.1.1.1 1.0.0.1", "x.example");
    seen.links.clear();
    let base = conf("1.1.1.1 1.0.0.1", "x.example", "");
    assert_eq!(inherited(&seen).0, base);
    assert_eq!(to_be_kept(&seen), Some(base.clone()));
    seen.files.insert(
        ours::RESOLVED.into(),
        format!(
            "{} x\n{} 1.1.1.1 1.0.0.1; x.example\n[Resolve]\n",
            ours::MARK,
            ours::PLATFORM
        ),
    );
    seen.upstreams = Some("nameserver 6.6.6.6\n".into());
    assert_eq!(inherited(&seen).0, base);
    assert_eq!(to_be_kept(&seen), Some(base));
    assert_eq!(to_be_kept(&resolved("1.1.1.1", "")), None);
    let mut seen = network_manager("1.1.1.1", "x.example");
    assert_eq!(to_be_kept(&seen), None);
    seen.links.clear();
    assert_eq!(to_be_kept(&seen), Some(conf("1.1.1.1", "x.example", "")));
    assert_eq!(to_be_kept(&plain("1.1.1.1", "")), None);
}

#[test]
fn values_known_only_to_a_daemon_are_kept() {
    // networkd's lease files have the values of DHCPv4, but not those of DHCPv6.
    let mut seen = resolved("10.0.0.1", "a.example");
    seen.upstreams = Some(
        "nameserver 10.0.0.1\nnameserver fd00::a\nnameserver fe80::1%eth0\nsearch a.example b.example\n"
            .into(),
    );
    seen.told = resolv::parse(seen.upstreams.as_deref().unwrap());
    let (base, from) = inherited(&seen);
    assert_eq!(base.shown_nameservers(), ["10.0.0.1", "fd00::a", "fe80::1%eth0"]);
    assert_eq!(from[1].1, "the values given to systemd-resolved");
    let kept = to_be_kept(&seen).unwrap();
    assert_eq!(
        (kept.shown_nameservers(), kept.searches),
        (strings("fd00::a fe80::1%eth0"), strings("b.example"))
    );
    let line = format!(
        "{} x\n{} fd00::a fe80::1%eth0; b.example\n",
        ours::MARK,
        ours::PLATFORM
    );
    seen.files.insert(ours::RESOLVED.into(), line);
    seen.upstreams = Some("nameserver 6.6.6.6\n".into());
    assert_eq!(inherited(&seen).0, base);
    // The address of NetworkManager's own dnsmasq is not from the platform.
    let mut seen = network_manager("10.0.0.1", "");
    seen.resolv_conf.text = Some("nameserver 127.0.0.1\n".into());
    assert_eq!(inherited(&seen).0, conf("10.0.0.1", "", ""));
}

#[test]
fn fallback_of_systemd_resolved_is_ignored() {
    let mut seen = resolved("10.0.0.1", "");
    seen.links.clear();
    seen.told = ResolvConf::default();
    seen.upstreams = Some("nameserver 1.1.1.1\nnameserver 2606:4700:4700::1111\nsearch x.example\n".into());
    assert_eq!(inherited(&seen), (ResolvConf::default(), Vec::new()));
    assert_eq!(to_be_kept(&seen), None);
}

#[test]
fn stub_is_not_from_the_platform() {
    let seen = resolved("10.0.0.1", "");
    assert_eq!(inherited(&seen).0.options, []);
    assert_eq!(inherited(&seen).0.searches, strings(""));
}
