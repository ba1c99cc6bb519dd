use proptest::prelude::*;

use super::*;
use crate::dns::{
    fixtures::{conf, ips, strings},
    resolv::ResolvConf,
};

#[test]
fn networkd_lease_and_link_state() {
    let lease = networkd_lease(
        "# This is private data. Do not parse.\nADDRESS=10.0.2.15\nMTU=1450\nDNS=169.254.20.10 10.0.2.3\nDOMAINNAME=svc.cluster.local\n\
         DOMAIN_SEARCH_LIST=ns.svc.cluster.local svc.cluster.local\n",
    );
    assert_eq!(
        lease.conf,
        conf(
            "169.254.20.10 10.0.2.3",
            "ns.svc.cluster.local svc.cluster.local",
            ""
        )
    );
    assert_eq!((lease.source, lease.mtu), (Source::Dhcp, Some(1450)));
    assert_eq!(
        networkd_lease("DNS=10.0.2.3\nDOMAINNAME=a.example\nMTU=7\n")
            .conf
            .searches,
        ["a.example"]
    );
    let state = networkd_link_state(
        "ADMIN_STATE=configured\nNETWORK_FILE=/run/systemd/network/10-netplan-eth0.network\nNETWORK_FILE_DROPINS=\"\"\n\
         DNS=10.0.2.3 10.0.2.4:5353 fe80::1%eth0 10.0.2.5#dns.example\nDOMAINS=a.example\nROUTE_DOMAINS=. ~corp.example\n",
    );
    assert_eq!(
        state.network_file.as_deref(),
        Some("/run/systemd/network/10-netplan-eth0.network")
    );
    assert_eq!(
        state.conf.shown_nameservers(),
        ["10.0.2.3", "fe80::1%eth0", "10.0.2.5"]
    );
    assert_eq!(
        (state.conf.searches, state.route_domains),
        (strings("a.example"), strings(". corp.example"))
    );
    assert_eq!(state.admin_state, "configured");
    assert_eq!(
        networkd_link_state("ADMIN_STATE=unmanaged\nNETWORK_FILE=\n").network_file,
        None
    );
}

#[test]
fn systemd_values_add_up_and_an_empty_one_resets() {
    let text = "[Match]\nName=e*\nDNS=9.9.9.9\n[Network]\nDNS=10.0.0.1\nDNS=\nDNS=10.0.0.2 10.0.0.3\nDomains=a.example ~corp.example ~.\n[Route]\nDNS=8.8.8.8\n";
    let given = network_file(text);
    assert_eq!(
        (given.conf, given.source),
        (conf("10.0.0.2 10.0.0.3", "a.example", ""), Source::Static)
    );
    let text =
        "[Resolve]\n#DNS=1.2.3.4\nDNS = 10.0.0.1\nFallbackDNS=1.1.1.1\nDomains=a . b\nDomains=\nDomains=c\n";
    assert_eq!(resolved_conf(text), conf("10.0.0.1", "c", ""));
    let link = resolved_link("# private\nLLMNR=no\nSERVERS=10.0.0.1 10.0.0.2\nDOMAINS=a.example ~.\n");
    assert_eq!(link.conf, conf("10.0.0.1 10.0.0.2", "a.example", ""));
}

#[test]
fn disabled_dns_sources_are_recognised() {
    let text = "[Network]\nUseDNS=no\n[DHCP]\nUseDNS = no\n[IPv6AcceptRA]\nUseDNS=yes\nUseDNS=false\n";
    assert_eq!(
        ["DHCPv4", "DHCPv6", "IPv6AcceptRA"].map(|section| uses_dns(text, section)),
        [false; 3]
    );
    assert!(uses_dns("[DHCPv4]\nUseDNS=no\n[DHCPv4]\nUseDNS=yes\n", "DHCPv4"));
    assert!(uses_dns(text, "Other"));
}

#[test]
fn last_dhclient_lease_of_each_interface_is_used() {
    let text = "default-duid \"\\000\\001}\";\nlease {\n  interface \"eth0\";\n  option domain-name-servers 1.1.1.1;\n}\n\
        lease6 {\n  interface \"eth0\";\n  ia-na 00:11 {\n    iaaddr fd00::5 { max-life 1; }\n  }\n  option dhcp6.name-servers fd00::a,fd00::b;\n\
        option dhcp6.domain-search \"six.example.\";\n}\nlease {\n  interface \"eth1\";\n  option domain-name \"two words.example }\";\n}\n\
        # a comment; lease {\nlease {\n  interface \"eth0\";\n  option domain-name-servers 10.0.2.3, 10.0.2.4;\n  option domain-name \"old.example\";\n\
        option domain-search \"a.example.\", \"b.example\";\n  option interface-mtu 1400;\n  renew 4 2026/11/21 15:00:00;\n}\nlease {\n  interface \"eth9\";\n";
    let leases = dhclient_leases(text);
    let names: Vec<&str> = leases.iter().map(|one| one.0.as_str()).collect();
    assert_eq!(names, ["eth0", "eth1", "eth0"]);
    assert_eq!(
        leases[0].1.conf,
        conf("10.0.2.3 10.0.2.4", "a.example b.example", "")
    );
    assert_eq!(leases[0].1.mtu, Some(1400));
    assert_eq!(leases[1].1.conf.searches, ["two", "words.example"]);
    assert_eq!(leases[2].1.conf, conf("fd00::a fd00::b", "six.example", ""));
}

