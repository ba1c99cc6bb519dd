//! State that root's reconcile runs and the unprivileged agent share: settings files, state files,
//! and the identity and virtio devices, which are read from the guest and completed from state
//! files. This crate accesses the guest only through `virtfleet-agent-host`, and writes only state
//! files and those of the enrolment.
//!
//! ```text
//! root (provision) ─ StateFile::write ─▶ /run/virtfleet/state/*.json
//! /run/virtfleet/state/*.json ─ StateFile::read, CachedState ─▶ metrics, report, doctor
//! ```

mod cached;
pub mod dns_history;
pub mod enrolment;
mod file;
mod files;
pub mod identity;
pub mod settings;
pub mod virtio;

pub use cached::{CachedState, CachedStateError};
pub use dns_history::DnsHistory;
pub use file::{StateError, StateFile, StateRecord, WriteStateError};
pub use files::{DISKS_STATE, DNS_STATE, GUEST_HEALTH, GUEST_RECORD, NIC_STATE, NODE_PROOF, WAY_RECORD};
