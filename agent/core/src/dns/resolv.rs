//! Content of resolv.conf(5).

use std::{collections::BTreeMap, net::IpAddr};

use serde::{Deserialize, Serialize};
use virtfleet_wire::settings::DnsOption;

use super::names;

/// Resolver configuration: nameservers, search domains and options, each in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResolvConf {
    /// Nameservers without duplicates. IPv4-mapped IPv6 addresses are stored as IPv4.
    pub nameservers: Vec<IpAddr>,
    /// Search domains without trailing dot; `.` is the root.
    pub searches: Vec<String>,
    /// Options with unique names.
    pub options: Vec<DnsOption>,
    /// Interface names of link-local IPv6 nameservers. For a nameserver on several interfaces, the
    /// first one is used.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub zones: BTreeMap<IpAddr, String>,
}

impl ResolvConf {
    /// Formats the file: the header as comments, then the nameservers, one `search` and one
    /// `options` line.
    pub fn text(&self, header: &str) -> String {
        let mut text = String::new();
        for line in header.lines() {
            let mark = if line.starts_with('#') { "" } else { "# " };
            text.extend([mark, line, "\n"]);
        }
        for nameserver in &self.nameservers {
            text.extend(["nameserver ", &self.shown(*nameserver), "\n"]);
        }
        if !self.searches.is_empty() {
            text.extend(["search ", &self.searches.join(" "), "\n"]);
        }
        if !self.options.is_empty() {
            text.extend(["options ", &self.option_words().join(" "), "\n"]);
        }
        text
    }

    /// Formats a nameserver with its zone, e.g. `fe80::1%eth0`.
    pub fn shown(&self, nameserver: IpAddr) -> String {
        match self.zones.get(&nameserver) {
            Some(zone) => format!("{nameserver}%{zone}"),
            None => nameserver.to_string(),
        }
    }

    /// Formats all nameservers with their zones.
    pub fn shown_nameservers(&self) -> Vec<String> {
        self.nameservers.iter().map(|one| self.shown(*one)).collect()
    }

    /// Formats the options as `name` or `name:value`.
    pub fn option_words(&self) -> Vec<String> {
        self.options.iter().map(option_word).collect()
    }

    /// Adds a nameserver in file notation, if it is valid and new.
    pub(super) fn add_server(&mut self, word: &str) {
        if let Some((address, zone)) = names::server(word) {
            self.add_nameserver(address, zone);
        }
    }

    /// Adds a nameserver, if it is new.
    pub(super) fn add_nameserver(&mut self, address: IpAddr, zone: Option<String>) {
        let address = address.to_canonical();
        if !self.nameservers.contains(&address) {
            self.nameservers.push(address);
            self.zones.extend(zone.map(|zone| (address, zone)));
        }
    }

    /// Adds a search domain without its trailing dot, if it is valid and new.
    pub(super) fn add_search(&mut self, word: &str) {
        if let Some(search) = names::given_search(word)
            && !self.searches.iter().any(|one| one == search)
        {
            self.searches.push(search.to_owned());
        }
    }

    /// Sets an option; it replaces one of the same name in its position.
    pub(super) fn set_option(&mut self, option: DnsOption) {
        match self.options.iter_mut().find(|one| one.name == option.name) {
            Some(there) => *there = option,
            None => self.options.push(option),
        }
    }

    /// Appends the values of another configuration.
    pub fn append(&mut self, other: &Self) {
        for nameserver in &other.nameservers {
            self.add_nameserver(*nameserver, other.zones.get(nameserver).cloned());
        }
        for search in &other.searches {
            self.add_search(search);
        }
    }
}

/// Formats an option as `name` or `name:value`; an empty value is omitted, as in kubelet.
pub fn option_word(option: &DnsOption) -> String {
    match option.value.as_deref() {
        Some("") | None => option.name.clone(),
        Some(value) => format!("{}:{value}", option.name),
    }
}

fn parse_option(word: &str) -> Option<DnsOption> {
    let (name, value) = match word.split_once(':') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    };
    let value = value.filter(|value| !value.is_empty());
    let clean = names::option_word(name) && value.is_none_or(names::option_word);
    clean.then(|| DnsOption {
        name: name.to_owned(),
        value: value.map(str::to_owned),
    })
}

