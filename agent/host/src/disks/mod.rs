//! Device access for secondary disks: finding them, probing them, and formatting those that are
//! proven blank.
//!
//! ```text
//! devices ─▶ Device ─ probe ─▶ Probe    (reads only; whole-disk lock, exclusive open)
//! FormatIntent ─ claim ─▶ BlankDisk ─ format ─▶ a filesystem with the intended UUID
//!              └ claim_unfinished ─▶ UnfinishedDisk ─ clear ─▶ blank again
//! ```
//!
//! A [`BlankDisk`] cannot be cloned or serialized; formatting consumes it.

pub(crate) mod btrfs_calls;
pub(crate) mod busy;
mod claim;
mod clone;
mod devices;
pub(crate) mod directory;
mod ends;
mod facts;
pub(crate) mod fail_point;
mod format;
pub(crate) mod health;
mod held;
pub(crate) mod identifiers;
mod identity;
mod ioctl;
pub(crate) mod journal;
mod luks;
mod mapped;
pub(crate) mod mount_probe;
mod names;
pub(crate) mod observe;
mod open_locked;
mod orphan;
mod own;
pub(crate) mod owner;
mod partitions;
mod probe;
mod read_failure;
mod reader;
mod reader_message;
mod remains;
pub(crate) mod seed;
mod signature;
mod system;
mod table_entry;
pub mod tools;
mod undo;
mod unfinished;
mod used_mount;
mod uses;
mod writes;
mod zero;

pub use claim::{BlankDisk, ClaimError};
pub use clone::{ClaimedClone, EraseError, UnfinishedErasure};
pub use devices::DevicesError;
pub use format::FormatError;
pub use luks::OpenContainer;
pub use mapped::FreshContainer;
pub(crate) use names::udev_serial;
pub use own::own_filesystem;
pub use probe::Limits;
pub use undo::kept_for_undo;
pub use unfinished::UnfinishedDisk;

use crate::{Commands, Roots};

/// Which devices count as disks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kinds {
    /// Disks of the VM.
    #[default]
    Real,
    /// Loop devices too; for tests.
    WithLoop,
    /// Loop devices too, and the loop device with this number counts as the root disk; for tests.
    LoopRoot(u32),
}

#[derive(Clone, Copy)]
pub struct Disks<'a> {
    /// Roots of procfs, sysfs, udev's data and `/dev`.
    pub roots: &'a Roots,
    /// Runs the external tools.
    pub commands: &'a dyn Commands,
    /// Which devices count as disks.
    pub kinds: Kinds,
}

impl std::fmt::Debug for Disks<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disks")
            .field("kinds", &self.kinds)
            .finish_non_exhaustive()
    }
}
