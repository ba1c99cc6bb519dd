//! Who set what: the effective settings, value by value.

use serde_json::Value;

use super::{
    path::{Step, is_within, print},
    tree::{Origin, Tree, TreeValue},
};

/// Every value that stands, by path, with who set it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Origins {
    /// Scalars and empty collections, sorted as mappings are: by key.
    pub leaves: Vec<Leaf>,
    collections: Vec<(String, Origin)>,
}

/// One effective value.
#[derive(Debug, Clone, PartialEq)]
pub struct Leaf {
    /// Its key, e.g. `server.listeners[default].plain`.
    pub path: String,
    /// The value.
    pub value: Value,
    /// Who set it.
    pub origin: Origin,
}

impl Origins {
    /// Who set the value at a path as [`Leaf::path`] prints it; for a path that nothing set, the
    /// collection around it.
    pub fn of(&self, path: &str) -> Origin {
        let leaves = self.leaves.iter().map(|leaf| (&leaf.path, &leaf.origin));
        leaves
            .chain(self.collections.iter().map(|(path, origin)| (path, origin)))
            .filter(|(outer, _)| is_within(path, outer))
            .max_by_key(|(outer, _)| outer.len())
            .map_or(Origin::Default, |(_, origin)| origin.clone())
    }

    /// Takes in a tree.
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
