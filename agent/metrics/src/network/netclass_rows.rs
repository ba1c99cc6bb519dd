//! The properties of network devices: from one netlink dump for the running machine, from
//! `/sys/class/net` for other roots.
//!
//! One dump replaces about 25 files per device. Properties that netlink lacks are read from sysfs:
//! speed and duplex at each scrape, rarely changing ones once a minute.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use virtfleet_agent_core::netlink::link::Link;
use virtfleet_agent_host::{Folder, NetworkCalls, Roots};

use super::{devices, query_error};
use crate::CollectError;
use virtfleet_agent_core::settings::NameFilter;

/// How long rarely changing properties are cached.
const CACHE_TIME: Duration = Duration::from_mins(1);

/// Numbers of a device: the file and the family after `node_network_`.
pub(super) const NUMBERS: [(&str, &str); 17] = [
    ("addr_assign_type", "address_assign_type"),
    ("carrier", "carrier"),
    ("carrier_changes", "carrier_changes_total"),
    ("carrier_up_count", "carrier_up_changes_total"),
    ("carrier_down_count", "carrier_down_changes_total"),
    ("dev_id", "device_id"),
    ("dormant", "dormant"),
    ("flags", "flags"),
    ("ifindex", "iface_id"),
    ("iflink", "iface_link"),
    ("link_mode", "iface_link_mode"),
    ("mtu", "mtu_bytes"),
    ("name_assign_type", "name_assign_type"),
    ("netdev_group", "net_dev_group"),
    ("speed", "speed_bytes"),
    ("tx_queue_len", "transmit_queue_length"),
    ("type", "protocol_type"),
];
/// Index of the number whose file is in Mbit/s.
pub(super) const SPEED: usize = 14;
/// Indexes of numbers that netlink lacks and that change only when a device is created, renamed or
/// gets an address.
const STEADY: [usize; 3] = [0, 5, 12];
/// `ARPHRD_LOOPBACK`: such a device has no speed or duplex.
const LOOPBACK: u32 = 772;
/// `IFF_UP`.
const UP: i64 = 1;
const FLAGS: usize = 7;
/// Index of the device's interface index.
const INDEX: usize = 8;

/// Properties of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) address: String,
    pub(super) broadcast: String,
    pub(super) duplex: String,
    pub(super) operstate: String,
    pub(super) alias: String,
    /// Alternative names, which sysfs does not have.
    pub(super) other_names: Vec<String>,
    /// By index in [`NUMBERS`]. `None` if the device or the kernel has no value.
    pub(super) numbers: [Option<i64>; NUMBERS.len()],
}

impl Row {
    /// Whether an admin has set it up.
    pub(super) fn admin_state(&self) -> &'static str {
        match self.numbers[FLAGS] {
            None => "unknown",
            Some(flags) if flags & UP != 0 => "up",
            Some(_) => "down",
        }
    }
}

/// The rarely changing properties of a device, and the device that they belong to.
struct Steady {
    name: String,
    address: String,
    read: Instant,
    numbers: [Option<i64>; STEADY.len()],
}

/// Reads the properties.
pub(super) struct Rows {
    network: Arc<dyn NetworkCalls>,
    roots: Roots,
    /// By interface index.
    steady: HashMap<u32, Steady>,
    buffer: Vec<u8>,
}

impl Rows {
    pub(super) fn new(network: Arc<dyn NetworkCalls>, roots: Roots) -> Self {
        Self {
            network,
            roots,
            steady: HashMap::new(),
            buffer: Vec::new(),
        }
    }

    /// The devices that the filter does not exclude.
    pub(super) fn read(&mut self, filter: &mut NameFilter) -> Result<Vec<Row>, CollectError> {
        // Netlink describes this process's network namespace, and so does only `/sys`.
        if self.roots.sysfs == Path::new("/sys") {
            let links = self.network.links().map_err(query_error("the network devices"))?;
            let present: HashSet<u32> = links.iter().map(|link| link.index).collect();
            self.steady.retain(|index, _| present.contains(index));
            let taken = links.into_iter().filter(|link| filter.takes(&link.name));
            return Ok(taken.map(|link| self.netlink_row(link)).collect());
        }
        let mut rows = Vec::new();
        for name in devices(&self.roots.sys("class/net"))? {
            if filter.takes(&name) {
                rows.push(self.sysfs_row(name));
            }
        }
        Ok(rows)
    }

