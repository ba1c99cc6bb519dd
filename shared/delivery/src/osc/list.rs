//! The changes of one list of an OperatingSystemConfig: `spec.files` or `spec.units`.

use serde_json::{Value, json};

use super::record::{Digests, item_digest};

/// A list of the object, and what it should have of virtfleet.
#[derive(Debug, Clone, Copy)]
pub(super) struct ItemList<'a> {
    /// Its key in `spec`.
    pub(super) name: &'static str,
    /// The key that identifies an item.
    pub(super) key: &'static str,
    /// The list; none if it is missing or null.
    pub(super) existing: Option<&'a [Value]>,
    /// The items that it should have.
    pub(super) wanted: &'a [Value],
    /// Digests of the items that an earlier admission added.
    pub(super) recorded: &'a Digests,
}

/// Changes of a list.
#[derive(Debug, Default)]
pub(super) struct ListPlan {
    /// Operations of a JSON patch, in order.
    pub(super) operations: Vec<Value>,
    /// Digests of virtfleet's items after the patch.
    pub(super) record: Digests,
    /// Keys of wanted items at which the list has an item of somebody else.
    pub(super) conflicts: Vec<String>,
}

impl ItemList<'_> {
    /// Plans the changes. Items are replaced in place and appended, so that no index of another
    /// item changes before the operations that use it.
    pub(super) fn plan(&self, digest: &dyn Fn(&str) -> String) -> ListPlan {
        let mut plan = ListPlan::default();
        let mut appended = Vec::new();
        for item in self.wanted {
            let id = self.id(item);
            let sum = item_digest(item, digest);
            match self.found(id).as_slice() {
                [] => {
                    appended.push(item);
                    plan.record.insert(id.to_owned(), sum);
                }
                // An item that somebody else added with the same content is not recorded.
                [(_, found)] if *found == item => {
                    if self.recorded.get(id) == Some(&sum) {
                        plan.record.insert(id.to_owned(), sum);
                    }
                }
                [(index, found)] if self.is_recorded(id, found, digest) => {
                    let path = format!("/spec/{}/{index}", self.name);
                    let operation = json!({"op": "replace", "path": path, "value": item});
                    plan.operations.push(operation);
                    plan.record.insert(id.to_owned(), sum);
                }
                _ => plan.conflicts.push(id.to_owned()),
            }
        }
        for index in self.obsolete(digest) {
            let path = format!("/spec/{}/{index}", self.name);
            plan.operations.push(json!({"op": "remove", "path": path}));
        }
        plan.operations.extend(self.additions(&appended));
        plan
    }

    fn additions(&self, items: &[&Value]) -> Vec<Value> {
        let path = format!("/spec/{}", self.name);
        match self.existing {
            _ if items.is_empty() => Vec::new(),
            None => vec![json!({"op": "add", "path": path, "value": items})],
            Some(_) => {
                let add = |item| json!({"op": "add", "path": format!("{path}/-"), "value": item});
                items.iter().map(add).collect()
            }
        }
    }

    /// Indices of items that an earlier admission added and that are not wanted any more, from the
    /// last.
    fn obsolete(&self, digest: &dyn Fn(&str) -> String) -> Vec<usize> {
        let is_wanted = |id: &str| self.wanted.iter().any(|item| self.id(item) == id);
        let mut indices = Vec::new();
        for id in self.recorded.keys().filter(|id| !is_wanted(id)) {
            if let [(index, found)] = self.found(id).as_slice()
                && self.is_recorded(id, found, digest)
            {
                indices.push(*index);
            }
        }
        indices.sort_unstable_by(|a, b| b.cmp(a));
        indices
    }

    fn is_recorded(&self, id: &str, item: &Value, digest: &dyn Fn(&str) -> String) -> bool {
        self.recorded.get(id) == Some(&item_digest(item, digest))
    }

    fn found(&self, id: &str) -> Vec<(usize, &Value)> {
        let existing = self.existing.unwrap_or_default().iter().enumerate();
        existing.filter(|(_, item)| self.id(item) == id).collect()
    }

    fn id<'v>(&self, item: &'v Value) -> &'v str {
        item[self.key].as_str().unwrap_or_default()
    }
}
