use super::*;
use crate::dns::fixtures::{conf, network_manager, plain, resolved};

#[test]
fn upstreams_of_systemd_resolved_with_options_of_the_stub() {
    let mut seen = resolved("10.0.0.1 10.0.0.2", "a.example");
    assert_eq!(
        effective(&seen),
        conf("10.0.0.1 10.0.0.2", "a.example", "edns0 trust-ad")
    );
    seen.upstreams = None;
    assert_eq!(
        effective(&seen).nameservers,
        crate::dns::fixtures::ips("127.0.0.53")
    );
}

#[test]
fn upstreams_of_dnsmasq_are_configured_ones_or_those_of_links() {
    let mut seen = network_manager("10.0.0.1", "a.example");
    assert_eq!(effective(&seen), conf("10.0.0.1", "a.example", ""));
    seen.resolv_conf.text = Some("nameserver 127.0.0.1\nsearch b.example\n".into());
    assert_eq!(effective(&seen), conf("10.0.0.1", "b.example", ""));
    seen.files.insert(
        ours::NETWORK_MANAGER.into(),
        format!(
            "{} x\n[global-dns-domain-*]\nservers=10.0.0.7,10.0.0.8\n",
            ours::MARK
        ),
    );
    assert_eq!(effective(&seen), conf("10.0.0.7 10.0.0.8", "b.example", ""));
    seen.files.clear();
    seen.links.clear();
    assert_eq!(effective(&seen), conf("127.0.0.1", "b.example", ""));
}

#[test]
fn plain_file_is_used_directly() {
    assert_eq!(
        effective(&plain("127.0.0.1 10.0.0.1", "a")),
        conf("127.0.0.1 10.0.0.1", "a", "")
    );
    assert_eq!(effective(&Seen::default()), ResolvConf::default());
}
