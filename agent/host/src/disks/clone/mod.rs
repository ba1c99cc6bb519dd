//! Compares clones of the OS image with the root disk, and erases them.
//!
//! ```text
//! Device ─ probe_clone ─▶ CloneState   (read-only, under a whole-disk lock and an exclusive open)
//! EraseIntent ─ claim_clone ─▶ ClaimedClone ─ erase_clone ─▶ Blankness (the disk is probed again)
//! ```
//!
//! This module opens a device by its kernel name, and checks its device number and sequence number.
//! It never identifies a device by UUID or label, because all clones of an image have the same.

mod claim;
mod compare;
mod erase;
mod first_boot;
mod open;
mod root;

pub use claim::ClaimedClone;
pub use compare::UnfinishedErasure;
pub use erase::EraseError;
