//! Secondary disks in real guests: from blank to mounted before containerd and kubelet, over reboots, power cuts, hot-plug, growth,
//! encryption and errors; and everything that must not be touched.
//!
//! `VIRTFLEET_DISK_CUTS=N` plays what takes minutes, too, and cuts the power N times, with the seeds from `VIRTFLEET_DISK_CUTS_FROM` on (1):
//! `make guest-disk-soak N=20`.

#[path = "guest_disks/boots.rs"]
mod boots;
#[path = "guest_disks/clones.rs"]
mod clones;
#[path = "guest_disks/cuts.rs"]
mod cuts;
#[path = "guest_disks/errors.rs"]
mod errors;
#[path = "guest_disks/foreign.rs"]
mod foreign;
#[path = "guest_disks/guard.rs"]
mod guard;
#[path = "guest_disks/hotplug.rs"]
mod hotplug;
#[path = "guest_disks/kit.rs"]
mod kit;
#[path = "guest_disks/luks.rs"]
mod luks;
#[path = "guest_disks/partitions.rs"]
mod partitions;
#[path = "guest_disks/places.rs"]
mod places;
#[path = "guest_disks/shared.rs"]
mod shared;
#[path = "guest_disks/space.rs"]
mod space;
#[path = "guest_disks/verbs.rs"]
mod verbs;