#[test]
fn network_manager_files_and_nmcli_output() {
    let device = nm_device("[device]\nmanaged=1\nconnection-uuid=1-2\n[other]\nconnection-uuid=3\n");
    assert_eq!(
        (device.connection.as_deref(), device.managed),
        (Some("1-2"), Some(true))
    );
    assert_eq!(nm_device(""), Device::default());
    assert_eq!(
        nm_lease("ADDRESS=10.0.2.15\nDNS=10.0.2.3\nDOMAINNAME=a.example\n").conf,
        conf("10.0.2.3", "a.example", "")
    );
    let shown = "GENERAL.DEVICE:eth0\nIP4.DNS[1]:10.0.2.3\nIP4.DNS[2]:10.0.2.9\nIP4.DOMAIN[1]:a.example\nIP6.DNS[1]:fd00\\:\\:a\n\
        DHCP4.OPTION[1]:domain_name_servers = 10.0.2.3\nDHCP4.OPTION[2]:domain_search = a.example b.example\nDHCP4.OPTION[3]:interface_mtu = 1400\n\n\
        GENERAL.DEVICE:eth1\nIP6.DNS[1]:fe80\\:\\:1\n\nGENERAL.DEVICE:lo\n";
    let devices = nmcli_devices(shown);
    assert_eq!(devices.len(), 3);
    assert_eq!(devices[0].1.len(), 2);
    assert_eq!(devices[0].1[0].conf, conf("10.0.2.3", "a.example b.example", ""));
    assert_eq!(devices[0].1[0].mtu, Some(1400));
    assert_eq!(devices[0].1[1].conf, conf("10.0.2.9 fd00::a", "", ""));
    assert_eq!(devices[0].1[1].source, Source::Static);
    assert_eq!(devices[1].1[0].source, Source::Advertised);
    assert_eq!(devices[2], ("lo".to_owned(), Vec::new()));
}

#[test]
fn resolvconf_dhcpcd_and_ifupdown_records() {
    let text = "# resolv.conf from eth0\nsearch a.example\nnameserver 10.0.2.3\n";
    let sources = [
        "eth0.dhclient",
        "eth0.ra",
        "eth0.inet",
        "lo.bind9",
        "dhclient.eth0",
    ]
    .map(|name| resolvconf_record(name, text).source);
    assert_eq!(
        sources,
        [
            Source::Dhcp,
            Source::Advertised,
            Source::Static,
            Source::Static,
            Source::Static
        ]
    );
    assert_eq!(dhcpcd("eth0.dhcp6", text).conf, conf("10.0.2.3", "a.example", ""));
    let shell = "reason=BOUND\ndomain_name_servers='10.0.2.3 10.0.2.4'\nnew_domain_name=a.example\ninterface_mtu=1400\n";
    assert_eq!(
        dhcpcd_variables(shell).conf,
        conf("10.0.2.3 10.0.2.4", "a.example", "")
    );
    let eni = "auto eth0\niface eth0 inet static\n  address 10.0.2.15\n  dns-nameservers 10.0.2.3 10.0.2.4\n  dns-search a.example\n# dns-search b\n\
        iface eth0 inet6 static\n  dns-nameservers fd00::a\nallow-hotplug eth1\n  dns-search lost.example\niface eth1 inet dhcp\n";
    let given = interfaces(eni);
    assert_eq!(given.len(), 1);
    assert_eq!(
        given[0].1.conf,
        conf("10.0.2.3 10.0.2.4 fd00::a", "a.example", "")
    );
}

fn packet(options: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 236];
    bytes.extend([99, 130, 83, 99]);
    bytes.extend(options);
    bytes
}

#[test]
fn dhcp_message_with_compression_and_split_options() {
    // example.com; a.example.com by a pointer; split into two options; then nameservers, MTU and
    // padding.
    let list = b"\x07example\x03com\x00\x01a\xc0\x00";
    let mut options = vec![119, 5];
    options.extend(&list[..5]);
    options.extend([6, 8, 10, 0, 2, 3, 10, 0, 2, 4, 0, 26, 2, 5, 120, 119, 12]);
    options.extend(&list[5..]);
    options.extend([15, 3, b'o', b'l', b'd', 255, 6]);
    let given = dhcp_packet(&packet(&options)).unwrap();
    assert_eq!(
        given.conf,
        conf("10.0.2.3 10.0.2.4", "example.com a.example.com", "")
    );
    assert_eq!(given.mtu, Some(1400));
    // A pointer to itself, one beyond the end, a truncated option.
    assert_eq!(
        dhcp_packet(&packet(&[119, 2, 0xc0, 0, 255])).unwrap().conf,
        ResolvConf::default()
    );
    assert_eq!(
        dhcp_packet(&packet(&[119, 2, 0xc0, 9, 6, 200, 1])).unwrap().conf,
        ResolvConf::default()
    );
    assert_eq!(dhcp_packet(&[0; 240]), None);
}

