//! Waits for changes of the network and of resolver files. Falls back to the timeout if the kernel
//! refuses events.

use std::{sync::mpsc, time::Duration};

use super::{DnsChange, DnsWatch, DnsWatchError};
use crate::Roots;

/// Source of [`DnsChange`]s: netlink and inotify ([`DnsWatch`]), or only the timeout if these
/// cannot be opened.
#[derive(Debug)]
pub struct DnsChangeSource {
    /// `None` if there are no events; then [`DnsChangeSource::wait`] only waits.
    watch: Option<Box<DnsWatch>>,
}

impl DnsChangeSource {
    /// Reports changes from now on.
    pub fn open(roots: &Roots) -> Self {
        let watch = DnsWatch::open(roots).map(Box::new);
        Self {
            watch: watch.map_err(|error| without_events(&error)).ok(),
        }
    }

    /// Returns when something has changed, or after `timeout` with no changes.
    pub fn wait(&mut self, timeout: Duration) -> Vec<DnsChange> {
        let Some(watch) = &mut self.watch else {
            // Nothing is ever sent: this only waits.
            let (_sender, never) = mpsc::channel::<()>();
            never.recv_timeout(timeout).ok();
            return Vec::new();
        };
        watch.wait(timeout).unwrap_or_else(|error| {
            without_events(&error);
            self.watch = None;
            Vec::new()
        })
    }
}

fn without_events(error: &DnsWatchError) {
    tracing::warn!(%error, "cannot watch for network changes; nameservers are probed periodically only");
}
