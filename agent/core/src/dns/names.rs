//! Names and words that may stand in a configuration file, and servers as these files write them.

use std::net::{IpAddr, SocketAddr};

/// The longest label (RFC 1035, 2.3.4).
const LABEL: usize = 63;

/// What is wrong with a domain name; none when it may be asked for. Letters, digits, `-` and `_`, as Kubernetes lets search domains pass; one dot may stand
/// at the end. Never a blank, a line break, a quote or anything else that means something in a configuration file.
pub fn objection(name: &str) -> Option<String> {
    let bare = name.strip_suffix('.').unwrap_or(name);
    if bare.is_empty() {
        return Some("is empty".to_owned());
    }
    if let Some(bad) = bare
        .chars()
        .find(|c| !(c.is_ascii_alphanumeric() || "-_.".contains(*c)))
    {
        return Some(format!("has {bad:?} in it; letters, digits, -, _ and . may be"));
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
            return Some("has two dots in a row, or one at the beginning".to_owned());
        }
        if label.len() > LABEL {
            return Some(format!(
                "has a part of {} characters; at most {LABEL} may be",
                label.len()
            ));
        }
        if label.starts_with('-') || label.ends_with('-') {
            return Some(format!("has a part {label:?} that begins or ends with -"));
        }
    }
    None
}

/// A search domain that somebody gave, without the dot at its end; none when it has anything in it that a name has not. It may be too long.
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

/// Whether an option's name or value may stand in `resolv.conf`, and in a list with commas.
pub(super) fn option_word(word: &str) -> bool {
    !word.is_empty()
        && word
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// An interface's name, as a zone of an address.
fn zone_word(word: &str) -> bool {
    !word.is_empty()
        && word.len() <= 15
        && word
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// A server as `resolv.conf`, systemd, NetworkManager and DHCP clients write it: an address, maybe with `%zone`, `:port` and `#name`. A zone is kept for IPv6 alone;
/// IPv4 in IPv6 (`::ffff:10.0.0.10`) becomes IPv4. None for what is no address, and for another port than 53: a resolver could not be told.
pub fn server(word: &str) -> Option<(IpAddr, Option<String>)> {
    let word = word.split('#').next().unwrap_or(word);
    let (body, zone) = match word.split_once('%') {
        Some((body, zone)) => (body, Some(zone.trim_end_matches(']'))),
        None => (word, None),
    };
    // A port may stand behind the zone: `[fe80::1]:53%eth0` is systemd's order, `[fe80::1%eth0]:53` everybody else's.
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

/// Whether a name is `domain` or lies below it; the case of letters means nothing.
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
    fn names_that_may_be_asked_for() {
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
    fn servers_as_files_write_them() {
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
    fn below_is_by_labels() {
        assert!(below("svc.Cluster.local", "cluster.local"));
        assert!(below("local", "local"));
        assert!(!below("mylocal", "local"));
    }

    proptest! {
        #[test]
        fn no_word_is_too_odd(word in "\\PC*") {
            let _ = (objection(&word), server(&word), given_search(&word), option_word(&word));
        }

        #[test]
        fn a_zone_never_breaks_a_file(word in "fe80::1%.*") {
            if let Some((_, Some(zone))) = server(&word) {
                prop_assert!(zone_word(&zone));
            }
        }
    }
}
