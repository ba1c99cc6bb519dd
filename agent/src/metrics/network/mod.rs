//! Devices, protocols and sockets (room: `agent/src/metrics`).

mod netdev;

use super::Entry;

/// The room's collectors, by name.
pub(super) const ENTRIES: &[Entry] = &[Entry::on(
    "netdev",
    "Traffic and errors of network devices",
    netdev::new,
)];
