//! Files that say which nameservers there are.

use virtfleet_agent_core::dns::{ResolvConf, given as read, names, resolv as conf, seen::Given};

use super::input::text;

/// `resolv.conf`: what was read, written again, reads as the same; and no word of it can break
/// another file.
pub(super) fn resolv(bytes: &[u8]) {
    let text = text(bytes);
    let found = conf::parse(&text);
    words_are_clean(&found);
    let again = conf::parse(&found.text("A header\nof two lines"));
    assert_eq!(again, found);
    assert_eq!(conf::parse(&format!("{text}\n")), found);
    let mut both = ResolvConf::default();
    both.append(&found);
    both.append(&found);
    assert_eq!(
        (both.nameservers, both.searches),
        (found.nameservers, found.searches)
    );
    for word in text.split_ascii_whitespace() {
        if let Some((address, zone)) = names::server(word) {
            let shown = zone
                .as_ref()
                .map_or(address.to_string(), |zone| format!("{address}%{zone}"));
            assert_eq!(names::server(&shown), Some((address, zone)), "{word:?}");
        }
        if names::objection(word).is_none() {
            assert!(word.len() <= 256 && names::below(word, word));
        }
    }
}

fn words_are_clean(conf: &ResolvConf) {
    let shown = conf.shown_nameservers();
    for word in shown.iter().chain(&conf.searches).chain(&conf.option_words()) {
        let clean = |c: char| c.is_ascii_alphanumeric() || "-_.:%".contains(c);
        assert!(!word.is_empty() && word.chars().all(clean), "{word:?}");
    }
}

/// Leases and settings of every program that is given nameservers, and a packet of DHCP.
pub(super) fn given(bytes: &[u8]) {
    let text = text(bytes);
    let text = text.as_str();
    let mut all: Vec<Given> = read::dhcp_packet(bytes).into_iter().collect();
    all.extend(read::dhclient_leases(text).into_iter().map(|(_, given)| given));
    all.extend(read::interfaces(text).into_iter().map(|(_, given)| given));
    all.extend(read::nmcli_devices(text).into_iter().flat_map(|(_, given)| given));
    all.extend([
        read::nm_lease(text),
        read::networkd_lease(text),
        read::network_file(text),
        read::resolvconf_record("eth0.dhcp", text),
        read::dhcpcd("eth0.ra", text),
        read::dhcpcd_variables(text),
        read::resolved_link(text),
    ]);
    for given in all {
        assert!(given.conf.nameservers.len() <= bytes.len());
        words_are_clean(&given.conf);
    }
    words_are_clean(&read::resolved_conf(text));
    read::nm_device(text);
    read::networkd_link_state(text);
    read::uses_dns(text, "DHCPv4");
    read::asks_dhcp4(text);
}
