//! Waiting for changes.

use std::{
    sync::mpsc::{self, Receiver, Sender},
    time::Duration,
};

use crate::host::{
    Roots,
    dns::{DnsChange, DnsWatch, DnsWatchError},
};

/// Where changes come from; without any, time alone passes.
pub(crate) enum Ears {
    Watch(Box<DnsWatch>),
    Deaf {
        never: Receiver<()>,
        _sender: Sender<()>,
    },
}

impl Ears {
    /// Hears what changes from now on.
    pub(crate) fn open(roots: &Roots) -> Self {
        match DnsWatch::open(roots) {
            Ok(watch) => Self::Watch(Box::new(watch)),
            Err(error) => Self::deaf(&error),
        }
    }

    fn deaf(error: &DnsWatchError) -> Self {
        tracing::warn!(%error, "changes of the network are not heard of; what is to be done is done by time");
        let (sender, never) = mpsc::channel();
        Self::Deaf {
            never,
            _sender: sender,
        }
    }

    /// Returns when something has changed, or the time is up.
    pub(crate) fn wait(&mut self, rest: Duration) -> Vec<DnsChange> {
        match self {
            Self::Watch(watch) => match watch.wait(rest) {
                Ok(changes) => changes,
                Err(error) => {
                    *self = Self::deaf(&error);
                    Vec::new()
                }
            },
            // Nobody sends: this is a time that passes.
            Self::Deaf { never, .. } => {
                never.recv_timeout(rest).ok();
                Vec::new()
            }
        }
    }
}
