//! Validation of names and words for configuration files, and parsing of nameservers in such files.

use std::net::{IpAddr, SocketAddr};

/// Maximum length of a label (RFC 1035, 2.3.4).
const MAX_LABEL_LENGTH: usize = 63;

/// Returns the problem with a domain name, if any. Allowed are letters, digits, `-` and `_`, as
/// Kubernetes allows in search domains, and a trailing dot; never a space, a line break, a quote or
/// another character with a meaning in a configuration file.
pub fn objection(name: &str) -> Option<String> {
    let bare = name.strip_suffix('.').unwrap_or(name);
    if bare.is_empty() {
        return Some("is empty".to_owned());
    }
    if let Some(bad) = bare
        .chars()
        .find(|c| !(c.is_ascii_alphanumeric() || "-_.".contains(*c)))
    {
        return Some(format!("contains {bad:?}; use letters, digits, -, _ and ."));
    }
    if bare.len() > super::merge::limits::SEARCH_LENGTH {
        return Some(format!(
            "has {} characters; a name has at most {}",
            bare.len(),
            super::merge::limits::SEARCH_LENGTH
        ));
    }
    for label in bare.split('.') {
        if label.is_empty() {
            return Some("has consecutive dots or a leading dot".to_owned());
        }
        if label.len() > MAX_LABEL_LENGTH {
            return Some(format!(
                "has a label of {} characters; at most {MAX_LABEL_LENGTH} are allowed",
                label.len()
            ));
        }
        if label.starts_with('-') || label.ends_with('-') {
            return Some(format!("has a label {label:?} that begins or ends with -"));
        }
    }
    None
}

/// Returns a search domain without its trailing dot; `None` if it has invalid characters. It may be
/// too long.
pub(super) fn given_search(word: &str) -> Option<&str> {
    if word == "." {
        return Some(word);
    }
    let bare = word.strip_suffix('.').unwrap_or(word);
    let clean = bare
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    (clean && !bare.is_empty() && !bare.starts_with('.') && !bare.ends_with('.')).then_some(bare)
}

/// Whether the name or value of an option is valid in `resolv.conf` and in a comma-separated list.
pub(super) fn option_word(word: &str) -> bool {
    !word.is_empty()
        && word
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// Whether a word is a valid interface name as the zone of an address.
fn zone_word(word: &str) -> bool {
    !word.is_empty()
        && word.len() <= 15
        && word
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// Parses a nameserver in the notation of `resolv.conf`, systemd, NetworkManager and DHCP clients:
/// an address, optionally with `%zone`, `:port` and `#name`. The zone is kept only for IPv6; an
/// IPv4-mapped address becomes IPv4. `None` for an invalid address, and for a port other than 53,
/// which resolvers do not support.
pub fn server(word: &str) -> Option<(IpAddr, Option<String>)> {
    let word = word.split('#').next().unwrap_or(word);
    let (body, zone) = match word.split_once('%') {
        Some((body, zone)) => (body, Some(zone.trim_end_matches(']'))),
        None => (word, None),
    };
    // The port may follow the zone: systemd writes `[fe80::1]:53%eth0`, others `[fe80::1%eth0]:53`.
    let (zone, port) = match zone.and_then(|zone| zone.split_once("]:").or(zone.split_once(':'))) {
        Some((zone, port)) => (Some(zone), Some(port.parse::<u16>().ok()?)),
        None => (zone, None),
    };
    let inner = body.strip_prefix('[');
    let address = if let Ok(address) = body.parse::<IpAddr>() {
        address
    } else if let Ok(socket) = body.parse::<SocketAddr>() {
        (socket.port() == 53).then_some(socket.ip())?
    } else {
        inner?.trim_end_matches(']').parse().ok()?
    };
    if port.is_some_and(|port| port != 53) {
        return None;
    }
    let address = address.to_canonical();
    let zone = zone.filter(|zone| address.is_ipv6() && zone_word(zone));
    Some((address, zone.map(str::to_owned)))
}

/// Whether a name is `domain` or below it, ignoring case.
pub fn below(name: &str, domain: &str) -> bool {
    let (name, domain) = (name.to_ascii_lowercase(), domain.to_ascii_lowercase());
    name == domain
        || name
            .strip_suffix(&domain)
            .is_some_and(|front| front.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_validated() {
        for good in [
            "a",
            "svc.cluster.local",
            "cluster.local.",
            "_dns.example",
            "EXAMPLE.com",
            "1.2",
        ] {
            assert_eq!(objection(good), None, "{good}");
        }
        let long = "a".repeat(64);
        let longer = ["abcdefghi"; 26].join(".");
        for bad in [
            "",
            ".",
            "a b",
            "a\nnameserver 1.2.3.4",
            "a..b",
            ".a",
            "-a.b",
            "a-.b",
            "a;b",
            "a#b",
            "a,b",
            "~a",
            "ä.de",
            "a\0",
            &long,
            &longer,
        ] {
            assert!(objection(bad).is_some(), "{bad:?}");
        }
    }

    #[test]
    fn servers_are_parsed_in_all_notations() {
        type Expected = Option<(&'static str, Option<&'static str>)>;
        let cases: [(&str, Expected); 15] = [
            ("10.0.0.10", Some(("10.0.0.10", None))),
            ("10.0.0.10:53", Some(("10.0.0.10", None))),
            ("10.0.0.10:5353", None),
            ("10.0.0.10#dns.example", Some(("10.0.0.10", None))),
            ("10.0.0.10%eth0", Some(("10.0.0.10", None))),
            ("10.0.0.10:53%eth0#dns.example", Some(("10.0.0.10", None))),
            ("fd00::10", Some(("fd00::10", None))),
            ("[fd00::10]:53", Some(("fd00::10", None))),
            ("[fd00::10]:853", None),
            ("fe80::1%eth0", Some(("fe80::1", Some("eth0")))),
            ("[fe80::1]:53%eth0#n", Some(("fe80::1", Some("eth0")))),
            ("[fe80::1%eth0]:53", Some(("fe80::1", Some("eth0")))),
            ("[fe80::1%eth0]:54", None),
            ("::ffff:10.0.0.10", Some(("10.0.0.10", None))),
            ("dns.example", None),
        ];
        for (word, expected) in cases {
            let expected = expected.map(|(ip, zone)| (ip.parse().unwrap(), zone.map(str::to_owned)));
            assert_eq!(server(word), expected, "{word}");
        }
    }

    #[test]
    fn below_compares_labels() {
        assert!(below("svc.Cluster.local", "cluster.local"));
        assert!(below("local", "local"));
        assert!(!below("mylocal", "local"));
    }

    proptest! {
        #[test]
        fn no_word_panics(word in "\\PC*") {
            let _ = (objection(&word), server(&word), given_search(&word), option_word(&word));
        }

        #[test]
        fn zones_contain_only_safe_characters(word in "fe80::1%.*") {
            if let Some((_, Some(zone))) = server(&word) {
                prop_assert!(zone_word(&zone));
            }
        }
    }
}
