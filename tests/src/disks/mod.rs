//! A stage for secondary disks: a root of its own in namespaces of its own, with loop devices as disks.
//!
//! ```text
//! test ── Stage ── unshare ─▶ disk-stage host (first process there, chroot) ── disk-stage pass (the engine; killed, and run again)
//!           └ LoopDisk (losetup)
//! ```
//! Nothing leaks: mounts end with the namespace, processes with its first one, loop devices with their last user. Swap and
//! the folder of a test that was killed are removed by the next stage.

mod folder;
mod loops;
mod stage;
mod systemd;

pub use loops::LoopDisk;
pub use stage::{Order, Outcome, Stage, grows, needs};
pub use systemd::{ON_READ, StagedSystemd};
