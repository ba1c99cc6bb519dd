//! Health of a VM: is it well, and if not, what does that come from. Pure; the caller passes the
//! time.
//!
//! ```text
//! facts ─▶ one evaluation per condition ─▶ hold (nothing flaps) ─▶ worst condition ─▶ verdict, cause
//! ```
//! - A condition holds only by positive evidence; a fact that is missing is `Unknown`.
//! - The worst condition decides. Of equally severe ones the order of causes decides, so that the
//!   root is shown and not the symptom ([`HealthCause`]).
//! - `docs/health.md` lists conditions, reasons and times; `docs/decisions/0037-verdict.md` has the
//!   reasons.

mod agent;
mod clock;
mod compute;
mod delivery;
mod disks;
mod dns;
mod evaluation;
mod facts;
mod guest;
mod guest_health;
mod hold;
mod host;
mod kubelet;
mod labels;
mod migratable;
mod node;
mod placed;
mod running;
mod seen;
mod spec;
mod track;
mod verdict;
mod virtio;
mod volume_problem;
mod volumes;

pub use agent::NOT_PULLED;
pub(crate) use compute::needs_comparison;
pub use evaluation::HealthCondition;
pub(crate) use facts::{AgentFacts, HealthFacts, LauncherState};
pub use guest_health::{MAX_FINDINGS, MAX_MESSAGE_CHARS, bounded_message, worst};
pub use hold::HoldTimes;
pub use labels::{LabelPlanStatus, labels_in_sync};
pub(crate) use seen::SeenSince;
pub(crate) use track::HealthTrack;
pub use verdict::{HealthCause, HealthConditionStatus, HealthConditionView, HealthVerdict, HealthView};

#[cfg(test)]
mod evidence_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod volume_tests;
