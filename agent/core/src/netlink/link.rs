//! Network devices (`linux/if_link.h`), told as their files under `/sys/class/net` tell them
//! (kernel: `net/core/net-sysfs.c`, `net/core/rtnetlink.c`).

use super::{attributes, long, number, short, text};

/// `RTM_GETLINK`.
pub const GET: u16 = 18;
/// `struct ifinfomsg`.
const HEAD: usize = 16;
/// A request for all devices without their counters: `IFLA_EXT_MASK` with `RTEXT_FILTER_SKIP_STATS`.
pub fn request() -> [u8; HEAD + 8] {
    let mut body = [0; HEAD + 8];
    body[HEAD..HEAD + 2].copy_from_slice(&8_u16.to_ne_bytes());
    body[HEAD + 2..HEAD + 4].copy_from_slice(&29_u16.to_ne_bytes());
    body[HEAD + 4..].copy_from_slice(&8_u32.to_ne_bytes());
    body
}

/// A request for all devices with their counters.
pub const COUNTERS_REQUEST: [u8; HEAD] = [0; HEAD];

/// The counters of one device, in the order of `struct rtnl_link_stats64`: packets, bytes, errors and dropped, each
/// received and transmitted; multicast, collisions; received length, over, CRC, frame, FIFO and missed errors; transmitted
/// aborted, carrier, FIFO, heartbeat and window errors; compressed, received and transmitted; received without a handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkCounters {
    /// The device's name.
    pub name: String,
    /// The counters.
    pub values: [u64; LinkCounters::COUNT],
}

impl LinkCounters {
    /// How many counters a device has.
    pub const COUNT: usize = 24;
}

/// The counters in an entry of the dump. None if it is cut, or has no name or no counters.
pub fn counters(body: &[u8]) -> Option<LinkCounters> {
    let (mut name, mut values) = (String::new(), None);
    for (kind, value) in attributes(body.get(HEAD..)?) {
        match kind {
            3 => name = text(value),
            // IFLA_STATS64. Kernels before 4.6 have no last one.
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

/// One network device. What a kernel does not tell is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its hardware's type, `ARPHRD_*`.
    pub hardware: u16,
    /// Its own flags, as `flags` in sysfs.
    pub flags: u32,
    /// Whether it is set up, which `carrier`, `dormant`, `speed` and `duplex` need in sysfs.
    pub running: bool,
    /// Whether it waits for something outside, e.g. an authentication.
    pub dormant: bool,
    /// Its address, as `aa:bb:…`.
    pub address: String,
    /// Its broadcast address.
    pub broadcast: String,
    /// Its state, as in `operstate`.
    pub operstate: &'static str,
    /// What its admin calls it.
    pub alias: String,
    /// Its other names, each once.
    pub other_names: Vec<String>,
    /// The number of the device that it stands on, or its own.
    pub link: Option<u32>,
    /// Its largest packet, in bytes.
    pub mtu: Option<u32>,
    /// Packets that its queue may hold.
    pub queue_length: Option<u32>,
    /// Its group.
    pub group: Option<u32>,
    /// How its state is found, `IF_LINK_MODE_*`.
    pub link_mode: Option<u32>,
    /// Whether it has a carrier.
    pub carrier: Option<u32>,
    /// How often the carrier changed.
    pub carrier_changes: Option<u32>,
    /// How often it came.
    pub carrier_ups: Option<u32>,
    /// How often it went.
    pub carrier_downs: Option<u32>,
}

/// An entry of the dump. None if it is cut or has no name.
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
    // Absent when it is the device's own.
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
            // IFLA_PROMISCUITY and IFLA_ALLMULTI: netlink shows these flags only when the admin set them.
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

/// `IF_OPER_*`, in sysfs' words.
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
    fn a_device_as_sysfs_shows_it() {
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
    fn counters_by_place() {
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
    fn words_for_states() {
        for (state, word) in [(0, "unknown"), (2, "down"), (6, "up"), (9, "unknown")] {
            assert_eq!(operstate(Some(state)), word);
        }
    }
}
