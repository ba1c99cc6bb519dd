//! Effective settings: the origin of each value.

use serde_json::Value;

use super::{
    path::{Step, is_within, print},
    tree::{Origin, Tree, TreeValue},
};

/// Effective values by path, each with its origin.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Origins {
    /// Scalars and empty collections, sorted by key like mappings.
    pub leaves: Vec<Leaf>,
    collections: Vec<(String, Origin)>,
}

/// One effective value.
#[derive(Debug, Clone, PartialEq)]
pub struct Leaf {
    /// Path of the value, e.g. `server.listeners[default].plain`.
    pub path: String,
    /// The value.
    pub value: Value,
    /// Origin of the value.
    pub origin: Origin,
}

impl Origins {
    /// The origin of the value at a path, in the form of [`Leaf::path`]. For a path that nothing
    /// sets, the origin of the collection that contains it.
    pub fn of(&self, path: &str) -> Origin {
        let leaves = self.leaves.iter().map(|leaf| (&leaf.path, &leaf.origin));
        leaves
            .chain(self.collections.iter().map(|(path, origin)| (path, origin)))
            .filter(|(outer, _)| is_within(path, outer))
            .max_by_key(|(outer, _)| outer.len())
            .map_or(Origin::Default, |(_, origin)| origin.clone())
    }

    /// Adds the values of a tree.
    pub(super) fn collect(&mut self, tree: &Tree, steps: &mut Vec<Step>) {
        match &tree.value {
            TreeValue::Map(map) if !map.is_empty() => {
                self.collections.push((print(steps), tree.origin.clone()));
                for (key, child) in map {
                    steps.push(Step::Key(key.clone()));
                    self.collect(child, steps);
                    steps.pop();
                }
            }
            TreeValue::List(items) if !items.is_empty() => {
                self.collections.push((print(steps), tree.origin.clone()));
                for (index, child) in items.iter().enumerate() {
                    steps.push(Step::Item(index, child.name().map(str::to_owned)));
                    self.collect(child, steps);
                    steps.pop();
                }
            }
            _ => self.leaves.push(Leaf {
                path: print(steps),
                value: tree.to_json(),
                origin: tree.origin.clone(),
            }),
        }
    }
}
