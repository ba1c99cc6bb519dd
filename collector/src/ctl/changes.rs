//! Differences between two responses that are lists: the rows printed by `--watch` when the output
//! is not a terminal.

use serde_json::Value;

/// Fields that identify an item; an item has some of them.
const IDENTITY_FIELDS: [&str; 9] = [
    "stream",
    "namespace",
    "name",
    "cluster",
    "node",
    "key",
    "id",
    "subject",
    "dryRun",
];
/// Fields that change with every pull or with time.
const VOLATILE: [&str; 11] = [
    "lastScrapeMs",
    "lastSeenMs",
    "lastSuccessMs",
    "lastTryMs",
    "oldestMs",
    "acceptedSamples",
    "scrapedSamples",
    "sentBytes",
    "sentSamples",
    "since",
    "tookMs",
];

#[derive(Debug, Default, PartialEq)]
pub(super) struct Changes {
    /// New and changed items.
    pub(super) changed: Vec<Value>,
    /// Names of removed items.
    pub(super) gone: Vec<String>,
}

impl Changes {
    /// Whether there is nothing to print.
    pub(super) fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.gone.is_empty()
    }
}

/// The changes from one list to the next; none if the responses are not lists.
pub(super) fn between(before: &Value, after: &Value) -> Option<Changes> {
    let (before, after) = (before["items"].as_array()?, after["items"].as_array()?);
    let lasting_before: Vec<Value> = before.iter().map(without_volatile).collect();
    let changed = after
        .iter()
        .filter(|item| !lasting_before.contains(&without_volatile(item)));
    let is_there = |item: &&Value| after.iter().any(|other| identity(other) == identity(item));
    // An event stays what happened, also when the list does not have it any more.
    let is_event = |item: &&Value| !item["atMs"].is_null();
    let gone = before.iter().filter(|item| !is_event(item) && !is_there(item));
    Some(Changes {
        changed: changed.cloned().collect(),
        gone: gone.map(display_name).collect(),
    })
}

fn identity(item: &Value) -> [&Value; 9] {
    IDENTITY_FIELDS.map(|name| &item[name])
}

fn display_name(item: &Value) -> String {
    let names = identity(item).into_iter().filter_map(Value::as_str);
    names.collect::<Vec<_>>().join("/")
}

fn without_volatile(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .filter(|(name, _)| !VOLATILE.contains(&name.as_str()));
            Value::Object(
                fields
                    .map(|(name, value)| (name.clone(), without_volatile(value)))
                    .collect(),
            )
        }
        Value::Array(items) => items.iter().map(without_volatile).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn volatile_fields_are_ignored_and_removed_items_are_named() {
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
