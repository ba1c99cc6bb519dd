//! DNS in real guests: DHCP as KubeVirt's, real resolvers, systemd-resolved and networkd of Debian
//! 12 and 13; from the first boot on, over the collision of two caches, and with the power cut
//! while it is changed.
//!
//! `make guest-dns-soak N=6` also runs the tests that take minutes. `VIRTFLEET_DNS_CUTS` is how
//! often it cuts the power.

mod boots;
mod cuts;
mod kit;
