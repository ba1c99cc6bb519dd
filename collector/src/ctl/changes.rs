//! What has changed between two answers that are lists: the rows that are printed where nothing can be drawn in place.

use serde_json::Value;

/// Fields that say which thing an item is about, as far as it has them.
const NAMES: [&str; 8] = [
    "namespace",
    "name",
    "cluster",
    "node",
    "key",
    "id",
    "subject",
    "dryRun",
];
/// Fields that change with every pull and with the clock, wherever they are.
const PASSING: [&str; 4] = ["lastSeenMs", "lastTryMs", "tookMs", "since"];

/// What is to be printed.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Changes {
    /// Items that are new or other, as they are now.
    pub(super) changed: Vec<Value>,
    /// What is gone, in words.
    pub(super) gone: Vec<String>,
}

impl Changes {
    /// Whether there is nothing to print.
    pub(super) fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.gone.is_empty()
    }
}

/// The changes from one list to the next; none when they are no lists.
pub(super) fn between(before: &Value, after: &Value) -> Option<Changes> {
    let (before, after) = (before["items"].as_array()?, after["items"].as_array()?);
    let lasting_before: Vec<Value> = before.iter().map(lasting).collect();
    let changed = after
        .iter()
        .filter(|item| !lasting_before.contains(&lasting(item)));
    let is_there = |item: &&Value| after.iter().any(|other| identity(other) == identity(item));
    let gone = before.iter().filter(|item| !is_there(item));
    Some(Changes {
        changed: changed.cloned().collect(),
        gone: gone.map(words).collect(),
    })
}

fn identity(item: &Value) -> [&Value; 8] {
    NAMES.map(|name| &item[name])
}

fn words(item: &Value) -> String {
    let names = identity(item).into_iter().filter_map(Value::as_str);
    names.collect::<Vec<_>>().join("/")
}

fn lasting(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .filter(|(name, _)| !PASSING.contains(&name.as_str()));
            Value::Object(
                fields
                    .map(|(name, value)| (name.clone(), lasting(value)))
                    .collect(),
            )
        }
        Value::Array(items) => items.iter().map(lasting).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_passes_is_no_change_and_what_is_gone_is_named() {
        let vm = |name: &str, host: &str, seen: u64| json!({ "namespace": "a", "name": name, "infraNode": host, "agent": { "lastSeenMs": seen } });
        let list = |items: &[Value]| json!({ "items": items });
        let before = list(&[vm("x", "h1", 1), vm("y", "h1", 1)]);
        let later = list(&[vm("x", "h1", 2), vm("y", "h1", 2)]);
        assert!(between(&before, &later).unwrap().is_empty());
        let moved = list(&[vm("x", "h2", 3), vm("z", "h1", 3)]);
        let changes = between(&later, &moved).unwrap();
        assert_eq!(changes.changed, [vm("x", "h2", 3), vm("z", "h1", 3)]);
        assert_eq!(changes.gone, ["a/y"]);
        assert_eq!(between(&json!({}), &moved), None);
    }
}
