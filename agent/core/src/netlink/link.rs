//! Network devices (`linux/if_link.h`), with the values of their files in `/sys/class/net` (kernel:
//! `net/core/net-sysfs.c`, `net/core/rtnetlink.c`).

use super::{attributes, long, number, short, text};

/// `RTM_GETLINK`.
pub const GET: u16 = 18;
/// `struct ifinfomsg`.
const HEAD: usize = 16;
/// Returns a request for all devices without counters: `IFLA_EXT_MASK` with
/// `RTEXT_FILTER_SKIP_STATS`.
pub fn request() -> [u8; HEAD + 8] {
    let mut body = [0; HEAD + 8];
    body[HEAD..HEAD + 2].copy_from_slice(&8_u16.to_ne_bytes());
    body[HEAD + 2..HEAD + 4].copy_from_slice(&29_u16.to_ne_bytes());
    body[HEAD + 4..].copy_from_slice(&8_u32.to_ne_bytes());
    body
}

/// Request for all devices with counters.
pub const COUNTERS_REQUEST: [u8; HEAD] = [0; HEAD];

/// Counters of one device in the order of `struct rtnl_link_stats64`: packets, bytes, errors and
/// dropped, each received and transmitted; multicast, collisions; received length, over, CRC,
/// frame, FIFO and missed errors; transmitted aborted, carrier, FIFO, heartbeat and window errors;
/// compressed, received and transmitted; received without a handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkCounters {
    pub name: String,
    pub values: [u64; LinkCounters::COUNT],
}

impl LinkCounters {
    /// Number of counters of a device.
    pub const COUNT: usize = 24;
}

/// Parses the counters in an entry of the dump. `None` if it is truncated, or has no name or
/// counters.
pub fn counters(body: &[u8]) -> Option<LinkCounters> {
    let (mut name, mut values) = (String::new(), None);
    for (kind, value) in attributes(body.get(HEAD..)?) {
        match kind {
            3 => name = text(value),
            // IFLA_STATS64. Kernels before 4.6 do not have the last one.
            23 => {
                let mut all = [0; LinkCounters::COUNT];
                for (at, counter) in all.iter_mut().enumerate() {
                    *counter = match long(value, at * 8) {
                        None if at + 1 == LinkCounters::COUNT => 0,
                        number => number?,
                    };
                }
                values = Some(all);
            }
            _ => {}
        }
    }
    let values = values.filter(|_| !name.is_empty())?;
    Some(LinkCounters { name, values })
}

const IFF_UP: u32 = 1;
const IFF_PROMISC: u32 = 1 << 8;
const IFF_ALLMULTI: u32 = 1 << 9;
const IFF_DORMANT: u32 = 1 << 17;
/// `IFF_RUNNING`, `IFF_LOWER_UP` and `IFF_DORMANT`: netlink adds them to the device's own flags.
const VOLATILE: u32 = 1 << 6 | 1 << 16 | IFF_DORMANT;

/// Network device. Values that the kernel does not report are `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    /// Hardware type, `ARPHRD_*`.
    pub hardware: u16,
    /// Flags, as `flags` in sysfs.
    pub flags: u32,
    /// Whether it is running, which `carrier`, `dormant`, `speed` and `duplex` in sysfs require.
    pub running: bool,
    /// Whether it waits for an external event, e.g. authentication.
    pub dormant: bool,
    /// Hardware address as `aa:bb:…`.
    pub address: String,
    pub broadcast: String,
    /// Operational state, as in `operstate`.
    pub operstate: &'static str,
    /// Alias set by the admin.
    pub alias: String,
    /// Alternative names without duplicates.
    pub other_names: Vec<String>,
    /// Index of the underlying device, or its own.
    pub link: Option<u32>,
    /// MTU in bytes.
    pub mtu: Option<u32>,
    /// Length of the transmit queue in packets.
    pub queue_length: Option<u32>,
    pub group: Option<u32>,
    /// Link mode, `IF_LINK_MODE_*`.
    pub link_mode: Option<u32>,
    pub carrier: Option<u32>,
    pub carrier_changes: Option<u32>,
    /// Number of times that the carrier appeared.
    pub carrier_ups: Option<u32>,
    /// Number of times that the carrier disappeared.
    pub carrier_downs: Option<u32>,
}

