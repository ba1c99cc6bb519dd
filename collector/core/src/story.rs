//! What has happened to a VM: verdicts, migrations and what the guest felt of them, restarts,
//! addresses, placement, findings. Pure; the caller passes the time.
//!
//! ```text
//! before, after ─▶ changes ─▶ Timeline (bounded)          ─▶ detail, /api/v1/events, `why`
//! migrationState, clock events, boot id ─▶ MigrationRecord ─▶ /api/v1/migrations
//!                                              └─ many ─▶ migration-repeats, migration-storm
//! ```
//! The collector remembers only what it has seen since its start. Times of migrations and pauses
//! are those of KubeVirt and of the guest, so that they survive a restart of the collector while
//! the objects and the agent do.

mod changes;
mod clock_event;
mod entry;
mod migration;
mod record;
mod storm;
mod timeline;
mod vm_story;

pub(crate) use clock_event::ClockEvents;
pub use entry::{TimelineEntry, TimelineKind};
pub use migration::{AddressFate, MigrationFelt, MigrationPhase, MigrationView, StoryView};
pub(crate) use storm::StormWatch;
pub use storm::{STORM_FLEET_VMS, STORM_HOST_VMS, STORM_INTERVAL_MS};
pub use timeline::{MAX_ENTRIES, MAX_TIMELINE_BYTES};
pub(crate) use vm_story::{FailedMigrations, ReportChange, VmStory};
pub use vm_story::{REPEAT_INTERVAL_MS, REPEAT_MIGRATIONS};

#[cfg(test)]
mod tests;
