//! Settings of `metrics` that no registry of collectors can be built from.

use std::error::Error;

/// Settings that no registry can be built from.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// There is no such collector.
    #[error("{place}: there is no collector {name:?}{}", did_you_mean(*.nearest))]
    Unknown {
        /// Where it was named: `metrics.collectors` or the command line.
        place: &'static str,
        /// The name.
        name: String,
        /// The known name that is nearest, when one is near.
        nearest: Option<&'static str>,
    },
    /// What to take and what to leave out exclude each other.
    #[error("{exclude} and {include} are both set; keep one of them")]
    Both {
        /// The key of what to leave out.
        exclude: &'static str,
        /// The key of what to take.
        include: &'static str,
    },
    /// A pattern that does not compile.
    #[error("{key}: {pattern:?} is no regular expression")]
    Pattern {
        /// The key it stands under.
        key: &'static str,
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        source: regex_lite::Error,
    },
    /// A value that cannot work.
    #[error("{key}: {reason}")]
    Value {
        /// The key it stands under.
        key: &'static str,
        /// Why it cannot work.
        reason: &'static str,
    },
}

impl RegistryError {
    /// The key of the settings that is wrong, e.g. `metrics.netdev.deviceExclude`.
    pub fn key(&self) -> String {
        match self {
            Self::Unknown { place, name, .. } => format!("{place}.{name}"),
            Self::Both { include: key, .. } | Self::Pattern { key, .. } | Self::Value { key, .. } => {
                (*key).to_owned()
            }
        }
    }

    /// What is wrong, for a line that begins with the key already.
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

/// An error with what led to it, in one line.
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
