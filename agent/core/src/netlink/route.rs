//! Routes (`linux/rtnetlink.h`).

use std::net::IpAddr;

use super::{attributes, number, short};

/// `RTM_GETROUTE`.
pub const GET: u16 = 26;
/// `struct rtmsg`.
const HEAD: usize = 12;
/// Request for the routes of all address families and tables.
pub const REQUEST: [u8; HEAD] = [0; HEAD];
/// `struct rtnexthop`.
const NEXT_HOP: usize = 8;
/// `RTN_UNICAST`.
const UNICAST: u8 = 1;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Route {
    /// Whether it is a unicast route: not local, broadcast, multicast or a rejecting one.
    pub unicast: bool,
    /// Origin, `RTPROT_*`.
    pub protocol: u8,
    /// Destination; `None` or a prefix length of 0 for the default route.
    pub destination: Option<IpAddr>,
    /// Prefix length of the destination.
    pub length: u8,
    /// Preferred source address.
    pub source: Option<IpAddr>,
    /// Priority (metric); lower values take precedence.
    pub priority: u32,
    /// Next hop, or several that share the load.
    pub hops: Vec<Hop>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hop {
    /// Index of the interface; 0 for none.
    pub device: u32,
    pub gateway: Option<IpAddr>,
    /// Weight, if it is one of several.
    pub weight: Option<u16>,
}

/// Parses an entry of the dump. `None` if it is truncated.
pub fn route(body: &[u8]) -> Option<Route> {
    let mut found = Route {
        length: *body.get(1)?,
        protocol: *body.get(5)?,
        unicast: *body.get(7)? == UNICAST,
        ..Route::default()
    };
    let mut only = Hop::default();
    for (kind, value) in attributes(body.get(HEAD..)?) {
        match kind {
            // RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_PRIORITY, RTA_PREFSRC, RTA_MULTIPATH.
            1 => found.destination = address(value),
            4 => only.device = number(value, 0)?,
            5 => only.gateway = address(value),
            6 => found.priority = number(value, 0)?,
            7 => found.source = address(value),
            9 => found.hops = hops(value),
            _ => {}
        }
    }
    if found.hops.is_empty() {
        found.hops.push(only);
    }
    Some(found)
}

fn hops(mut bytes: &[u8]) -> Vec<Hop> {
    let mut all = Vec::new();
    while let (Some(length), Some(device)) = (short(bytes, 0), number(bytes, 4)) {
        let length = usize::from(length);
        let Some(inner) = bytes.get(NEXT_HOP..length) else {
            break;
        };
        // RTA_GATEWAY.
        let gateway = attributes(inner).find(|(kind, _)| *kind == 5);
        all.push(Hop {
            device,
            gateway: gateway.and_then(|(_, value)| address(value)),
            // The kernel counts from 0.
            weight: Some(u16::from(bytes[3]) + 1),
        });
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    all
}

fn address(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => Some(IpAddr::from(*value.first_chunk::<4>()?)),
        16 => Some(IpAddr::from(*value.first_chunk::<16>()?).to_canonical()),
        _ => None,
    }
}

/// Name of a route's origin as in node_exporter.
pub fn protocol_name(protocol: u8) -> &'static str {
    match protocol {
        0 => "unspec",
        1 => "redirect",
        2 => "kernel",
        3 => "boot",
        4 => "static",
        8 => "gated",
        9 => "ra",
        10 => "mrt",
        11 => "zebra",
        12 => "bird",
        13 => "dnrouted",
        14 => "xorp",
        15 => "ntk",
        16 => "dhcp",
        17 => "mrouted",
        42 => "babel",
        186 => "bgp",
        187 => "isis",
        188 => "ospf",
        189 => "rip",
        192 => "eigrp",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::{super::made::attribute, *};

    #[test]
    fn routes_with_one_and_several_hops() {
        let head = [2, 24, 0, 0, 254, 2, 253, UNICAST, 0, 0, 0, 0];
        let body = [
            head.to_vec(),
            attribute(1, &[10, 0, 0, 0]),
            attribute(4, &3_u32.to_ne_bytes()),
            attribute(7, &[10, 0, 0, 7]),
            attribute(6, &100_u32.to_ne_bytes()),
        ]
        .concat();
        let found = route(&body).unwrap();
        assert!(found.unicast);
        assert_eq!((found.length, found.protocol, found.priority), (24, 2, 100));
        assert_eq!(found.destination, Some([10, 0, 0, 0].into()));
        assert_eq!(found.source, Some([10, 0, 0, 7].into()));
        assert_eq!(
            found.hops,
            [Hop {
                device: 3,
                ..Hop::default()
            }]
        );

        let way = |device: u8, gateway: u8| {
            let inner = attribute(5, &[10, 0, 0, gateway]);
            let length = u8::try_from(8 + inner.len()).unwrap();
            [vec![length, 0, 0, 4, device, 0, 0, 0], inner].concat()
        };
        let body = [head.to_vec(), attribute(9, &[way(2, 1), way(3, 2)].concat())].concat();
        if cfg!(target_endian = "little") {
            let hops = route(&body).unwrap().hops;
            assert_eq!(hops.len(), 2);
            assert_eq!((hops[1].device, hops[1].weight), (3, Some(5)));
            assert_eq!(hops[0].gateway, Some([10, 0, 0, 1].into()));
        }
        assert_eq!(route(&head[..11]), None);
        assert_eq!((protocol_name(186), protocol_name(99)), ("bgp", "unknown"));
    }
}
