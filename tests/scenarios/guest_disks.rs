//! Secondary disks in real guests: from blank to mounted before containerd and kubelet, over
//! reboots, power cuts, hot-plug, growth, encryption and errors; and everything that must not be
//! touched.
//!
//! `make guest-disk-soak N=20` also runs the tests that take minutes. `VIRTFLEET_DISK_CUTS` is how
//! often it cuts the power, with the seeds from `VIRTFLEET_DISK_CUTS_FROM` on (1).

mod boots;
mod clones;
mod cuts;
mod errors;
mod foreign;
mod guard;
mod hotplug;
mod kit;
mod luks;
mod partitions;
mod places;
mod shared;
mod space;
mod verbs;
