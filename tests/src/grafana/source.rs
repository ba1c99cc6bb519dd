//! What a source file says.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A dashboard.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DashboardSource {
    /// Its id in Grafana, part of its URL.
    pub uid: String,
    /// Its title.
    pub title: String,
    /// What it shows, and what it needs.
    pub description: String,
    /// Names of its variables besides `datasource`, in order.
    pub variables: Vec<String>,
    /// Text for `@NAME` in expressions.
    pub macros: BTreeMap<String, String>,
    /// Its rows.
    pub rows: Vec<RowSource>,
}

/// A row of panels under one title.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowSource {
    /// Its title.
    pub title: String,
    /// Its panels, from left to right; they wrap at 24 columns.
    pub panels: Vec<PanelSource>,
}

/// Type of a panel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PanelKind {
    /// Lines over time.
    Timeseries,
    /// One number, or the name of one series.
    Stat,
    /// One row per series, columns from labels and values.
    Table,
    /// One bar per series.
    Bargauge,
}

/// A panel.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PanelSource {
    /// Its title.
    pub title: String,
    /// What it shows, and how to read it.
    pub description: String,
    /// Its type.
    pub kind: PanelKind,
    /// Width in columns of 24.
    pub width: u32,
    /// Height in Grafana's rows; by default 4 for a number, else 8.
    pub height: Option<u32>,
    /// Grafana's id of the unit, e.g. `percentunit` (0 to 1), `bytes`, `s`.
    pub unit: Option<String>,
    /// Lower end of the axis.
    pub min: Option<f64>,
    /// Upper end of the axis.
    pub max: Option<f64>,
    /// Stacks the lines.
    #[serde(default)]
    pub stack: bool,
    /// Text of a number: `name` shows the name of the series instead of its value.
    pub text: Option<String>,
    /// Colors from a value on. With green, lower values are red; without, they are green.
    #[serde(default)]
    pub thresholds: BTreeMap<String, String>,
    /// Its queries.
    pub queries: Vec<QuerySource>,
    /// Columns of a table, in order.
    #[serde(default)]
    pub columns: Vec<ColumnSource>,
}

/// A query.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuerySource {
    /// The PromQL expression.
    pub expr: String,
    /// Name of each series, with labels as `{{label}}`.
    #[serde(default)]
    pub legend: String,
}

/// A column of a table.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnSource {
    /// The label; or `Value`, and with several queries `Value #A`, `Value #B`, …
    pub field: String,
    /// Its title; none if it is hidden.
    pub title: Option<String>,
    /// Whether it is left out.
    #[serde(default)]
    pub hidden: bool,
    /// Grafana's id of the unit.
    pub unit: Option<String>,
    /// Source name of the dashboard that a click opens: `vm` or `host`.
    pub link: Option<String>,
}

/// A variable.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VariableSource {
    /// Its label in the dashboard.
    pub label: String,
    /// What it selects.
    pub description: String,
    /// Grafana's query for its values: `label_values(SERIES, LABEL)`.
    pub query: String,
    /// Whether there is the choice "All", which matches everything.
    pub all: bool,
}

impl DashboardSource {
    /// With the macros in place of their names.
    pub(super) fn expanded(mut self) -> Self {
        let macros = &self.macros;
        let panels = self.rows.iter_mut().flat_map(|row| &mut row.panels);
        for query in panels.flat_map(|panel| &mut panel.queries) {
            for (name, text) in macros {
                query.expr = query.expr.replace(&format!("@{name}"), text);
            }
        }
        self
    }

    /// All panels.
    pub fn panels(&self) -> impl Iterator<Item = &PanelSource> {
        self.rows.iter().flat_map(|row| &row.panels)
    }
}

impl VariableSource {
    /// Series and label of the query. None if it has another form.
    pub fn parts(&self) -> Option<(&str, &str)> {
        let inner = self.query.strip_prefix("label_values(")?.strip_suffix(')')?;
        inner.rsplit_once(", ")
    }
}
