use super::*;
use crate::dns::fixtures::{conf, network_manager, plain, resolved};

#[test]
fn behind_systemd_resolved_are_its_upstreams_with_the_options_of_the_stub() {
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
fn behind_network_managers_dnsmasq_is_what_we_told_it_or_its_links() {
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
fn a_plain_file_is_what_it_says() {
    assert_eq!(
        effective(&plain("127.0.0.1 10.0.0.1", "a")),
        conf("127.0.0.1 10.0.0.1", "a", "")
    );
    assert_eq!(effective(&Seen::default()), ResolvConf::default());
}
