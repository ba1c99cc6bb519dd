//! Secondary disks, as far as a device is touched: finding them, looking at them, and formatting what is proven blank.
//!
//! ```text
//! devices ─▶ Device ─ look ─▶ Probe          reads only, under the whole-disk lock and an exclusive open
//! FormatIntent ─ claim ─▶ BlankDisk ─ format ─▶ a filesystem with the intended UUID
//!              └ claim_unfinished ─▶ UnfinishedDisk ─ clear ─▶ blank again
//! ```
//!
//! A [`BlankDisk`] is neither cloned nor written down, and whoever formats consumes it.

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
mod look;
mod luks;
mod mapped;
pub(crate) mod mount_probe;
mod names;
pub(crate) mod observe;
mod orphan;
pub(crate) mod owner;
mod partitions;
mod reader;
mod remains;
pub(crate) mod seed;
mod signature;
mod system;
pub mod tools;
mod undo;
mod unfinished;
mod uses;
mod writes;
mod zero;

pub use claim::{BlankDisk, ClaimError};
pub use clone::{Begun, ClaimedClone, EraseError};
pub use devices::DevicesError;
pub use format::FormatError;
pub use look::Limits;
pub use luks::OpenContainer;
pub use mapped::FreshContainer;
pub(crate) use names::udev_serial;
pub use undo::kept_for_undo;
pub use unfinished::UnfinishedDisk;

use crate::{Commands, Roots};

/// Which devices count as disks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kinds {
    /// What stands for a disk of the VM.
    #[default]
    Real,
    /// Loop devices too, and everything else as ever: for tests.
    WithLoop,
    /// The same, and the loop device with this number counts as the root disk.
    LoopRoot(u32),
}

/// The disks of this machine.
#[derive(Clone, Copy)]
pub struct Disks<'a> {
    /// Where procfs, sysfs, udev's data and `/dev` are.
    pub roots: &'a Roots,
    /// What runs the tools.
    pub commands: &'a dyn Commands,
    /// Which devices count.
    pub kinds: Kinds,
}

impl std::fmt::Debug for Disks<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disks")
            .field("kinds", &self.kinds)
            .finish_non_exhaustive()
    }
}
