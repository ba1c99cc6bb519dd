//! Clones of the OS image: judged against the root disk, and erased.
//!
//! ```text
//! look_clone ─▶ CloneState                                  reads only, under the whole-disk lock and an exclusive open
//! EraseIntent ─ claim_clone ─▶ ClaimedClone ─ erase_clone ─▶ blank, as a fresh proof says
//! ```
//!
//! Devices are opened by the kernel's name and checked by number and sequence number, never by UUID or label, which clones share.

mod claim;
mod erase;
mod first_boot;
mod look;
mod open;
mod root;

pub use claim::ClaimedClone;
pub use erase::EraseError;
pub use look::Begun;
