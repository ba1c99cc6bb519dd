//! `--sort-by`: sorts the items of a response by a column of the table, or by a field.

use std::{cmp::Ordering, collections::BTreeSet};

use serde_json::Value;

use super::fail::Fail;

/// Columns whose names are not those of their fields.
const COLUMNS: [(&str, &str); 17] = [
    ("health", "health.verdict"),
    ("reason", "health.reason"),
    ("agent", "agent.status"),
    ("seen", "agent.lastSeenMs"),
    ("address", "agent.address"),
    ("version", "agent.version"),
    ("cpus", "guest.metrics.cpus"),
    ("load", "guest.metrics.load1"),
    ("time", "atMs"),
    ("age", "startMs"),
    ("duration", "durationMs"),
    ("pause", "felt.pauseMs"),
    ("added", "seriesAdded"),
    ("backlog", "bytes"),
    ("dropped", "droppedByRelabel"),
    ("rate", "rateSamplesPerS"),
    ("scraped", "lastScrapeMs"),
];
/// Words in the order of their weight, the gravest first.
const RANKED: [&str; 7] = [
    "Critical", "critical", "Degraded", "warning", "Unknown", "info", "Healthy",
];
/// Maximum depth of a field.
const MAX_DEPTH: usize = 4;

/// Sorts `body.items` by `column`; items without the field are last.
pub(super) fn sort_by(body: &mut Value, column: &str) -> Result<(), Fail> {
    let Some(items) = body["items"].as_array_mut() else {
        return Err(Fail::Usage("--sort-by is for lists".to_owned()));
    };
    let mut known = BTreeSet::new();
    for item in items.iter() {
        fields(item, "", 0, &mut known);
    }
    if items.is_empty() {
        return Ok(());
    }
    let field = field(column, &known).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(String::as_str).collect();
        Fail::Usage(format!(
            "there is no column or field {column:?} to sort by; fields: {}",
            names.join(", ")
        ))
    })?;
    let pointer = format!("/{}", field.replace('.', "/"));
    items.sort_by(|a, b| order(a.pointer(&pointer), b.pointer(&pointer)));
    Ok(())
}

fn field(column: &str, known: &BTreeSet<String>) -> Option<String> {
    let plain = |text: &str| text.replace(['-', '_'], "").to_lowercase();
    let column = plain(column);
    let alias = COLUMNS
        .iter()
        .find(|(name, _)| *name == column)
        .map(|(_, field)| *field);
    let last = |path: &String| path.rsplit('.').next().map(plain) == Some(column.clone());
    let exact = known.iter().find(|path| plain(path) == column);
    let found = alias
        .and_then(|field| known.get(field))
        .or(exact)
        .or_else(|| known.iter().find(|path| last(path)));
    found.cloned()
}

fn fields(value: &Value, path: &str, depth: usize, known: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields_of) if depth < MAX_DEPTH => {
            for (name, value) in fields_of {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                fields(value, &path, depth + 1, known);
            }
        }
        Value::String(_) | Value::Number(_) | Value::Bool(_) => drop(known.insert(path.to_owned())),
        _ => {}
    }
}

fn order(a: Option<&Value>, b: Option<&Value>) -> Ordering {
    let rank = |text: &str| RANKED.iter().position(|word| *word == text);
    match (a, b) {
        (None | Some(Value::Null), None | Some(Value::Null)) => Ordering::Equal,
        (None | Some(Value::Null), _) => Ordering::Greater,
        (_, None | Some(Value::Null)) => Ordering::Less,
        (Some(Value::Number(a)), Some(Value::Number(b))) => {
            let number = |number: &serde_json::Number| number.as_f64().unwrap_or_default();
            number(a).total_cmp(&number(b))
        }
        (Some(Value::String(a)), Some(Value::String(b))) => match (rank(a), rank(b)) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => a.cmp(b),
        },
        (Some(a), Some(b)) => a.to_string().cmp(&b.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sorted(column: &str) -> Result<Vec<String>, Fail> {
        let mut body = json!({ "items": [
            { "name": "a", "health": { "verdict": "Healthy" }, "infraNode": "h2", "findings": 10 },
            { "name": "b", "health": { "verdict": "Critical" }, "infraNode": null, "findings": 9 },
            { "name": "c", "health": { "verdict": "Unknown" }, "infraNode": "h1", "findings": 0 },
        ] });
        sort_by(&mut body, column)?;
        let items = body["items"].as_array().unwrap();
        Ok(items
            .iter()
            .map(|item| item["name"].as_str().unwrap().to_owned())
            .collect())
    }

    #[test]
    fn columns_and_fields_sort_by_meaning() {
        for (column, order) in [
            ("health", ["b", "c", "a"]),
            ("INFRA-NODE", ["c", "a", "b"]),
            ("findings", ["c", "b", "a"]),
            ("health.verdict", ["b", "c", "a"]),
            ("name", ["a", "b", "c"]),
        ] {
            assert_eq!(sorted(column).unwrap(), order, "{column}");
        }
        let error = sorted("colour").unwrap_err().to_string();
        assert!(
            error.contains("\"colour\"") && error.contains("health.verdict"),
            "{error}"
        );
        assert!(sort_by(&mut json!({}), "name").is_err());
    }
}
