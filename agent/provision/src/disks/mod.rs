//! Secondary disks: what is declared becomes what is there.
//!
//! ```text
//! settings ─ check ─▶ Wanted ─┐
//! host ─ observe ─▶ Seen ─────┼─ plan (agent/core) ─▶ Plan ─ act ─▶ what was done ─ observe again ─▶ disks.json
//! journal (root disk) ────────┘   │                     │ each step: journal, audit, fail_points, host
//!        looks, several at a time ┘                     └ again (rounds) when a disk has answered late
//! ```
//!
//! The plan decides and this only does. Every destructive step claims its device anew, and is in the journal and the audit record before
//! it begins. Between two effects a [`FailPoints`](virtfleet_agent_host::FailPoints) is told, so that tests can end the process at any of them.

mod act;
mod approve;
mod around;
mod binds;
mod carriers;
mod clone;
mod files;
mod format;
mod found;
mod gate;
mod grow;
mod health;
mod looks;
mod luks;
mod observe;
mod observed;
mod place;
mod places;
mod planning;
mod provisioner;
mod record;
mod run;
mod seed;
mod session;
mod step;
mod step_result;
mod systemd;
mod unlock;
mod unread;

pub use approve::{ApproveError, approve};
pub use gate::{CheckError, check};
pub use observed::{Observed, PlanDisksError};
pub use provisioner::DiskProvisioner;

pub use step::failed;
pub(super) use step::run;
pub use step::unusable;
