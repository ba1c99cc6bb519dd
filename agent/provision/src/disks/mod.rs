//! Secondary disks: formats, mounts, grows and opens the declared disks.
//!
//! ```text
//! settings ─ check ─▶ Wanted ─┐
//! host ─ observe ─▶ Seen ─────┼─ plan (agent/core) ─▶ Plan ─ act ─▶ results ─ observe again ─▶ disks.json
//! journal (root disk) ────────┘   │                     │ each step: journal, audit, fail point, host
//!     probes, several at a time ──┘                     └ second round if a disk has answered late
//! ```
//!
//! The plan decides; this module only carries it out. Every destructive step claims its device
//! again, and is in the journal and the audit record before it begins. A fail point
//! ([`FailPoints`](virtfleet_agent_host::FailPoints)) between two effects lets tests kill the
//! process there.

mod act;
mod approve;
mod binds;
mod carriers;
mod clone;
mod environment;
mod files;
mod format;
mod found;
mod gate;
mod grow;
mod health;
mod known;
mod luks;
mod observe;
mod observed;
mod place;
mod places;
mod planning;
mod probes;
mod provisioner;
mod record;
mod run;
mod seed;
mod session;
mod step;
mod step_result;
mod systemd;
mod udev;
mod unlock;
mod unread;

pub use approve::{ApproveError, approve};
pub use gate::{CheckError, check};
pub use observed::{Observed, PlanDisksError};
pub use provisioner::DiskProvisioner;

pub use udev::{UdevError, udev_kinds, udev_properties};

pub use step::failed;
pub(super) use step::run;
pub use step::unusable;
