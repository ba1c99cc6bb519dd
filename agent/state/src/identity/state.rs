//! `/run/virtfleet/state/identity.json`: the identity with the fields that only root can read. Root
//! writes it for the unprivileged agent (`virtfleet-agent state`).

use std::{fmt, path::PathBuf};

use virtfleet_agent_host::{AGENT_GROUP, Roots, clock, is_directory, is_root};

pub use super::identity_state::{IDENTITY_STATE, State};
use super::{identity_state::FORMAT, observe_bare};
use crate::file::WriteStateError;

/// What [`write_state`] wrote. Displays as lines without the values: a log may have more readers
/// than the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    pub state: State,
    /// True if the agent's group can read the file; otherwise only root can.
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
                "only: there is no group {AGENT_GROUP}; create it and run this command again if the agent runs without root"
            )?;
        }
        let known = [
            ("smbiosUuid", &self.state.identity.smbios_uuid),
            ("smbiosSerial", &self.state.identity.smbios_serial),
        ];
        for (name, value) in known {
            if value.is_some() {
                writeln!(f, "  {name}: found")?;
                continue;
            }
            let missing = self
                .state
                .identity
                .missing
                .iter()
                .find(|missing| missing.field == name);
            let reason = missing.map_or("not found", |missing| missing.reason.as_str());
            writeln!(f, "  {name}: missing; {reason}")?;
        }
        Ok(())
    }
}

/// Why the state was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteIdentityError {
    #[error(
        "only root can read the SMBIOS UUID and serial; run this as root, as virtfleet-agent.service does before it starts"
    )]
    NotRoot,
    /// The root filesystem to write into does not exist; only directories below it are created.
    #[error("--path.rootfs: {} is not a directory; name the guest's root filesystem", .0.display())]
    NoRootfs(PathBuf),
    #[error("the state file was not changed")]
    Write(#[from] WriteStateError),
}

/// Observes the identity and writes it atomically and durably. Requires root.
///
/// Only root and the agent's group can read the file ([`StateFile::write`]), because the kernel
/// restricts the UUID and the serial to root. The report and `doctor` say so if the agent cannot
/// read it.
///
/// # Errors
/// The caller is not root, the root filesystem is missing, or the file cannot be written.
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
