//! The record of the items that an admission added, in an annotation of the object: only an item
//! that is still as recorded is ever changed or removed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Annotation with the digests of the items that virtfleet added.
pub const OWNED_ITEMS_ANNOTATION: &str = "virtfleet.io/owned-items";

/// Version of the record's form.
const VERSION: u32 = 1;

/// Digests of the items in a list, by path of a file or name of a unit.
pub(super) type Digests = BTreeMap<String, String>;

/// The record.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ItemRecord {
    v: u32,
    /// By path.
    pub(super) files: Digests,
    /// By name.
    pub(super) units: Digests,
}

impl ItemRecord {
    pub(super) fn new(files: Digests, units: Digests) -> Self {
        let v = VERSION;
        Self { v, files, units }
    }

    /// The record of an object. A missing or unreadable one is empty: nothing counts as added.
    pub(super) fn of(object: &Value) -> Self {
        let text = object["metadata"]["annotations"][OWNED_ITEMS_ANNOTATION].as_str();
        let record: Option<Self> = text.and_then(|text| serde_json::from_str(text).ok());
        record.filter(|record| record.v == VERSION).unwrap_or_default()
    }

    /// The annotation's value; none if nothing is recorded.
    pub(super) fn text(&self) -> Option<String> {
        let is_empty = self.files.is_empty() && self.units.is_empty();
        (!is_empty).then(|| serde_json::to_string(self).unwrap_or_default())
    }
}

/// The digest of an item, independent of the order of its keys.
pub(super) fn item_digest(item: &Value, digest: &dyn Fn(&str) -> String) -> String {
    digest(&sorted(item).to_string())
}

/// The value with sorted keys, also if serde_json keeps their order.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<&String, &Value> = fields.iter().collect();
            let fields = fields
                .into_iter()
                .map(|(key, value)| (key.clone(), sorted(value)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}
