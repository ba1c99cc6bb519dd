//! What an admin of Kubernetes nodes asks and no exporter says: `virtfleet_guest_*` (room: `agent/src/metrics`).

use super::Entry;

/// The room's collectors, by name.
pub(super) const ENTRIES: &[Entry] = &[];
