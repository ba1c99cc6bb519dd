//! Address ranges that are dialled only if the settings name them: loopback, link-local, multicast
//! and others.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// A special range that contains an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpecialRange {
    /// What the range is, e.g. `loopback`.
    pub name: &'static str,
    pub range: IpNet,
}

impl fmt::Display for SpecialRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.range)
    }
}

pub(crate) const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix))
}
pub(crate) const fn v6(first: u16, prefix: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(
        Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, 0),
        prefix,
    ))
}

const SPECIAL: [(&str, IpNet); 9] = [
    ("loopback", v4(127, 0, 0, 0, 8)),
    (
        "loopback",
        IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128)),
    ),
    ("link-local", v4(169, 254, 0, 0, 16)),
    ("link-local", v6(0xfe80, 10)),
    ("multicast", v4(224, 0, 0, 0, 4)),
    ("multicast", v6(0xff00, 8)),
    ("unspecified", v4(0, 0, 0, 0, 8)),
    ("unspecified", v6(0, 128)),
    ("broadcast", v4(255, 255, 255, 255, 32)),
];

/// Checks whether an address is outside of all special ranges, or in one of `allow` that lies
/// wholly inside its range. An IPv4-mapped IPv6 address is checked as the IPv4 address.
///
/// # Errors
/// The special range.
pub fn check_special(address: IpAddr, allow: &[IpNet]) -> Result<(), SpecialRange> {
    check_ranges(SPECIAL.iter().copied(), address.to_canonical(), allow)
}

/// As [`check_special`], with these ranges.
pub(crate) fn check_ranges(
    mut ranges: impl Iterator<Item = (&'static str, IpNet)>,
    address: IpAddr,
    allow: &[IpNet],
) -> Result<(), SpecialRange> {
    let opens = |range: &IpNet, allowed: &IpNet| range.contains(allowed) && allowed.contains(&address);
    let closed = ranges
        .find(|(_, range)| range.contains(&address) && !allow.iter().any(|allowed| opens(range, allowed)));
    closed.map_or(Ok(()), |(name, range)| Err(SpecialRange { name, range }))
}
