//! A settings tree in which every value has the file and line that set it, and the rules for
//! merging two trees.
//!
//! Maps are merged, the last scalar applies, lists in which all items have a `name` are merged by
//! it, every other list is replaced completely, and an explicit null removes what files of lower
//! precedence set. Merging is associative: folding three files from either end gives the same
//! result.

pub use super::origin::Origin;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use serde_json::Value;

use super::{
    path::{Step, print},
    problem::Problem,
    yaml::{Node, NodeValue},
};

/// Effect of a value on the values of lower precedence under the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MergeEffect {
    /// Is merged with them.
    Merges,
    /// Replaces those of other files, and is merged with the default: there was a null in between.
    Resets,
    /// Replaces all of them, including the default.
    Replaces,
}

/// A value with its origin.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tree {
    pub(super) origin: Origin,
    pub(super) value: TreeValue,
    effect: MergeEffect,
}

/// Content of a [`Tree`].
#[derive(Debug, Clone, PartialEq)]
pub(super) enum TreeValue {
    Scalar(Value),
    List(Vec<Tree>),
    Map(BTreeMap<String, Tree>),
}

impl Tree {
    /// The tree of a program's defaults. Nulls are omitted, because in defaults they mean "no
    /// value".
    pub(super) fn defaults(value: Value) -> Self {
        let value = match value {
            Value::Array(items) => TreeValue::List(items.into_iter().map(Self::defaults).collect()),
            Value::Object(entries) => TreeValue::Map(
                entries
                    .into_iter()
                    .filter(|(_, value)| !value.is_null())
                    .map(|(key, value)| (key, Self::defaults(value)))
                    .collect(),
            ),
            scalar => TreeValue::Scalar(scalar),
        };
        Self {
            origin: Origin::Default,
            value,
            effect: MergeEffect::Merges,
        }
    }

    /// The tree of a file's document. Two items of one list with the same name are reported as a
    /// problem, and merged.
    pub(super) fn of_document(node: Node, file: &Arc<str>, problems: &mut Vec<Problem>) -> Self {
        let line = node.line;
        Self::of_node(node, line, file, &mut Vec::new(), problems)
    }

    fn of_node(
        node: Node,
        line: usize,
        file: &Arc<str>,
        steps: &mut Vec<Step>,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let origin = Origin::File {
            file: file.clone(),
            line,
        };
        let (value, effect) = match node.value {
            NodeValue::Scalar(Value::Null) => (TreeValue::Scalar(Value::Null), MergeEffect::Resets),
            NodeValue::Scalar(value) => (TreeValue::Scalar(value), MergeEffect::Replaces),
            NodeValue::Mapping(entries) => {
                let mut map = BTreeMap::new();
                for (key, key_line, node) in entries {
                    steps.push(Step::Key(key.clone()));
                    let tree = Self::of_node(node, key_line, file, steps, problems);
                    steps.pop();
                    map.insert(key, tree);
                }
                (TreeValue::Map(map), MergeEffect::Merges)
            }
            NodeValue::Sequence(nodes) => {
                let mut items = Vec::with_capacity(nodes.len());
                for (index, node) in nodes.into_iter().enumerate() {
                    let name = node.get("name").and_then(Node::as_str).map(str::to_owned);
                    steps.push(Step::Item(index, name));
                    let line = node.line;
                    items.push(Self::of_node(node, line, file, steps, problems));
                    steps.pop();
                }
                if is_named(&items) {
                    let mut unique = Vec::new();
                    for twice in merge_named(&mut unique, items) {
                        let path = print(steps);
                        let message = format!("two items have the name {:?}", twice.1);
                        problems.push(Problem::at(&twice.0, path, message));
                    }
                    (TreeValue::List(unique), MergeEffect::Merges)
                } else {
                    (TreeValue::List(items), MergeEffect::Replaces)
                }
            }
        };
        Self {
            origin,
            value,
            effect,
        }
    }

    /// The `name` of an item, if it is a mapping that has one.
    pub(super) fn name(&self) -> Option<&str> {
        match &self.value {
            TreeValue::Map(map) => match &map.get("name")?.value {
                TreeValue::Scalar(Value::String(name)) if !name.is_empty() => Some(name),
                _ => None,
            },
            _ => None,
        }
    }

