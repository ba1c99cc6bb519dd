//! Real guests: VMs as KubeVirt creates them, under QEMU, and operations on them.
//!
//! ```text
//! scene ─▶ golden ─▶ guest ─▶ layout, part ─▶ QEMU  scene of a test; snapshots; a guest; QEMU's arguments
//!            │         ├─ exec, plug, fault, power   commands and files; hot-plug; disk faults; power
//!            │         └─ qmp, agent ─▶ wire         connections to QEMU and to the guest agent
//!            └─ image, content, turn, accel          images; disks; the lock of guests; KVM or TCG
//! ```
//!
//! `docs/contributing/guests.md` shows how to use it.

mod accel;
mod agent;
mod content;
mod disk;
mod exec;
mod fault;
mod golden;
mod image;
mod layout;
mod metrics;
mod netns;
mod part;
mod places;
mod plug;
mod power;
mod qmp;
mod running;
mod scene;
mod seed;
mod tpm;
mod turn;
mod vm;
mod wire;

pub use accel::{Accel, CHOICE};
pub use disk::{Bus, Content, Disk, Known};
pub use exec::Output;
pub use fault::Io;
pub use golden::{Golden, Prepared, Start, goldens};
pub use image::Image;
pub use netns::Namespace;
pub use running::Guest;
pub use scene::{Scene, needs, play};
pub use seed::{Format, Seed, Source};
pub use vm::{GIB, METRICS_PORT, MIB, Network, Nic, Port, Suite, UUID, Vm};

/// Prints a line of progress to standard error; test runners show it for failed tests.
fn say(text: &str) {
    eprintln!("guest: {text}");
}
