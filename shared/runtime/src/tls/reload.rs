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

/// Source of a configuration.
pub(super) trait Source {
    /// The configuration.
    type Config;
    /// Reads the files and builds the configuration.
    fn load(&self) -> Result<Arc<Self::Config>, TlsError>;
    /// The files.
    fn files(&self) -> [&Path; 3];
}

#[derive(Debug)]
pub(super) struct Reloading<S: Source> {
    pub(super) source: S,
    state: Mutex<State<S::Config>>,
}

#[derive(Debug)]
struct State<C> {
    config: Arc<C>,
    stamp: Stamp,
    looked: Instant,
}

impl<S: Source> Reloading<S> {
    pub(super) fn new(source: S) -> Result<Self, TlsError> {
        let stamp = Stamp::of(source.files());
        let state = State {
            config: source.load()?,
            stamp,
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
        if now.saturating_duration_since(state.looked) >= CHECK_INTERVAL {
            state.looked = now;
            let stamp = Stamp::of(self.source.files());
            if stamp != state.stamp {
                state.stamp = stamp;
                let [first, ..] = self.source.files();
                match self.source.load() {
                    Ok(config) => {
                        state.config = config;
                        tracing::info!(file = %first.display(), "certificates reloaded");
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
