//! The system as a whole: its name, its clock, its limits (room: `agent/src/metrics`).

mod os;
mod time;
mod uname;

use super::Entry;

/// The room's collectors, by name.
pub(super) const ENTRIES: &[Entry] = &[
    Entry::on("os", "The operating system by its os-release file", os::new),
    Entry::on("time", "Wall clock, time zone and clock sources", time::new),
    Entry::on("uname", "Kernel and host name", uname::new),
];
