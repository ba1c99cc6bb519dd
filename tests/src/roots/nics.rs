//! Files whose size depends on the number of NICs.
#![expect(clippy::format_push_string, reason = "written once, and easier to read so")]

use std::{fs, os::unix::fs::symlink, path::Path};

use anyhow::{Context as _, Result};

use super::files::{attributes, put};

const HEAD: &str = "Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
";
const ARP: &str = "IP address       HW type     Flags       HW address            Mask     Device\n";
const STATISTICS: [&str; 24] = [
    "collisions",
    "multicast",
    "rx_bytes",
    "rx_compressed",
    "rx_crc_errors",
    "rx_dropped",
    "rx_errors",
    "rx_fifo_errors",
    "rx_frame_errors",
    "rx_length_errors",
    "rx_missed_errors",
    "rx_nohandler",
    "rx_over_errors",
    "rx_packets",
    "tx_aborted_errors",
    "tx_bytes",
    "tx_carrier_errors",
    "tx_compressed",
    "tx_dropped",
    "tx_errors",
    "tx_fifo_errors",
    "tx_heartbeat_errors",
    "tx_packets",
    "tx_window_errors",
];

pub(super) fn write(dir: &Path, count: usize) -> Result<()> {
    let (mut table, mut arp) = (HEAD.to_owned(), ARP.to_owned());
    nic(dir, 0, "lo", &mut table)?;
    for index in 0..count {
        let name = format!("eth{index}");
        nic(dir, index + 1, &name, &mut table)?;
        arp += &format!(
            "10.0.{index}.1         0x1         0x2         02:00:00:00:01:{index:02x}     *        {name}\n"
        );
    }
    put(dir, "proc/net/arp", arp)?;
    put(dir, "proc/net/dev", &table)?;
    for place in ["proc/1/net/dev", "proc/self/net/dev"] {
        put(dir, place, &table)?;
    }
    Ok(())
}

fn nic(dir: &Path, index: usize, name: &str, table: &mut String) -> Result<()> {
    let by = index + 1;
    *table += &format!(
        "{name:>6}: {} {} 1 23 0 2 0 {} {} {} 3 4 5 6 7 8\n",
        5_123_456_789_usize * by,
        41_234_567 * by,
        4321 * by,
        8_123_456_789_usize * by,
        31_234_567 * by
    );
    let loopback = name == "lo";
    let folder = format!("sys/devices/virtual/net/{name}");
    let (number, address) = ((index + 1).to_string(), format!("02:00:00:00:00:{index:02x}"));
    attributes(
        dir,
        &folder,
        &[
            ("addr_assign_type", "0"),
            ("address", if loopback { "00:00:00:00:00:00" } else { &address }),
            ("addr_len", "6"),
            (
                "broadcast",
                if loopback {
                    "00:00:00:00:00:00"
                } else {
                    "ff:ff:ff:ff:ff:ff"
                },
            ),
            ("carrier", "1"),
            ("carrier_changes", "2"),
            ("carrier_down_count", "1"),
            ("carrier_up_count", "1"),
            ("dev_id", "0x0"),
            ("dormant", "0"),
            ("duplex", "full"),
            ("flags", if loopback { "0x9" } else { "0x1003" }),
            ("gro_flush_timeout", "0"),
            ("ifalias", ""),
            ("ifindex", &number),
            ("iflink", &number),
            ("link_mode", "0"),
            ("mtu", if loopback { "65536" } else { "1450" }),
            ("name_assign_type", "2"),
            ("netdev_group", "0"),
            ("operstate", if loopback { "unknown" } else { "up" }),
            ("proto_down", "0"),
            ("speed", "10000"),
            ("tx_queue_len", "1000"),
            ("type", if loopback { "772" } else { "1" }),
        ],
    )?;
    for file in STATISTICS {
        let value = (by * 17).to_string();
        attributes(dir, &format!("{folder}/statistics"), &[(file, &value)])?;
    }
    let place = dir.join("sys/class/net");
    fs::create_dir_all(&place).with_context(|| place.display().to_string())?;
    let target = format!("../../devices/virtual/net/{name}");
    symlink(target, place.join(name)).with_context(|| format!("link {name}"))
}
