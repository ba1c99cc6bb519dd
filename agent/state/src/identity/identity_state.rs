//! The state file `/run/virtfleet/state/identity.json` and its record.

use serde::{Deserialize, Serialize};
use virtfleet_wire::{identity::Identity, report::Clock};

use crate::file::{StateFile, StateRecord};

/// Format number of the record.
pub(super) const FORMAT: u32 = 1;

/// The identity as root reads it. Read with [`StateFile::read_any_boot`], because its age is
/// reported for any boot.
pub static IDENTITY_STATE: StateFile<State> = StateFile::new(
    "/run/virtfleet/state/identity.json",
    "a state file",
    FORMAT,
    256 * 1024,
);

/// Content of the state file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    pub(super) version: u32,
    /// Write time in milliseconds since 1970. Informational: the clock may have been set since.
    pub written_at_unix_ms: u64,
    /// Write time, `CLOCK_BOOTTIME` in nanoseconds, from which the age is computed. 0 in files of
    /// version 0.1.0.
    #[serde(default)]
    pub written_at_boottime_ns: u64,
    /// Boot id at the write time. The record is not used in another boot.
    #[serde(default)]
    pub boot_id: String,
    /// The identity as root reads it.
    pub identity: Identity,
}

impl StateRecord for State {
    fn format(&self) -> u32 {
        self.version
    }
    fn boot_id(&self) -> &str {
        &self.boot_id
    }
}

impl State {
    /// Age in milliseconds, independent of changes of the wall clock. For a file of another boot or
    /// of version 0.1.0, the age is computed from the wall clock.
    pub fn age_ms(&self, now: &Clock, boot_id: &str) -> u64 {
        if self.boot_id == boot_id && self.written_at_boottime_ns > 0 {
            now.boottime_ns.saturating_sub(self.written_at_boottime_ns) / 1_000_000
        } else {
            (now.realtime_ns / 1_000_000).saturating_sub(self.written_at_unix_ms)
        }
    }
}
