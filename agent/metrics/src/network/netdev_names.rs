//! Names and HELP texts of the families of `netdev`.

use virtfleet_agent_core::{netlink::link::LinkCounters, procfs::net_dev::NetDevice};

/// Name and HELP of a family.
pub(super) type Named = (&'static str, &'static str);

macro_rules! counters {
    ($($name:literal,)*) => {
        [$((
            concat!("node_network_", $name, "_total"),
            concat!("Network device statistic ", $name, "."),
        ),)*]
    };
}

/// The columns of `/proc/net/dev`, in order.
pub(super) static COLUMNS: [Named; NetDevice::COLUMNS] = counters! {
    "receive_bytes",
    "receive_packets",
    "receive_errs",
    "receive_drop",
    "receive_fifo",
    "receive_frame",
    "receive_compressed",
    "receive_multicast",
    "transmit_bytes",
    "transmit_packets",
    "transmit_errs",
    "transmit_drop",
    "transmit_fifo",
    "transmit_colls",
    "transmit_carrier",
    "transmit_compressed",
};

/// The same with `detailedMetrics`, for roots without netlink: the file has the sums of the
/// details.
pub(super) static DETAILED_COLUMNS: [Named; NetDevice::COLUMNS] = counters! {
    "receive_bytes",
    "receive_packets",
    "receive_errors",
    "receive_dropped",
    "receive_fifo",
    "receive_frame",
    "receive_compressed",
    "receive_multicast",
    "transmit_bytes",
    "transmit_packets",
    "transmit_errors",
    "transmit_dropped",
    "transmit_fifo",
    "transmit_colls",
    "transmit_carrier",
    "transmit_compressed",
};

/// The counters from netlink in its order.
pub(super) static DETAILED: [Named; LinkCounters::COUNT] = counters! {
    "receive_packets",
    "transmit_packets",
    "receive_bytes",
    "transmit_bytes",
    "receive_errors",
    "transmit_errors",
    "receive_dropped",
    "transmit_dropped",
    "multicast",
    "collisions",
    "receive_length_errors",
    "receive_over_errors",
    "receive_crc_errors",
    "receive_frame_errors",
    "receive_fifo_errors",
    "receive_missed_errors",
    "transmit_aborted_errors",
    "transmit_carrier_errors",
    "transmit_fifo_errors",
    "transmit_heartbeat_errors",
    "transmit_window_errors",
    "receive_compressed",
    "transmit_compressed",
    "receive_nohandler",
};
