//! Which names a resolver looks up for a name, and what `/etc/hosts` has for it: resolv.conf(5),
//! hosts(5).

use std::net::IpAddr;

use super::ResolvConf;

/// Maximum names that are looked up for one name.
pub const MAX_CANDIDATES: usize = 8;
/// `ndots` if the options do not set it.
const DEFAULT_NDOTS: usize = 1;
/// Maximum of `ndots`, as in glibc.
const MAX_NDOTS: usize = 15;

/// The names to look up, in order: `name` itself and `name` below each search domain. A name with
/// at least `ndots` dots is looked up as it is first. A trailing dot excludes the search domains.
pub fn candidates(name: &str, conf: &ResolvConf) -> Vec<String> {
    if let Some(absolute) = name.strip_suffix('.') {
        return vec![absolute.to_owned()];
    }
    let ndots = conf.options.iter().find(|option| option.name == "ndots");
    let ndots = ndots.and_then(|option| option.value.as_deref()?.parse().ok());
    let ndots = ndots.unwrap_or(DEFAULT_NDOTS).min(MAX_NDOTS);
    let below = conf.searches.iter().filter(|search| *search != ".");
    let mut names: Vec<String> = below.map(|search| format!("{name}.{search}")).collect();
    // The name itself is never cut off.
    names.truncate(MAX_CANDIDATES - 1);
    let is_first = name.matches('.').count() >= ndots;
    names.insert(if is_first { 0 } else { names.len() }, name.to_owned());
    names
}

/// The addresses of `name` in a hosts(5) file, in order.
pub fn in_hosts(text: &str, name: &str) -> Vec<IpAddr> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default());
    lines
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let address = words.next()?.parse().ok()?;
            words
                .any(|word| word.eq_ignore_ascii_case(name))
                .then_some(address)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::resolv::parse;

    #[test]
    fn search_domains_are_used_as_in_glibc() {
        let conf = parse("search a.example b.example\noptions ndots:2\n");
        let names = |name: &str| candidates(name, &conf).join(" ");
        assert_eq!(names("relay"), "relay.a.example relay.b.example relay");
        assert_eq!(
            names("relay.ns"),
            "relay.ns.a.example relay.ns.b.example relay.ns"
        );
        assert_eq!(
            names("relay.ns.svc"),
            "relay.ns.svc relay.ns.svc.a.example relay.ns.svc.b.example"
        );
        assert_eq!(names("relay."), "relay");
        let plain = parse("search .\noptions ndots:x\n");
        assert_eq!(candidates("relay", &plain), ["relay"]);
        let many = parse(&format!(
            "search {}\noptions ndots:99\n",
            "a b c d e f g h i j k l"
        ));
        let names = candidates("a.b.c", &many);
        assert_eq!((names.len(), names[7].as_str()), (MAX_CANDIDATES, "a.b.c"));
    }

    #[test]
    fn hosts_are_matched_by_every_name_of_a_line() {
        let text = "# 10.0.0.1 relay\n10.0.0.2 first relay # relay2\n::1 RELAY\nnonsense relay\n\n10.0.0.3\n";
        let found = |name: &str| {
            let found = in_hosts(text, name);
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(found("relay"), ["10.0.0.2", "::1"]);
        assert_eq!(found("relay."), ["10.0.0.2", "::1"]);
        assert!(found("relay2").is_empty() && found("nonsense").is_empty());
    }
}
