//! A stage for secondary disks: a separate root in separate namespaces, with loop devices as disks.
//!
//! ```text
//! test ── Stage ── unshare ─▶ disk-stage host (first process, chroot) ── disk-stage pass (the engine)
//!           └ LoopDisk (losetup)
//! ```
//! Nothing leaks: mounts end with the namespace, processes with its first process, loop devices
//! with their last user. The next stage removes swap and folders of a test that was killed;
//! `tests/parts/leftovers.sh` also removes loop devices that are still in use.

mod folder;
mod loops;
mod stage;
mod systemd;

pub use loops::LoopDisk;
pub use stage::{Order, Outcome, Stage, grows, needs};
pub use systemd::{ON_READ, StagedSystemd};
