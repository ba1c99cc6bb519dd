//! The shipped Grafana dashboards: their sources, and the JSON that Grafana loads.
//!
//! ```text
//! packaging/grafana/source/*.yaml ─▶ source ─▶ render ─▶ packaging/grafana/*.json
//!                                                └─▶ ConfigMaps for the sidecar and for KKP's MLA
//! ```
//!
//! A source says what a panel shows; how Grafana wants it is in one place, [`render`]. The JSON
//! model is that of Grafana 9 (`schemaVersion` 37), which KKP ships; newer ones migrate it.

mod render;
mod source;

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context as _, Result};
use serde::de::DeserializeOwned;
use serde_json::Value;
use virtfleet_wire::layered::parse_yaml;

pub use render::render;
pub use source::{
    ColumnSource, DashboardSource, PanelKind, PanelSource, QuerySource, RowSource, VariableSource,
};

/// The dashboards, by the names of their sources.
pub const DASHBOARDS: [&str; 4] = ["fleet", "vm", "host", "self"];
/// Those that work with the series of a single user cluster.
pub const FOR_TENANTS: [&str; 1] = ["vm"];

/// The sources.
#[derive(Debug)]
pub struct DashboardSources {
    /// Dashboards, with macros expanded, by name.
    pub dashboards: BTreeMap<&'static str, DashboardSource>,
    /// Variables by name.
    pub variables: BTreeMap<String, VariableSource>,
}

/// Reads the sources in a folder.
pub fn read(folder: &Path) -> Result<DashboardSources> {
    let mut dashboards = BTreeMap::new();
    for name in DASHBOARDS {
        let source: DashboardSource = read_file(&folder.join(format!("{name}.yaml")))?;
        dashboards.insert(name, source.expanded());
    }
    Ok(DashboardSources {
        dashboards,
        variables: read_file(&folder.join("variables.yaml"))?,
    })
}

fn read_file<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let documents = parse_yaml(&text).with_context(|| path.display().to_string())?;
    let json = documents.first().context("empty")?.to_json();
    serde_json::from_value(json).with_context(|| path.display().to_string())
}

/// A ConfigMap with dashboards, each under the key `virtfleet-NAME.json`. `head` is everything
/// above `data`, with comments.
pub fn config_map(head: &str, dashboards: &[(&str, &Value)]) -> String {
    let mut text = format!("{head}data:\n");
    for (name, dashboard) in dashboards {
        text.extend([
            "  virtfleet-",
            name,
            ".json: |-\n    ",
            &dashboard.to_string(),
            "\n",
        ]);
    }
    text
}
