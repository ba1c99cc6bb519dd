//! One file of a bundle.

use serde_json::Value;

/// One file of the archive.
pub(super) struct BundlePart {
    pub(super) name: String,
    pub(super) about: &'static str,
    pub(super) content: PartContent,
}

pub(super) enum PartContent {
    Json(Value),
    Metrics(String),
    Text(String),
}

impl BundlePart {
    pub(super) fn json(name: &str, about: &'static str, value: Value) -> Self {
        Self {
            name: name.to_owned(),
            about,
            content: PartContent::Json(value),
        }
    }

    /// The JSON; null for other content.
    pub(super) fn as_json(&self) -> &Value {
        match &self.content {
            PartContent::Json(value) => value,
            PartContent::Metrics(_) | PartContent::Text(_) => &Value::Null,
        }
    }
}
