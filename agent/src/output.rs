//! Output formats of a verb: text for people, JSON or YAML for programs.

use serde::Serialize;
use virtfleet_wire::layered::to_yaml;

/// Value of the flag `-o`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// Aligned lines.
    #[default]
    Text,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

impl Output {
    /// Renders the value in this format, with a final line feed. `text` renders it for people.
    ///
    /// # Errors
    /// The value cannot be serialized.
    pub fn render<T: Serialize>(
        self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<String, serde_json::Error> {
        Ok(match self {
            Self::Text => text(value),
            Self::Json => serde_json::to_string_pretty(value)? + "\n",
            Self::Yaml => to_yaml(&serde_json::to_value(value)?),
        })
    }
}
