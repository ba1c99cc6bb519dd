//! Errors in the settings `metrics`.

use std::error::Error;

/// Invalid settings of collectors.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error("{place}: there is no collector {name:?}{}", did_you_mean(*.nearest))]
    Unknown {
        /// Where it is named: `metrics.collectors` or the command line.
        place: &'static str,
        name: String,
        /// Similar known name, if there is one.
        nearest: Option<&'static str>,
    },
    #[error("{exclude} and {include} are both set; keep one of them")]
    Both {
        /// Key of the exclude pattern.
        exclude: &'static str,
        /// Key of the include pattern.
        include: &'static str,
    },
    #[error("{key}: {pattern:?} is not a regular expression")]
    Pattern {
        key: &'static str,
        pattern: String,
        source: regex_lite::Error,
    },
    #[error("{key}: {reason}")]
    Value { key: &'static str, reason: &'static str },
}

impl RegistryError {
    /// Returns the key of the invalid setting, e.g. `metrics.netdev.deviceExclude`.
    pub fn key(&self) -> String {
        match self {
            Self::Unknown { place, name, .. } => format!("{place}.{name}"),
            Self::Both { include: key, .. } | Self::Pattern { key, .. } | Self::Value { key, .. } => {
                (*key).to_owned()
            }
        }
    }

    /// Returns the problem, for a line that begins with the key.
    pub fn message(&self) -> String {
        let text = chain(self);
        let place = match self {
            Self::Unknown { place: key, .. }
            | Self::Both { include: key, .. }
            | Self::Pattern { key, .. }
            | Self::Value { key, .. } => key,
        };
        let rest = text.strip_prefix(place).and_then(|rest| rest.strip_prefix(": "));
        rest.unwrap_or(&text).to_owned()
    }
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(
        || "; `virtfleet-agent metrics --help` lists them".to_owned(),
        |name| format!("; did you mean {name:?}?"),
    )
}

/// Formats an error with its causes in one line.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}