/// Checks that the values are safe in a configuration file.
fn is_clean(conf: &ResolvConf) -> bool {
    crate::dns::resolv::parse(&conf.text("")) == *conf
}

fn all_are_clean(text: &str) -> bool {
    let mut all = vec![
        networkd_lease(text).conf,
        networkd_link_state(text).conf,
        network_file(text).conf,
        resolved_conf(text),
        resolved_link(text).conf,
        nm_lease(text).conf,
        resolvconf_record("eth0.dhclient", text).conf,
        dhcpcd("eth0.ra", text).conf,
        dhcpcd_variables(text).conf,
    ];
    all.extend(dhclient_leases(text).into_iter().map(|one| one.1.conf));
    all.extend(interfaces(text).into_iter().map(|one| one.1.conf));
    all.extend(
        nmcli_devices(text)
            .into_iter()
            .flat_map(|one| one.1)
            .map(|one| one.conf),
    );
    nm_device(text);
    all.iter().all(is_clean)
}

proptest! {
    #[test]
    fn any_bytes_are_parsed(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(all_are_clean(&String::from_utf8_lossy(&bytes)));
        if let Some(given) = dhcp_packet(&bytes) {
            prop_assert!(is_clean(&given.conf));
        }
    }

    #[test]
    fn any_options_are_parsed(bytes in proptest::collection::vec(any::<u8>(), 0..300), list in proptest::collection::vec(prop_oneof![Just(0u8), Just(0xc0), 0u8..20, any::<u8>()], 0..80)) {
        let mut options = vec![119, u8::try_from(list.len()).unwrap()];
        options.extend(&list);
        options.extend(&bytes);
        prop_assert!(is_clean(&dhcp_packet(&packet(&options)).unwrap().conf));
    }

    #[test]
    fn random_sequences_of_keywords_are_parsed(words in proptest::collection::vec(prop::sample::select(vec![
        "lease", "lease6", " ", "{", "}", ";", "\"", "\\", "\n", "#", "interface", "option", "domain-name-servers", "domain-search", "dhcp6.name-servers",
        "DNS=", "DOMAINS=", "SERVERS=", "[Network]", "[Resolve]", "Domains=", "GENERAL.DEVICE:", "IP6.DNS[1]:", "DHCP4.OPTION[1]:", "domain_search = ",
        "iface", "dns-search", "nameserver", "search", "10.0.0.1", "fe80::1%eth0", "fe80\\:\\:1", "a.example.", "~.", ",", "=", "'", "é",
    ]), 0..60)) {
        prop_assert!(all_are_clean(&words.concat()));
        prop_assert!(all_are_clean(&words.join(" ")));
    }

    #[test]
    fn written_lease_is_parsed_unchanged(servers in proptest::collection::vec(any::<u32>(), 0..5)) {
        let shown: Vec<String> = servers.iter().map(|bits| std::net::Ipv4Addr::from_bits(*bits).to_string()).collect();
        let mut expected = ips(&shown.join(" "));
        let mut seen = std::collections::BTreeSet::new();
        expected.retain(|one| seen.insert(*one));
        prop_assert_eq!(&networkd_lease(&format!("DNS={}\n", shown.join(" "))).conf.nameservers, &expected);
        let text = format!("lease {{\n  interface \"e\";\n  option domain-name-servers {};\n}}\n", shown.join(", "));
        prop_assert_eq!(&dhclient_leases(&text)[0].1.conf.nameservers, &expected);
    }
}

#[test]
fn route_only_domains_are_no_search_domains() {
    let link = resolved_link("SERVERS=10.8.0.1\nDOMAINS=~corp.example office.example ~.\n");
    assert_eq!(link.conf.searches, ["office.example"]);
    assert_eq!(link.routes, ["corp.example", "."]);
    let file = network_file(
        "[Match]\nName=wg0\n[Network]\nDNS=10.8.0.1\nDomains=~a.example ~a.example\n[Other]\nDomains=~b.example\n",
    );
    assert_eq!(
        (file.conf.searches.len(), file.routes),
        (0, vec!["a.example".to_owned()])
    );
    let reset = network_file("[Network]\nDomains=~a.example\nDomains=\nDomains=~$(x) ~c.example\n");
    assert_eq!(reset.routes, ["c.example"]);
    let shown = nmcli_devices("GENERAL.DEVICE:tun0\nIP4.DNS[1]:10.8.0.1\nIP4.SEARCHES[1]:~corp.example\n");
    assert_eq!(shown[0].1[0].routes, ["corp.example"]);
}