/// Parses an entry of the dump. `None` if it is truncated or has no name.
pub fn link(body: &[u8]) -> Option<Link> {
    let shown = number(body, 8)?;
    let mut found = Link {
        hardware: short(body, 2)?,
        index: number(body, 4)?,
        flags: shown & !VOLATILE,
        running: shown & IFF_UP != 0,
        dormant: shown & IFF_DORMANT != 0,
        operstate: "unknown",
        ..Link::default()
    };
    // Absent if it is the device's own index.
    found.link = Some(found.index);
    let mut alias = String::new();
    for (kind, value) in attributes(body.get(HEAD..)?) {
        let byte = || value.first().copied().map(u32::from);
        match kind {
            // IFLA_* by number.
            1 => found.address = colons(value),
            2 => found.broadcast = colons(value),
            3 => found.name = text(value),
            4 => found.mtu = number(value, 0),
            5 => found.link = number(value, 0),
            13 => found.queue_length = number(value, 0),
            16 => found.operstate = operstate(value.first().copied()),
            17 => found.link_mode = byte(),
            20 => alias = text(value),
            27 => found.group = number(value, 0),
            // IFLA_PROMISCUITY and IFLA_ALLMULTI: the flags in netlink show only the admin's
            // setting.
            30 if number(value, 0)? > 0 => found.flags |= IFF_PROMISC,
            33 => found.carrier = byte(),
            35 => found.carrier_changes = number(value, 0),
            47 => found.carrier_ups = number(value, 0),
            48 => found.carrier_downs = number(value, 0),
            // IFLA_PROP_LIST with IFLA_ALT_IFNAME in it.
            52 => {
                let names = attributes(value).filter(|(kind, _)| *kind == 53);
                let names = names.map(|(_, name)| text(name));
                found.other_names.extend(names.filter(|name| !name.is_empty()));
            }
            61 if number(value, 0)? > 0 => found.flags |= IFF_ALLMULTI,
            _ => {}
        }
    }
    alias.trim().clone_into(&mut found.alias);
    (!found.name.is_empty()).then_some(found)
}

fn colons(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
    ];
    let mut text = String::with_capacity(bytes.len() * 3);
    for (index, byte) in bytes.iter().enumerate() {
        if index > 0 {
            text.push(':');
        }
        text.extend([byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]));
    }
    text
}

/// Name of an `IF_OPER_*` state as in sysfs.
fn operstate(state: Option<u8>) -> &'static str {
    match state {
        Some(1) => "notpresent",
        Some(2) => "down",
        Some(3) => "lowerlayerdown",
        Some(4) => "testing",
        Some(5) => "dormant",
        Some(6) => "up",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::{super::made::attribute, *};

    fn head(flags: u32) -> Vec<u8> {
        let mut bytes = vec![0, 0];
        bytes.extend(1_u16.to_ne_bytes());
        bytes.extend(2_u32.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes
    }

    #[test]
    fn device_has_the_values_of_sysfs() {
        let body = [
            head(0x11043),
            attribute(3, b"eth0\0"),
            attribute(13, &1000_u32.to_ne_bytes()),
            attribute(16, &[6]),
            attribute(17, &[0]),
            attribute(4, &1450_u32.to_ne_bytes()),
            attribute(1, &[0x52, 0x54, 0, 0, 0, 0xfe]),
            attribute(20, b"uplink \0"),
            attribute(30, &1_u32.to_ne_bytes()),
            attribute(33, &[1]),
            attribute(35, &5_u32.to_ne_bytes()),
            attribute(52, &[attribute(53, b"enp1s0\0"), attribute(53, b"up\0")].concat()),
        ]
        .concat();
        let found = link(&body).unwrap();
        assert_eq!((found.index, found.name.as_str(), found.hardware), (2, "eth0", 1));
        assert_eq!((found.flags, found.running, found.dormant), (0x1103, true, false));
        assert_eq!(
            (found.address.as_str(), found.operstate),
            ("52:54:00:00:00:fe", "up")
        );
        assert_eq!(
            (found.alias.as_str(), found.link, found.mtu),
            ("uplink", Some(2), Some(1450))
        );
        assert_eq!(
            (found.carrier, found.carrier_changes, found.carrier_ups),
            (Some(1), Some(5), None)
        );
        assert_eq!(found.link_mode, Some(0));
        assert_eq!(found.other_names, ["enp1s0", "up"]);
        assert_eq!(link(&head(1)), None);
        assert_eq!(link(&body[..15]), None);
    }

    #[test]
    fn counters_are_in_kernel_order() {
        let numbers = |count: u64| (1..=count).flat_map(u64::to_ne_bytes).collect::<Vec<u8>>();
        let body = |count| [head(1), attribute(3, b"eth0\0"), attribute(23, &numbers(count))].concat();
        let found = counters(&body(25)).unwrap();
        assert_eq!(
            (found.name.as_str(), found.values[0], found.values[23]),
            ("eth0", 1, 24)
        );
        assert_eq!(counters(&body(23)).unwrap().values[22..], [23, 0]);
        assert_eq!(counters(&body(22)), None);
        assert_eq!(counters(&head(1)), None);
    }

    #[test]
    fn operational_states_have_names() {
        for (state, word) in [(0, "unknown"), (2, "down"), (6, "up"), (9, "unknown")] {
            assert_eq!(operstate(Some(state)), word);
        }
    }
}
