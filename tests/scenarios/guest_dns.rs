//! DNS in real guests: DHCP as KubeVirt's, real resolvers, systemd-resolved and networkd of Debian 12 and 13; from the first boot on, over the collision of two
//! caches, and with the power cut while it is changed.
//!
//! `VIRTFLEET_DNS_CUTS=N` plays what takes minutes, too, and cuts the power N times: `make guest-dns-soak N=6`.

mod boots;
mod cuts;
mod kit;