    /// Merges `over` into `self`; both are from files.
    pub(super) fn merge(self, over: Self) -> Self {
        if over.effect != MergeEffect::Merges {
            return over;
        }
        let under_effect = self.effect;
        match (self.value, over.value) {
            (TreeValue::Map(mut under), TreeValue::Map(map)) => {
                for (key, tree) in map {
                    let merged = match under.remove(&key) {
                        Some(weaker) => weaker.merge(tree),
                        None => tree,
                    };
                    under.insert(key, merged);
                }
                Self {
                    origin: over.origin,
                    value: TreeValue::Map(under),
                    effect: under_effect,
                }
            }
            (TreeValue::List(mut under), TreeValue::List(items)) if is_named(&under) => {
                merge_named(&mut under, items);
                Self {
                    origin: over.origin,
                    value: TreeValue::List(under),
                    effect: under_effect,
                }
            }
            (under, value) => Self {
                origin: over.origin,
                value,
                effect: match under {
                    TreeValue::Scalar(Value::Null) => MergeEffect::Resets,
                    _ => MergeEffect::Replaces,
                },
            },
        }
    }

    /// Merges the values from files over the default. A null here selects the default, or no value
    /// if there is no default.
    pub(super) fn over_default(self, default: Option<&Self>) -> Option<Self> {
        let default = default.filter(|_| self.effect != MergeEffect::Replaces);
        let value = match self.value {
            TreeValue::Scalar(Value::Null) => return default.cloned(),
            TreeValue::Map(map) => {
                let mut under = match default.map(|tree| &tree.value) {
                    Some(TreeValue::Map(under)) => under.clone(),
                    _ => BTreeMap::new(),
                };
                for (key, tree) in map {
                    let weaker = under.remove(&key);
                    if let Some(tree) = tree.over_default(weaker.as_ref()) {
                        under.insert(key, tree);
                    }
                }
                TreeValue::Map(under)
            }
            TreeValue::List(items) => {
                let mut under = match default.map(|tree| &tree.value) {
                    Some(TreeValue::List(under)) if is_named(under) => under.clone(),
                    _ => Vec::new(),
                };
                for item in items {
                    let weaker = item
                        .name()
                        .and_then(|name| under.iter().position(|w| w.name() == Some(name)));
                    match weaker {
                        Some(index) => {
                            if let Some(tree) = item.over_default(under.get(index)) {
                                under[index] = tree;
                            }
                        }
                        // A null as an item of a list does not reset anything. It stays, and the
                        // type rejects it.
                        None if item.value == TreeValue::Scalar(Value::Null) => under.push(item),
                        None => under.extend(item.over_default(None)),
                    }
                }
                TreeValue::List(under)
            }
            scalar @ TreeValue::Scalar(_) => scalar,
        };
        Some(Self {
            origin: self.origin,
            value,
            effect: MergeEffect::Merges,
        })
    }

    /// The value without origins.
    pub(super) fn to_json(&self) -> Value {
        match &self.value {
            TreeValue::Scalar(value) => value.clone(),
            TreeValue::List(items) => items.iter().map(Self::to_json).collect(),
            TreeValue::Map(map) => Value::Object(
                map.iter()
                    .map(|(key, tree)| (key.clone(), tree.to_json()))
                    .collect(),
            ),
        }
    }
}

/// Whether a list is merged by name: it is not empty, and each item has a name.
fn is_named(items: &[Tree]) -> bool {
    !items.is_empty() && items.iter().all(|item| item.name().is_some())
}

/// Merges named items into named items; new names are appended. Returns origin and name of the
/// items that were already present.
fn merge_named(under: &mut Vec<Tree>, items: Vec<Tree>) -> Vec<(Origin, String)> {
    let mut places: HashMap<String, usize> = under
        .iter()
        .enumerate()
        .filter_map(|(index, item)| Some((item.name()?.to_owned(), index)))
        .collect();
    let mut merged = Vec::new();
    for item in items {
        let name = item.name().unwrap_or_default().to_owned();
        if let Some(index) = places.get(&name) {
            merged.push((item.origin.clone(), name));
            let weaker = under[*index].clone();
            under[*index] = weaker.merge(item);
        } else {
            places.insert(name, under.len());
            under.push(item);
        }
    }
    merged
}

#[cfg(test)]
mod tests;
