//! Whether a resolv.conf names systemd-resolved's stub.

use super::resolv::ResolvConf;

/// Whether a file has only loopback addresses.
pub(super) fn stub_only(conf: &ResolvConf) -> bool {
    !conf.nameservers.is_empty() && conf.nameservers.iter().all(std::net::IpAddr::is_loopback)
}
