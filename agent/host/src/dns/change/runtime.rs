//! Time limits of services, and whether programs use systemd-resolved.

use std::{net::IpAddr, time::Duration};

use virtfleet_agent_core::dns::{collision::STUBS, resolv};

use super::resolv_conf::resolv_conf;
use crate::Roots;

/// Maximum time for a service to reload or restart.
pub(super) const RELOAD_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum time for a command that only changes a service's runtime state.
pub(super) const RUNTIME_TIMEOUT: Duration = Duration::from_secs(5);

/// Unit of systemd-resolved.
pub(super) const RESOLVED: &str = "systemd-resolved";

/// True if `/etc/resolv.conf` directs programs to systemd-resolved.
pub(super) fn programs_use_resolved(roots: &Roots) -> bool {
    let file = resolv_conf(roots);
    let by_link = file.link.is_some_and(|link| link.contains("systemd/resolve/"));
    by_link || nameservers(file.text).iter().any(|one| STUBS.contains(one))
}

/// The nameservers of a resolv.conf.
pub(super) fn nameservers(text: Option<String>) -> Vec<IpAddr> {
    resolv::parse(&text.unwrap_or_default()).nameservers
}
