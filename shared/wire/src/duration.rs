//! Durations as Kubernetes and Prometheus write them: `500ms`, `10s`, `5m`, `1h`.

use std::{fmt, str::FromStr, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A [`Duration`] that is parsed and printed as `<number><unit>`, with the units `ms`, `s`, `m`,
/// `h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Span(pub Duration);

impl Span {
    /// A duration in seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

/// Text that is not a valid duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a length of time such as 500ms, 10s, 5m or 1h")]
pub struct InvalidSpan(String);

impl FromStr for Span {
    type Err = InvalidSpan;
    fn from_str(text: &str) -> Result<Self, InvalidSpan> {
        let refuse = || InvalidSpan(text.to_owned());
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let number: u64 = text[..digits].parse().map_err(|_| refuse())?;
        let factor = match &text[digits..] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(refuse()),
        };
        number
            .checked_mul(factor)
            .map(|ms| Self(Duration::from_millis(ms)))
            .ok_or_else(refuse)
    }
}
impl TryFrom<String> for Span {
    type Error = InvalidSpan;
    fn try_from(text: String) -> Result<Self, InvalidSpan> {
        text.parse()
    }
}
impl From<Span> for String {
    fn from(span: Span) -> String {
        span.to_string()
    }
}
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis();
        match ms {
            0 => f.write_str("0s"),
            _ if ms.is_multiple_of(3_600_000) => write!(f, "{}h", ms / 3_600_000),
            _ if ms.is_multiple_of(60_000) => write!(f, "{}m", ms / 60_000),
            _ if ms.is_multiple_of(1_000) => write!(f, "{}s", ms / 1_000),
            _ => write!(f, "{ms}ms"),
        }
    }
}
impl JsonSchema for Span {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Span".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^[0-9]+(ms|s|m|h)$", "description": "Duration: 500ms, 10s, 5m, 1h." })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_prints_each_unit() {
        for text in ["0s", "500ms", "10s", "5m", "1h", "90s"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
        for bad in [
            "",
            "s",
            "10",
            "-1s",
            "1.5s",
            "1d",
            "99999999999999999999h",
            "5000000000000000h",
        ] {
            bad.parse::<Span>().unwrap_err();
        }
    }
}
