//! Clones of the OS image: compares them with the root disk and erases them.
//!
//! ```text
//! probe_clone ─▶ CloneState          (reads only; whole-disk lock, exclusive open)
//! EraseIntent ─ claim_clone ─▶ ClaimedClone ─ erase_clone ─▶ blank, by a new proof
//! ```
//!
//! Devices are opened by the kernel's name and checked by number and sequence number, never by UUID
//! or label, because clones share those.

mod claim;
mod compare;
mod erase;
mod first_boot;
mod open;
mod root;

pub use claim::ClaimedClone;
pub use compare::Begun;
pub use erase::EraseError;