/// Parses a resolv.conf like kubelet (`parseResolvConf`) and, where kubelet leaves it open, like
/// glibc.
///
/// - Nameservers add up; all are kept, although glibc uses three. Duplicates are dropped.
/// - The last `search` line is used (both). `domain` is a search line with one word (glibc; kubelet
///   does not support it).
/// - The last `options` line is used (kubelet; in glibc the lines add up).
/// - A trailing dot of a search domain is removed, except for `.` (kubelet).
/// - Spaces before a keyword are allowed (kubelet; glibc ignores such a line). A line that begins
///   with `#` or `;` is a comment. Words after the address of a nameserver are ignored (glibc), and
///   so is the rest of the line from a word that begins with `#` or `;`.
/// - An invalid address, name or option is dropped, because the values are written to other files
///   later.
pub fn parse(text: &str) -> ResolvConf {
    let mut conf = ResolvConf::default();
    for line in text.lines() {
        let mut words = line
            .split_ascii_whitespace()
            .take_while(|word| !word.starts_with(['#', ';']));
        match words.next() {
            Some("nameserver") => {
                if let Some(word) = words.next() {
                    conf.add_server(word);
                }
            }
            Some("search") => {
                conf.searches.clear();
                words.for_each(|word| conf.add_search(word));
            }
            Some("domain") => {
                conf.searches.clear();
                words.take(1).for_each(|word| conf.add_search(word));
            }
            Some("options") => {
                conf.options.clear();
                for option in words.filter_map(parse_option) {
                    conf.set_option(option);
                }
            }
            _ => {}
        }
    }
    conf
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn option(name: &str, value: Option<&str>) -> DnsOption {
        DnsOption {
            name: name.to_owned(),
            value: value.map(str::to_owned),
        }
    }

    #[test]
    fn last_search_and_options_lines_are_used() {
        let conf = parse(
            "# comment\n; another\nsearch old.example\nnameserver 10.0.0.10 trailing\n  nameserver fe80::1%eth0\nnameserver\n\
             nameserver nonsense\noptions ndots:1 rotate\nsearch a.example. b.example . # c.example\noptions ndots:5 edns0 ndots:2\nsortlist 1.2.3.4\n",
        );
        assert_eq!(
            conf.nameservers,
            ["10.0.0.10".parse::<IpAddr>().unwrap(), "fe80::1".parse().unwrap()]
        );
        assert_eq!(conf.shown_nameservers(), ["10.0.0.10", "fe80::1%eth0"]);
        assert_eq!(conf.searches, ["a.example", "b.example", "."]);
        assert_eq!(conf.options, [option("ndots", Some("2")), option("edns0", None)]);
    }

    #[test]
    fn domain_is_a_search_line_with_one_word() {
        assert_eq!(parse("search a b\ndomain c d\n").searches, ["c"]);
        assert_eq!(parse("domain c\nsearch a b\n").searches, ["a", "b"]);
        assert!(parse("search a\nsearch\n").searches.is_empty());
    }

    #[test]
    fn unsafe_words_are_dropped() {
        let conf = parse(
            "search a=b ~. $(x) ok.example \"q\" ;x\noptions a,b ndots:1]x use-vc\nnameserver 1.2.3.4;\n",
        );
        assert_eq!(conf.searches, ["ok.example"]);
        assert_eq!(conf.option_words(), ["use-vc"]);
        assert!(conf.nameservers.is_empty());
    }

    #[test]
    fn text_has_header_nameservers_search_options() {
        let conf = parse(
            "options ndots:5 edns0\nsearch a b\nnameserver ::ffff:10.0.0.10\nnameserver fe80::1%eth0\n",
        );
        assert_eq!(
            conf.text("one\n# two"),
            "# one\n# two\nnameserver 10.0.0.10\nnameserver fe80::1%eth0\nsearch a b\noptions ndots:5 edns0\n"
        );
        assert_eq!(ResolvConf::default().text(""), "");
    }

    proptest! {
        #[test]
        fn any_bytes_round_trip(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let conf = parse(&String::from_utf8_lossy(&bytes));
            prop_assert_eq!(parse(&conf.text("x")), conf);
        }

        #[test]
        fn random_keyword_lines_round_trip(lines in proptest::collection::vec(
            "(nameserver|search|options|domain|;|#)( (10\\.0\\.0\\.[0-9]|fe80::[1-9]%[a-z]{1,16}|[a-z.:%#;=-]{1,9})){0,5}", 0..12)
        ) {
            let conf = parse(&lines.join("\n"));
            prop_assert_eq!(parse(&conf.text("x\ny")), conf);
        }
    }
}
