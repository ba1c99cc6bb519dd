//! `/run/virtfleet/state/identity.json`: what only root may read of the identity, written by root for the unprivileged
//! agent (`virtfleet-agent state`).

use std::{fmt, path::PathBuf};

use serde::{Deserialize, Serialize};
use virtfleet_agent_host::{AGENT_GROUP, Roots, clock, is_directory, is_root};
use virtfleet_wire::{identity::Identity, report::Clock};

use super::observe_bare;
use crate::file::{StateFile, StateRecord, WriteStateError};

/// Format number of the record.
const FORMAT: u32 = 1;
/// The identity as root sees it. Read with [`StateFile::read_any_boot`], because its age is reported for any boot.
pub static IDENTITY_STATE: StateFile<State> = StateFile::new(
    "/run/virtfleet/state/identity.json",
    "a state file",
    FORMAT,
    256 * 1024,
);

/// What the file holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    version: u32,
    /// When it was written, milliseconds since 1970. For people: the clock may have been set since.
    pub written_at_unix_ms: u64,
    /// When it was written, `CLOCK_BOOTTIME` in nanoseconds; its age is told by this. 0 in files of version 0.1.0.
    #[serde(default)]
    pub written_at_boottime_ns: u64,
    /// The boot in which it was written; in another boot it says nothing.
    #[serde(default)]
    pub boot_id: String,
    /// The identity as root sees it.
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
    /// How long ago it was written, in milliseconds, whatever became of the wall clock since. A file of another boot, which
    /// says nothing anyway, and one of version 0.1.0 are told by the wall clock.
    pub fn age_ms(&self, now: &Clock, boot_id: &str) -> u64 {
        if self.boot_id == boot_id && self.written_at_boottime_ns > 0 {
            now.boottime_ns.saturating_sub(self.written_at_boottime_ns) / 1_000_000
        } else {
            (now.realtime_ns / 1_000_000).saturating_sub(self.written_at_unix_ms)
        }
    }
}

/// What was written, for whom. Displays as lines for a person, without the values: they may end in a log that more people
/// read than the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// What the file now holds.
    pub state: State,
    /// Whether the agent's group may read it; if not, only root may.
    pub for_group: bool,
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wrote {IDENTITY_STATE}, readable by root ")?;
        if self.for_group {
            writeln!(f, "and the group {AGENT_GROUP}")?;
        } else {
            writeln!(
                f,
                "only: there is no group {AGENT_GROUP}; make it and run this again if an agent runs without root"
            )?;
        }
        let known = [
            ("smbiosUuid", &self.state.identity.smbios_uuid),
            ("smbiosSerial", &self.state.identity.smbios_serial),
        ];
        for (name, value) in known {
            if value.is_some() {
                writeln!(f, "  {name}: known")?;
                continue;
            }
            let missing = self
                .state
                .identity
                .missing
                .iter()
                .find(|missing| missing.field == name);
            let reason = missing.map_or("not found", |missing| missing.reason.as_str());
            writeln!(f, "  {name}: none; {reason}")?;
        }
        Ok(())
    }
}

/// Why the state was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteIdentityError {
    /// Not running as root.
    #[error(
        "only root can read the SMBIOS UUID and serial; run this as root, as virtfleet-agent.service does before it starts"
    )]
    NotRoot,
    /// There is no root filesystem to write into; directories are made only inside of one.
    #[error("--path.rootfs: {} is no directory; name the guest's root filesystem", .0.display())]
    NoRootfs(PathBuf),
    /// The file.
    #[error("the state file stays as it was")]
    Write(#[from] WriteStateError),
}

/// Observes the identity and writes it, atomically and to the disk. Root only.
///
/// Only root and the agent's group may read it ([`StateFile::write`]): the kernel keeps the UUID and the serial from ordinary
/// users, and so do we. The report and `doctor` say it when an agent is kept out.
pub fn write_state(roots: &Roots) -> Result<Written, WriteIdentityError> {
    if !is_directory(&roots.rootfs) {
        return Err(WriteIdentityError::NoRootfs(roots.rootfs.clone()));
    }
    if !is_root() {
        return Err(WriteIdentityError::NotRoot);
    }
    let observed = observe_bare(roots);
    let now = clock();
    let state = State {
        version: FORMAT,
        written_at_unix_ms: now.realtime_ns / 1_000_000,
        written_at_boottime_ns: now.boottime_ns,
        boot_id: observed.boot_id,
        identity: observed.identity,
    };
    let for_group = IDENTITY_STATE.write(roots, &state)?;
    Ok(Written { state, for_group })
}
