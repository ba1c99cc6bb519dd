//! Reads `/etc/resolv.conf` as it is.

use std::fs;

use virtfleet_agent_core::dns::seen::File;

use super::fixed::fixed;
use crate::{Roots, read_text};

/// Configuration file of resolver libraries.
pub const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Maximum size of a resolv.conf in bytes.
pub(super) const MAX_RESOLV_CONF_BYTES: usize = 1 << 20;

/// The current `/etc/resolv.conf`, for [`original`] and for observation.
pub(crate) fn resolv_conf(roots: &Roots) -> File {
    let path = roots.root(RESOLV_CONF);
    let link = fs::read_link(&path)
        .ok()
        .and_then(|target| target.into_os_string().into_string().ok());
    let obstacle = fixed(roots, &path);
    File {
        link,
        text: read_text(&roots.root_file(RESOLV_CONF), MAX_RESOLV_CONF_BYTES).ok(),
        fixed: obstacle.is_some(),
        obstacle,
    }
}
