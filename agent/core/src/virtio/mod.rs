//! Data model of virtio devices, and of devices that are emulated instead. Nothing here accesses
//! files.
//!
//! ```text
//! host/virtio ─ observe ─▶ Machine ─┬─ findings ─▶ report, metrics, doctor
//!                                   ├─ tree ─────▶ virtfleet-agent virtio
//!                                   └─ nic::plan ▶ plan nic, apply nic
//! ```

pub mod counters;
mod device;
mod disk;
pub mod features;
mod findings;
pub mod interrupts;
mod kind;
mod machine;
mod network;

pub use device::{Bus, Device, Kind, Queue, Role, Sharing, Vector, status};
pub use disk::{Disk, DiskKind, DiskQueue, WriteCache};
pub use features::{Features, FeaturesError};
pub use findings::{MAX_FINDINGS as MOST_FINDINGS, complete, findings, ranges};
pub use machine::{Cpus, Machine, Unread, Vectors};
pub use network::{Channels, Coalescing, Counters, Direction, Nic, NicKind, NicQueue, Rings};
