//! Real guests: VMs as KubeVirt makes them, under QEMU, and what can be done to them.
//!
//! ```text
//! scene ─▶ golden ─▶ guest ─▶ layout, part ─▶ QEMU  a test's scene; snapshots; a guest; a VM's arguments
//!            │         ├─ exec, plug, fault, power   commands and files; hot-plug; broken disks; cuts and migrations
//!            │         └─ qmp, agent ─▶ wire         how QEMU and the guest are spoken to
//!            └─ image, content, turn, accel          what there is; disks; whose turn it is; KVM or not
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

/// One line of progress, on standard error: in tests it is seen when they fail.
fn say(text: &str) {
    eprintln!("guest: {text}");
}
