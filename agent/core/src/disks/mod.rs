//! Secondary disks: from what is declared and what is there to what is done, as values. Nothing here touches a device.
//!
//! ```text
//! declared (wire::settings) ─ check ─▶ Wanted ─┐
//! devices (Device) ────────────────────────────┴─ matching ─▶ which one ─ probe (host) ─▶ Probe ─┐
//! journal (Entry: what was begun and finished) ──────────────────────────────────────────────────┼─ plan ─▶ DiskPlan: Steps, Refusals
//! mounts, mount points, units ───────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Three rules hold by type. A [`Probe`] has three values, and only `Blank` carries [`Blankness`]. Only [`Blankness`], or a
//! journal [`journal::Entry`] together with what it left, makes a [`FormatIntent`]. And a [`FormatIntent`] is only a wish: what `mkfs` takes
//! is minted by the host from a second look under an exclusive open, which must find the same.

pub mod binds;
mod check;
mod checksum;
pub mod clone;
pub mod device;
pub mod duplicates;
pub mod ends;
pub mod findings;
#[cfg(test)]
mod fixtures;
pub mod health;
pub mod journal;
pub mod keys;
pub mod matching;
pub mod mkfs;
pub mod partition;
pub mod plan;
mod planning;
pub mod probe;
pub mod refusal;
pub mod regions;
pub mod remains;
pub mod seen;
pub mod size;
pub mod state;
pub mod superblock;
pub mod units;
pub mod uuids;
pub mod wanted;
pub mod writes;

pub use clone::{CloneProof, CloneState, Deviation, EraseIntent, EraseRecord};
pub use device::{Bus, Carried, DevNumber, Device, DeviceId, Use};
pub use partition::Partition;
pub use plan::{DiskPlan, FormatIntent, Plan, Refusal, RefusalKind, Step};
pub use probe::{Blankness, Content, Doubt, Left, Probe, Region};
pub use seen::Seen;
pub use superblock::Superblock;
pub use wanted::{Key, Wanted};
pub use writes::{WriteCounters, WriteMark, WritesSince};
