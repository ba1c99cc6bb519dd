//! Secondary disks: computes plans from settings, devices and journal. Nothing here accesses a
//! device.
//!
//! ```text
//! declared (wire::settings) ─ check ─▶ Wanted ─┐
//! devices (Device) ─ known: came later? ───────┴─ matching ─▶ device ─ probe (host) ─▶ Probe ─┐
//! journal (Entry: what was started and finished) ─────────────────────────────────────────────┤
//! mounts, mount points, units ────────────────────────────────────────────────────────────────┤
//!                                                    DiskPlan: steps, refusals ◀─ plan ───────┘
//! ```
//!
//! The types enforce three rules:
//! - A [`Probe`] has three values, and only `Blank` contains a [`Blankness`].
//! - Only a [`Blankness`], or a journal [`journal::Entry`] with the unfinished work that it
//!   describes, can become a [`FormatIntent`].
//! - A [`FormatIntent`] is only a request. The host probes the device again under an exclusive
//!   open, and runs `mkfs` only if it finds the same.

pub mod binds;
mod check;
pub mod clone;
mod dev_number;
pub mod device;
pub mod duplicates;
pub mod ends;
pub mod findings;
#[cfg(test)]
mod fixtures;
pub mod health;
pub mod journal;
pub mod keys;
pub mod known;
pub mod matching;
pub mod mkfs;
mod mounted;
mod on_disk;
pub mod own;
mod owner;
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
mod usage;
pub mod uuids;
pub mod wanted;
pub mod writes;

pub use clone::{CloneProof, CloneState, Deviation, EraseIntent, EraseRecord};
pub use device::{Bus, Carried, DevNumber, Device, DeviceId, Use};
pub use own::{OwnFilesystem, Signature};
pub use partition::Partition;
pub use plan::{DiskPlan, DiskStep, FormatIntent, Plan, Refusal, RefusalKind};
pub use probe::{Blankness, Content, Doubt, Left, Probe, Region};
pub use seen::Seen;
pub use superblock::Superblock;
pub use wanted::{Key, Wanted};
pub use writes::{WriteCounters, WriteMark, WritesSince};