    fn netlink_row(&mut self, link: Link) -> Row {
        let mut row = Row {
            duplex: String::new(),
            operstate: link.operstate.to_owned(),
            alias: link.alias,
            other_names: link.other_names,
            ..Row::default()
        };
        let number = |number: Option<u32>| number.map(i64::from);
        row.numbers[1] = number(link.carrier.filter(|_| link.running));
        row.numbers[2] = number(link.carrier_changes);
        row.numbers[3] = number(link.carrier_ups);
        row.numbers[4] = number(link.carrier_downs);
        row.numbers[6] = link.running.then_some(i64::from(link.dormant));
        row.numbers[FLAGS] = Some(link.flags.into());
        row.numbers[INDEX] = Some(link.index.into());
        // The file of a tunnel without a lower device sometimes contains -1.
        row.numbers[9] = link.link.map(|link| link.cast_signed().into());
        row.numbers[10] = number(link.link_mode);
        row.numbers[11] = number(link.mtu);
        row.numbers[13] = number(link.group);
        row.numbers[15] = number(link.queue_length);
        row.numbers[16] = Some(link.hardware.into());
        // Opened on demand.
        let path = || self.roots.sys("class/net").join(&link.name);
        let mut folder = None;
        if link.running && u32::from(link.hardware) != LOOPBACK {
            folder = Folder::open(&path()).ok();
            row.numbers[SPEED] = number_in(folder.as_ref(), SPEED, &mut self.buffer);
            row.duplex = word_in(folder.as_ref(), "duplex", &mut self.buffer);
        }
        let known = self.steady.get(&link.index).filter(|known| {
            known.name == link.name && known.address == link.address && known.read.elapsed() < CACHE_TIME
        });
        let known = known.map(|known| known.numbers);
        let steady = known.unwrap_or_else(|| {
            // The name may have been reused or removed since the dump: read again in the next
            // scrape.
            let folder = folder.or_else(|| Folder::open(&path()).ok());
            let index = number_in(folder.as_ref(), INDEX, &mut self.buffer);
            if index != Some(link.index.into()) {
                return [None; STEADY.len()];
            }
            let numbers = STEADY.map(|index| number_in(folder.as_ref(), index, &mut self.buffer));
            let steady = Steady {
                name: link.name.clone(),
                address: link.address.clone(),
                read: Instant::now(),
                numbers,
            };
            self.steady.insert(link.index, steady);
            numbers
        });
        for (index, number) in STEADY.into_iter().zip(steady) {
            row.numbers[index] = number;
        }
        row.name = link.name;
        row.address = link.address;
        row.broadcast = link.broadcast;
        row
    }

    fn sysfs_row(&mut self, name: String) -> Row {
        let folder = Folder::open(&self.roots.sys("class/net").join(&name)).ok();
        let (folder, buffer) = (folder.as_ref(), &mut self.buffer);
        let mut row = Row::default();
        for (index, number) in row.numbers.iter_mut().enumerate() {
            *number = number_in(folder, index, buffer);
        }
        row.address = word_in(folder, "address", buffer);
        row.broadcast = word_in(folder, "broadcast", buffer);
        row.duplex = word_in(folder, "duplex", buffer);
        row.operstate = word_in(folder, "operstate", buffer);
        row.alias = word_in(folder, "ifalias", buffer);
        row.name = name;
        row
    }
}

/// A decimal or `0x…` number. `None` if the device is gone, the file is missing, the kernel refuses
/// (a device that is down has no speed), or the text is not a number.
fn number_in(folder: Option<&Folder>, index: usize, buffer: &mut Vec<u8>) -> Option<i64> {
    let text = folder?.word(NUMBERS[index].0, buffer)?;
    let number = match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok()?,
        None => text.parse().ok()?,
    };
    if index == SPEED {
        // Mbit/s to bytes per second; -1 is an unknown speed.
        return number.checked_mul(1_000_000).map(|bits| bits / 8);
    }
    Some(number)
}

/// Empty if missing.
fn word_in(folder: Option<&Folder>, file: &str, buffer: &mut Vec<u8>) -> String {
    folder
        .and_then(|folder| folder.word(file, buffer))
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    use virtfleet_agent_host::Kernel;

    #[test]
    fn cached_properties_belong_to_their_device() {
        let lo = || {
            let mut links = Kernel.links().unwrap().into_iter();
            links.find(|link| link.name == "lo").unwrap()
        };
        let mut rows = Rows::new(Arc::new(Kernel), Roots::default());
        let gone = Link {
            name: "no-such".to_owned(),
            ..lo()
        };
        let renamed = Link {
            index: u32::MAX >> 1,
            ..lo()
        };
        for link in [gone, renamed] {
            let row = rows.netlink_row(link);
            assert!(
                STEADY.iter().all(|index| row.numbers[*index].is_none()),
                "{row:?}"
            );
            assert!(rows.steady.is_empty());
        }
        rows.netlink_row(lo());
        assert_eq!(rows.steady.len(), 1);
    }

    #[test]
    fn netlink_and_sysfs_agree() {
        let mut filter = NameFilter::new(["", ""], None, None, None).unwrap();
        let mut rows = Rows::new(Arc::new(Kernel), Roots::default());
        // Properties may change between two reads; one of many attempts is undisturbed.
        let same = (0..20).any(|_| {
            let mut by_netlink = rows.read(&mut filter).unwrap();
            for row in &mut by_netlink {
                row.other_names.clear();
            }
            by_netlink.sort_by(|one, other| one.name.cmp(&other.name));
            let by_files: Vec<_> = by_netlink
                .iter()
                .map(|row| rows.sysfs_row(row.name.clone()))
                .collect();
            assert!(by_netlink.iter().any(|row| row.name == "lo"));
            by_netlink == by_files
        });
        assert!(same);
    }
}
