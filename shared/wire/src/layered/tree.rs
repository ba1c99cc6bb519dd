//! A settings tree in which every value knows the file and line that set it, and the rule by which
//! two are merged.
//!
//! Maps merge, the last scalar wins, lists whose items all have a `name` merge by it, every other
//! list is replaced whole, and an explicit null removes what files of lower precedence set. Merging
//! is associative: folding three files from either end gives the same.

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

/// What a value does to the weaker ones of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stance {
    /// Merges into them.
    Merges,
    /// Drops those of weaker files, and merges into the default: a null stood in between.
    Resets,
    /// Drops all of them, the default too.
    Replaces,
}

/// A value with its origin.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tree {
    pub(super) origin: Origin,
    pub(super) value: TreeValue,
    stance: Stance,
}

/// What a [`Tree`] is.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum TreeValue {
    Scalar(Value),
    List(Vec<Tree>),
    Map(BTreeMap<String, Tree>),
}

impl Tree {
    /// The tree of a program's defaults. Nulls are left out: they mean "nothing" there.
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
            stance: Stance::Merges,
        }
    }

    /// The tree of one file's document. Two items of one name in one list are a problem, and are
    /// merged.
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
        let (value, stance) = match node.value {
            NodeValue::Scalar(Value::Null) => (TreeValue::Scalar(Value::Null), Stance::Resets),
            NodeValue::Scalar(value) => (TreeValue::Scalar(value), Stance::Replaces),
            NodeValue::Mapping(entries) => {
                let mut map = BTreeMap::new();
                for (key, key_line, node) in entries {
                    steps.push(Step::Key(key.clone()));
                    let tree = Self::of_node(node, key_line, file, steps, problems);
                    steps.pop();
                    map.insert(key, tree);
                }
                (TreeValue::Map(map), Stance::Merges)
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
                    (TreeValue::List(unique), Stance::Merges)
                } else {
                    (TreeValue::List(items), Stance::Replaces)
                }
            }
        };
        Self {
            origin,
            value,
            stance,
        }
    }

    /// The item's `name`, when it is a mapping that has one.
    pub(super) fn name(&self) -> Option<&str> {
        match &self.value {
            TreeValue::Map(map) => match &map.get("name")?.value {
                TreeValue::Scalar(Value::String(name)) if !name.is_empty() => Some(name),
                _ => None,
            },
            _ => None,
        }
    }

    /// `over` laid over `self`, both from files.
    pub(super) fn merge(self, over: Self) -> Self {
        if over.stance != Stance::Merges {
            return over;
        }
        let under_stance = self.stance;
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
                    stance: under_stance,
                }
            }
            (TreeValue::List(mut under), TreeValue::List(items)) if is_named(&under) => {
                merge_named(&mut under, items);
                Self {
                    origin: over.origin,
                    value: TreeValue::List(under),
                    stance: under_stance,
                }
            }
            (under, value) => Self {
                origin: over.origin,
                value,
                stance: match under {
                    TreeValue::Scalar(Value::Null) => Stance::Resets,
                    _ => Stance::Replaces,
                },
            },
        }
    }

    /// What files say, laid over the default: here a null means that the default stands, or nothing
    /// if there is none.
    pub(super) fn over_default(self, default: Option<&Self>) -> Option<Self> {
        let default = default.filter(|_| self.stance != Stance::Replaces);
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
                        // A null among a list's items is no reset: it stays, for the type to
                        // refuse.
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
            stance: Stance::Merges,
        })
    }

    /// The same without origins.
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

/// Whether a list is one that merges by name: it has items, and each has a name.
fn is_named(items: &[Tree]) -> bool {
    !items.is_empty() && items.iter().all(|item| item.name().is_some())
}

/// Lays named items over named ones; new names go to the end. Returns origin and name of those that
/// were there already.
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
