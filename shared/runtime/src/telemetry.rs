//! Logs: text on a terminal, JSON elsewhere, always on standard error, so that standard output stays the answer.

use std::io::IsTerminal as _;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::{Layer as _, layer::SubscriberExt as _, util::SubscriberInitExt as _};
use virtfleet_wire::settings::{LogFormat, LogLevel, LogSettings};

/// Starts logging for the whole process. A second call changes nothing and says so.
pub fn init(settings: &LogSettings) -> Result<(), AlreadyStarted> {
    let level = level(settings);
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
        .with(layer.with_filter(level))
        .try_init()
        .map_err(|_| AlreadyStarted)
}

/// The same for a command that does something and ends, whose log a person reads on a terminal, in the journal or on the serial
/// console: text without times, unless the settings ask for JSON.
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
        .with(layer.with_filter(level(settings)))
        .try_init()
        .map_err(|_| AlreadyStarted)
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

/// Logging was started before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("logging was started before")]
pub struct AlreadyStarted;
