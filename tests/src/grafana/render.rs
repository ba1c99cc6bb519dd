//! From a source to Grafana's JSON model of a dashboard (Grafana 9 documentation, "Dashboard JSON
//! model").

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::{
    DashboardSource,
    source::{ColumnSource, PanelKind, PanelSource, VariableSource},
};

/// Version of the JSON model in Grafana 9.
const SCHEMA_VERSION: u32 = 37;
/// Columns of Grafana's grid.
const GRID_COLUMNS: u32 = 24;

/// The JSON of a dashboard.
pub fn render(source: &DashboardSource, variables: &BTreeMap<String, VariableSource>) -> Result<Value> {
    let mut list = vec![datasource_variable()];
    for name in &source.variables {
        let variable = variables
            .get(name)
            .with_context(|| format!("{}: unknown variable {name}", source.uid))?;
        list.push(variable_json(name, variable));
    }
    Ok(json!({
        "annotations": {"list": []},
        "description": source.description,
        "editable": true,
        "graphTooltip": 1,
        "id": null,
        "links": [{
            "asDropdown": false,
            "icon": "external link",
            "includeVars": true,
            "keepTime": true,
            "tags": ["virtfleet"],
            "targetBlank": false,
            "title": "virtfleet",
            "tooltip": "Other dashboards of virtfleet",
            "type": "dashboards",
            "url": "",
        }],
        "panels": panels(source)?,
        "refresh": "1m",
        "schemaVersion": SCHEMA_VERSION,
        "tags": ["virtfleet"],
        "templating": {"list": list},
        "time": {"from": "now-6h", "to": "now"},
        "timepicker": {},
        "timezone": "browser",
        "title": source.title,
        "uid": source.uid,
        "version": 1,
    }))
}

fn datasource() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

fn datasource_variable() -> Value {
    json!({
        "hide": 0,
        "includeAll": false,
        "label": "Data source",
        "multi": false,
        "name": "datasource",
        "options": [],
        "query": "prometheus",
        "refresh": 1,
        "regex": "",
        "type": "datasource",
    })
}

fn variable_json(name: &str, variable: &VariableSource) -> Value {
    let mut json = json!({
        "datasource": datasource(),
        "definition": variable.query,
        "description": variable.description,
        "hide": 0,
        "includeAll": variable.all,
        "label": variable.label,
        "multi": false,
        "name": name,
        "options": [],
        "query": {"query": variable.query, "refId": "StandardVariableQuery"},
        // Again whenever the time range changes: VMs come and go.
        "refresh": 2,
        "regex": "",
        "sort": 1,
        "type": "query",
    });
    if variable.all {
        json["allValue"] = ".*".into();
        json["current"] = json!({"selected": true, "text": "All", "value": "$__all"});
    }
    json
}

/// Rows and panels with their places in the grid.
fn panels(source: &DashboardSource) -> Result<Vec<Value>> {
    let mut list = Vec::new();
    let mut top = 0;
    for row in &source.rows {
        list.push(json!({
            "collapsed": false,
            "gridPos": {"h": 1, "w": GRID_COLUMNS, "x": 0, "y": top},
            "id": list.len() + 1,
            "panels": [],
            "title": row.title,
            "type": "row",
        }));
        top += 1;
        let (mut left, mut tallest) = (0, 0);
        for panel in &row.panels {
            let height = panel.height.unwrap_or(match panel.kind {
                PanelKind::Stat => 4,
                _ => 8,
            });
            if left + panel.width > GRID_COLUMNS {
                top += tallest;
                (left, tallest) = (0, 0);
            }
            let mut json = panel_json(panel)?;
            json["id"] = (list.len() + 1).into();
            json["gridPos"] = json!({"h": height, "w": panel.width, "x": left, "y": top});
            list.push(json);
            left += panel.width;
            tallest = tallest.max(height);
        }
        top += tallest;
    }
    Ok(list)
}

fn panel_json(panel: &PanelSource) -> Result<Value> {
    let mut defaults = json!({"color": color(panel), "thresholds": thresholds(panel)?});
    for (key, value) in [("min", panel.min), ("max", panel.max)] {
        if let Some(value) = value {
            defaults[key] = value.into();
        }
    }
    defaults["unit"] = panel.unit.as_deref().unwrap_or("short").into();
    let (kind, options) = match panel.kind {
        PanelKind::Timeseries => {
            defaults["custom"] = lines(panel.stack);
            ("timeseries", timeseries_options())
        }
        PanelKind::Stat => ("stat", stat_options(panel)),
        PanelKind::Bargauge => ("bargauge", bargauge_options()),
        PanelKind::Table => {
            defaults["custom"] = json!({"align": "auto", "displayMode": "auto"});
            ("table", json!({"showHeader": true}))
        }
    };
    let mut json = json!({
        "datasource": datasource(),
        "description": panel.description,
        "fieldConfig": {"defaults": defaults, "overrides": overrides(&panel.columns)?},
        "options": options,
        "targets": targets(panel),
        "title": panel.title,
        "type": kind,
    });
    if panel.kind == PanelKind::Table {
        json["transformations"] = transformations(&panel.columns);
    }
    Ok(json)
}

