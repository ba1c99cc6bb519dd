//! Addresses from procfs files of another root: `net/fib_trie`, `net/route` and `net/if_inet6`.
//!
//! The kernel lists local IPv4 addresses in the trie without interface; the connected routes in
//! `net/route` have interface and prefix length.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Address, prefix length and interface.
pub type Addressed = (IpAddr, u8, String);

/// Parses `net/if_inet6`: address, index, prefix length (both hexadecimal), scope, flags,
/// interface.
pub fn ipv6(if_inet6: &str) -> Vec<Addressed> {
    if_inet6
        .lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [address, _, prefix, _, _, name] = fields[..] else {
                return None;
            };
            let bits = (address.len() == 32).then(|| u128::from_str_radix(address, 16).ok())??;
            let prefix = u8::from_str_radix(prefix, 16)
                .ok()
                .filter(|prefix| *prefix <= 128)?;
            Some((Ipv6Addr::from_bits(bits).into(), prefix, name.to_owned()))
        })
        .collect()
}

/// Parses `net/fib_trie`, and finds the interface of each address by the connected routes in
/// `net/route`. An address without connected route is left out, except 127.0.0.0/8, which is on
/// `lo`.
pub fn ipv4(fib_trie: &str, route: &str) -> Vec<Addressed> {
    let connected: Vec<(u32, u32, &str)> = route.lines().skip(1).filter_map(connected_route).collect();
    let mut found: Vec<Addressed> = Vec::new();
    for address in local_addresses(fib_trie) {
        let bits = address.to_bits();
        let through = connected
            .iter()
            .filter(|(net, mask, _)| bits & mask == *net)
            .max_by_key(|(_, mask, _)| *mask);
        let placed = match through {
            Some((_, mask, name)) => (address.into(), prefix_length(*mask), (*name).to_owned()),
            None if address.is_loopback() => (address.into(), 8, "lo".to_owned()),
            None => continue,
        };
        if !found.contains(&placed) {
            found.push(placed);
        }
    }
    found
}

fn prefix_length(mask: u32) -> u8 {
    u8::try_from(mask.leading_ones()).unwrap_or(32)
}

/// Addresses with `/32 host LOCAL` below `|-- address`.
fn local_addresses(fib_trie: &str) -> impl Iterator<Item = Ipv4Addr> {
    let mut last = None;
    fib_trie.lines().filter_map(move |line| {
        let line = line.trim();
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
            return None;
        }
        last.filter(|_| line == "/32 host LOCAL")
    })
}

/// Destination and mask in host order, and the interface, of a route without gateway. The file has
/// both as little-endian hexadecimal words (on every machine that KubeVirt supports).
fn connected_route(line: &str) -> Option<(u32, u32, &str)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [name, destination, gateway, _, _, _, _, mask, ..] = fields[..] else {
        return None;
    };
    let word = |text: &str| u32::from_str_radix(text, 16).ok().map(u32::swap_bytes);
    let (net, mask) = (word(destination)?, word(mask)?);
    (word(gateway)? == 0 && mask != 0).then_some((net, mask, name))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TRIE: &str = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     +-- 127.0.0.0/8 2 0 2\n\
        \x20          |-- 127.0.0.1\n              /32 host LOCAL\n           |-- 10.0.2.15\n              /32 host LOCAL\n\
        \x20       |-- 10.0.2.255\n           /32 link BROADCAST\n           |-- 192.168.9.9\n              /32 host LOCAL\n\
        Local:\n           |-- 10.0.2.15\n              /32 host LOCAL\n";
    const ROUTE: &str = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
        eth0\t00000000\t0202000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
        eth0\t0002000A\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n";

    #[test]
    fn addresses_are_assigned_to_interfaces() {
        let found: Vec<_> = ipv4(TRIE, ROUTE)
            .into_iter()
            .map(|(address, prefix, name)| format!("{name} {address}/{prefix}"))
            .collect();
        assert_eq!(found, ["lo 127.0.0.1/8", "eth0 10.0.2.15/24"]);
        let found = ipv6(
            "00000000000000000000000000000001 01 80 10 80       lo\nfe8000000000000000fc00fffe000001 04 40 20 80     eth0\n\
             nonsense\nfe80 04 40 20 80 eth0\n",
        );
        let found: Vec<_> = found
            .iter()
            .map(|(address, prefix, name)| format!("{name} {address}/{prefix}"))
            .collect();
        assert_eq!(found, ["lo ::1/128", "eth0 fe80::fc:ff:fe00:1/64"]);
    }

    proptest! {
        #[test]
        fn no_text_panics(a in "(\\|-- |10.0.0.1|/32 host LOCAL|\n| ){0,20}", b in "[0-9A-F\t\n a-z]{0,120}") {
            ipv4(&a, &b);
            ipv6(&b);
        }
    }
}
