//! A configuration made from files, made again when they change.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::{TlsError, files::Stamp};

/// How often, at the most, the files are looked at; a new connection triggers it, so that nothing runs at rest.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What a configuration is made from.
pub(super) trait Source {
    /// What is made.
    type Config;
    /// Reads the files and makes it.
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

    /// The configuration as of `now`. When changed files cannot be used the last good ones stay, and the error is logged
    /// once a change.
    pub(super) fn current(&self, now: Instant) -> Arc<S::Config> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(state.looked) >= LOOK_EVERY {
            state.looked = now;
            let stamp = Stamp::of(self.source.files());
            if stamp != state.stamp {
                state.stamp = stamp;
                let [first, ..] = self.source.files();
                match self.source.load() {
                    Ok(config) => {
                        state.config = config;
                        tracing::info!(file = %first.display(), "certificates read again");
                    }
                    Err(error) => {
                        let error = &error as &dyn std::error::Error;
                        tracing::error!(
                            error,
                            "changed certificates cannot be used; the last good ones stay"
                        );
                    }
                }
            }
        }
        state.config.clone()
    }
}
