//! Logs: text on a terminal, JSON elsewhere; always on standard error, so that standard output has
//! only results.

use std::io::IsTerminal as _;

use tracing::{Metadata, Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{
    Layer as _,
    filter::{FilterExt as _, filter_fn},
    layer::{Filter, SubscriberExt as _},
    util::SubscriberInitExt as _,
};
use virtfleet_wire::settings::{LogFormat, LogLevel, LogSettings};

/// Starts logging for the whole process.
///
/// # Errors
/// Logging was started before.
pub fn init(settings: &LogSettings) -> Result<(), AlreadyStarted> {
    let filter = filter(settings);
    let terminal = std::io::stderr().is_terminal();
    let text = match settings.format {
        LogFormat::Text => true,
        LogFormat::Json => false,
        LogFormat::Auto => terminal,
    };
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let layer = if text {
        let colours = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        layer.with_ansi(colours).with_target(false).boxed()
    } else {
        layer.json().flatten_event(true).with_current_span(false).boxed()
    };
    tracing_subscriber::registry()
        .with(layer.with_filter(filter))
        .try_init()
        .map_err(|_| AlreadyStarted)
}

/// As [`init`], for a short-running command whose log is read on a terminal, in the journal or on
/// the serial console: text without times, unless the settings have JSON.
///
/// # Errors
/// Logging was started before.
pub fn init_command(settings: &LogSettings) -> Result<(), AlreadyStarted> {
    if settings.format == LogFormat::Json {
        return init(settings);
    }
    let terminal = std::io::stderr().is_terminal();
    let colours = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(colours)
        .with_target(false)
        .without_time();
    tracing_subscriber::registry()
        .with(layer.with_filter(filter(settings)))
        .try_init()
        .map_err(|_| AlreadyStarted)
}

/// kube's client logs complete responses that it cannot parse, of any size and from any server. It
/// also returns each such error, and the callers log it with limits.
const NEVER_LOGGED: &str = "kube_client";

fn filter<S: Subscriber>(settings: &LogSettings) -> impl Filter<S> + Send + Sync + 'static {
    let is_ours = |metadata: &Metadata<'_>| !metadata.target().starts_with(NEVER_LOGGED);
    level(settings).and(filter_fn(is_ours))
}

fn level(settings: &LogSettings) -> LevelFilter {
    match settings.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("logging was started before")]
pub struct AlreadyStarted;

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Write},
        sync::{Arc, Mutex},
    };

    use super::*;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_kube_says_of_answers_is_not_logged() {
        let log = Log::default();
        let writer = log.clone();
        let layer = tracing_subscriber::fmt::layer().with_writer(move || writer.clone());
        let settings = LogSettings::default();
        let subscriber = tracing_subscriber::registry().with(layer.with_filter(filter(&settings)));
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(target: "kube_client::client", "hunter2");
            tracing::debug!("below the level");
            tracing::warn!("ours");
        });
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert!(text.contains("ours") && text.lines().count() == 1, "{text}");
    }
}