fn targets(panel: &PanelSource) -> Vec<Value> {
    let over_time = panel.kind == PanelKind::Timeseries;
    let format = match panel.kind {
        PanelKind::Table => "table",
        _ => "time_series",
    };
    let queries = panel.queries.iter().zip('A'..='Z');
    queries
        .map(|(query, id)| {
            json!({
                "datasource": datasource(),
                "expr": query.expr,
                "format": format,
                "instant": !over_time,
                "legendFormat": query.legend,
                "range": over_time,
                "refId": id.to_string(),
            })
        })
        .collect()
}

fn color(panel: &PanelSource) -> Value {
    match panel.kind {
        PanelKind::Timeseries => json!({"mode": "palette-classic"}),
        _ if !panel.thresholds.is_empty() => json!({"mode": "thresholds"}),
        PanelKind::Bargauge => json!({"mode": "continuous-GrYlRd"}),
        _ => json!({"fixedColor": "text", "mode": "fixed"}),
    }
}

/// The steps, with what lies below the first one.
fn thresholds(panel: &PanelSource) -> Result<Value> {
    let mut steps = Vec::new();
    for (from, color) in &panel.thresholds {
        let from: f64 = from
            .parse()
            .with_context(|| format!("{}: threshold {from}", panel.title))?;
        steps.push((from, color.as_str()));
    }
    steps.sort_by(|one, other| one.0.total_cmp(&other.0));
    let below = match steps.first() {
        Some((_, "green")) => "red",
        _ => "green",
    };
    let mut list = vec![json!({"color": below, "value": null})];
    list.extend(
        steps
            .iter()
            .map(|(from, color)| json!({"color": color, "value": from})),
    );
    Ok(json!({"mode": "absolute", "steps": list}))
}

fn lines(stack: bool) -> Value {
    json!({
        "drawStyle": "line",
        "fillOpacity": if stack { 30 } else { 8 },
        "lineWidth": 1,
        "showPoints": "never",
        "spanNulls": false,
        "stacking": {"group": "A", "mode": if stack { "normal" } else { "none" }},
    })
}

fn timeseries_options() -> Value {
    json!({
        "legend": {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": true},
        "tooltip": {"mode": "multi", "sort": "desc"},
    })
}

fn reduce() -> Value {
    json!({"calcs": ["lastNotNull"], "fields": "", "values": false})
}

fn stat_options(panel: &PanelSource) -> Value {
    json!({
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": reduce(),
        "textMode": panel.text.as_deref().unwrap_or("value"),
    })
}

fn bargauge_options() -> Value {
    json!({
        "displayMode": "basic",
        "orientation": "horizontal",
        "reduceOptions": reduce(),
        "showUnfilled": true,
    })
}

/// Joins the results of several queries by their common labels, and names and orders the columns.
fn transformations(columns: &[ColumnSource]) -> Value {
    let mut exclude = json!({"Time": true});
    let (mut index, mut rename) = (json!({}), json!({}));
    for (place, column) in columns.iter().enumerate() {
        if column.hidden {
            exclude[&column.field] = true.into();
        } else {
            index[&column.field] = place.into();
        }
        if let Some(title) = &column.title {
            rename[&column.field] = title.as_str().into();
        }
    }
    json!([
        {"id": "merge", "options": {}},
        {"id": "organize", "options": {
            "excludeByName": exclude, "indexByName": index, "renameByName": rename,
        }},
    ])
}

/// Units and links of columns.
fn overrides(columns: &[ColumnSource]) -> Result<Vec<Value>> {
    let mut list = Vec::new();
    for column in columns {
        let mut properties = Vec::new();
        if let Some(unit) = &column.unit {
            properties.push(json!({"id": "unit", "value": unit}));
        }
        if let Some(link) = &column.link {
            properties.push(json!({"id": "links", "value": [link_json(link)?]}));
        }
        if let (false, Some(title)) = (properties.is_empty(), &column.title) {
            list.push(json!({
                "matcher": {"id": "byName", "options": title},
                "properties": properties,
            }));
        }
    }
    Ok(list)
}

/// A link to the dashboard of the row's VM or infra node, with the same data source and times.
fn link_json(link: &str) -> Result<Value> {
    let (title, variables) = match link {
        "vm" => (
            "Open the VM",
            "var-namespace=${__data.fields.namespace}&var-vm=${__data.fields.name}",
        ),
        "host" => ("Open the infra node", "var-host=${__data.fields.infra_node}"),
        other => bail!("no link leads to {other}"),
    };
    let url = format!("/d/virtfleet-{link}?${{datasource:queryparam}}&{variables}&${{__url_time_range}}");
    Ok(json!({"targetBlank": false, "title": title, "url": url}))
}
