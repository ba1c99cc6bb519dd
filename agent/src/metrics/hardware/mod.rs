//! What the machine is made of: sensors, firmware, power (room: `agent/src/metrics`).

use super::Entry;

/// The room's collectors, by name.
pub(super) const ENTRIES: &[Entry] = &[];
