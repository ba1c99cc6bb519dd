//! A configuration that is reloaded when its files change.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::{TlsError, files::Stamp};

/// Minimum interval between two checks of the files; new connections trigger the check, so that an
/// idle process does nothing.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

pub(super) trait Source {
    /// The configuration.
    type Config;
    /// Reads the files and builds the configuration.
    fn load(&self) -> Result<Arc<Self::Config>, TlsError>;
    fn files(&self) -> [&Path; 3];
    /// Changes when something other than the files has changed. The configuration is then rebuilt
    /// at the next connection.
    fn revision(&self) -> u64 {
        0
    }
}

#[derive(Debug)]
pub(super) struct Reloading<S: Source> {
    source: S,
    state: Mutex<State<S::Config>>,
}

#[derive(Debug)]
struct State<C> {
    config: Arc<C>,
    stamp: Stamp,
    revision: u64,
    looked: Instant,
}

impl<S: Source> Reloading<S> {
    pub(super) fn new(source: S) -> Result<Self, TlsError> {
        let (stamp, revision) = (Stamp::of(source.files()), source.revision());
        let state = State {
            config: source.load()?,
            stamp,
            revision,
            looked: Instant::now(),
        };
        Ok(Self {
            source,
            state: Mutex::new(state),
        })
    }

    /// The configuration as of `now`. If changed files cannot be used, the last valid configuration
    /// is kept, and the error is logged once per change.
    pub(super) fn current(&self, now: Instant) -> Arc<S::Config> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let revision = self.source.revision();
        let replaced = revision != state.revision;
        if replaced || now.saturating_duration_since(state.looked) >= CHECK_INTERVAL {
            state.looked = now;
            let stamp = Stamp::of(self.source.files());
            if replaced || stamp != state.stamp {
                (state.stamp, state.revision) = (stamp, revision);
                let [first, ..] = self.source.files();
                match self.source.load() {
                    Ok(config) => {
                        state.config = config;
                        if !replaced {
                            tracing::info!(file = %first.display(), "certificates reloaded");
                        }
                    }
                    Err(error) => {
                        let error = &error as &dyn std::error::Error;
                        tracing::error!(
                            error,
                            "changed certificates cannot be used; the last valid ones are kept"
                        );
                    }
                }
            }
        }
        state.config.clone()
    }
}
