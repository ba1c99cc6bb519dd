//! systemd, logind and processes (room: `agent/src/metrics`).

use super::Entry;

/// The room's collectors, by name.
pub(super) const ENTRIES: &[Entry] = &[];
