//! Checks a file's tree against the JSON Schema of its type: unknown and removed keys, numbers out
//! of range.
//!
//! serde stops at the first unknown key and cannot suggest a known one; the schema contains all
//! keys. Only the keywords that schemars writes for ordinary types are supported: `$ref`,
//! `properties`, `additionalProperties`, `items`, `anyOf`, `oneOf`, `allOf`, `minimum`, `maximum`,
//! `deprecated`. serde checks the rest.

use serde_json::{Map, Value};

use super::{
    path::{Step, print},
    problem::Problem,
    tree::{Tree, TreeValue},
};

/// Maximum number of `$ref`s and alternatives that are followed for one value.
const MAX_HOPS: usize = 16;

/// Message about a removed key.
const IGNORED: &str = "no longer has an effect and is ignored; remove it";

/// Keywords that restrict a value. A schema without any of them allows any value.
const RESTRICTING_KEYWORDS: [&str; 10] = [
    "type",
    "properties",
    "additionalProperties",
    "items",
    "enum",
    "const",
    "$ref",
    "anyOf",
    "oneOf",
    "allOf",
];

/// All schemas that apply to a value.
struct Shapes<'s> {
    root: &'s Value,
    alternatives: Vec<&'s Map<String, Value>>,
    /// Any value is allowed.
    open: bool,
}

impl<'s> Shapes<'s> {
    fn new(root: &'s Value, schemas: impl IntoIterator<Item = &'s Value>) -> Self {
        let mut shapes = Self {
            root,
            alternatives: Vec::new(),
            open: false,
        };
        for schema in schemas {
            shapes.add(schema, 0);
        }
        shapes
    }

    fn add(&mut self, schema: &'s Value, hops: usize) {
        let Value::Object(shape) = schema else {
            self.open |= *schema == Value::Bool(true);
            return;
        };
        if hops > MAX_HOPS || !is_restricting(shape) {
            self.open = true;
            return;
        }
        self.alternatives.push(shape);
        if let Some(target) = shape.get("$ref").and_then(Value::as_str) {
            match target
                .strip_prefix('#')
                .and_then(|pointer| self.root.pointer(pointer))
            {
                Some(target) => self.add(target, hops + 1),
                None => self.open = true,
            }
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            for alternative in shape.get(key).and_then(Value::as_array).into_iter().flatten() {
                self.add(alternative, hops + 1);
            }
        }
    }

    /// Known keys of a mapping, with their schemas.
    fn properties(&self) -> impl Iterator<Item = (&'s String, &'s Value)> {
        self.listed().filter(|(_, schema)| !is_removed(schema))
    }

    /// Whether a key is listed only because earlier versions had it.
    fn has_removed(&self, key: &str) -> bool {
        self.listed()
            .any(|(name, schema)| name == key && is_removed(schema))
    }

    fn listed(&self) -> impl Iterator<Item = (&'s String, &'s Value)> {
        self.alternatives
            .iter()
            .filter_map(|shape| shape.get("properties")?.as_object())
            .flatten()
    }

    /// Schemas for the value of a key. None if the key is unknown.
    fn under(&self, key: &str) -> Option<Self> {
        let mut found: Vec<&Value> = self
            .properties()
            .filter(|(name, _)| *name == key)
            .map(|(_, schema)| schema)
            .collect();
        let mut mapping = false;
        for shape in &self.alternatives {
            mapping |= shape.contains_key("properties") || shape.contains_key("additionalProperties");
            match shape.get("additionalProperties") {
                None | Some(Value::Bool(false)) => {}
                Some(schema) => found.push(schema),
            }
        }
        // No schema restricts keys: either any key is allowed, or serde reports that a mapping is
        // wrong here.
        let unrestricted = self.open || !mapping;
        if found.is_empty() && !unrestricted {
            return None;
        }
        let mut under = Self::new(self.root, found);
        under.open |= unrestricted;
        Some(under)
    }

    fn items(&self) -> Self {
        let schemas = self.alternatives.iter().filter_map(|shape| shape.get("items"));
        let mut items = Self::new(self.root, schemas);
        items.open |= self.open;
        items
    }

    /// Allowed words, if the value is an enumeration.
    fn words(&self) -> impl Iterator<Item = &'s str> {
        self.alternatives.iter().flat_map(|shape| {
            let listed = shape.get("enum").and_then(Value::as_array).into_iter().flatten();
            listed.chain(shape.get("const")).filter_map(Value::as_str)
        })
    }

    /// Message about the bound that a number violates.
    fn bound(&self, number: f64) -> Option<String> {
        self.alternatives.iter().find_map(|shape| {
            let bound = |key| shape.get(key).and_then(Value::as_f64);
            match (bound("minimum"), bound("maximum")) {
                (Some(least), _) if number < least => Some(format!("{number} is less than {least}")),
                (_, Some(most)) if number > most => Some(format!("{number} is more than {most}")),
                _ => None,
            }
        })
    }
}

fn is_restricting(shape: &Map<String, Value>) -> bool {
    RESTRICTING_KEYWORDS.iter().any(|key| shape.contains_key(*key))
}

/// Whether this is the schema of a key that earlier versions had: deprecated, and any value is
/// allowed. A deprecated key with a type still has its meaning.
fn is_removed(schema: &Value) -> bool {
    let is_deprecated = schema.get("deprecated") == Some(&Value::Bool(true));
    is_deprecated && !schema.as_object().is_some_and(is_restricting)
}

/// Removes unknown keys and forbidden values from a file's tree, and reports them as `problems`;
/// takes out the keys that earlier versions had, and reports them as `ignored`.
pub(super) fn screen(
    tree: &mut Tree,
    schema: &Value,
    problems: &mut Vec<Problem>,
    ignored: &mut Vec<Problem>,
) {
    let shapes = Shapes::new(schema, [schema]);
    walk(tree, &shapes, &mut Vec::new(), problems, ignored);
}

/// Returns whether the value is kept.
fn walk(
    tree: &mut Tree,
    shapes: &Shapes<'_>,
    steps: &mut Vec<Step>,
    problems: &mut Vec<Problem>,
    ignored: &mut Vec<Problem>,
) -> bool {
    match &mut tree.value {
        TreeValue::Scalar(Value::Number(number)) if !shapes.open => {
            if let Some(message) = number.as_f64().and_then(|number| shapes.bound(number)) {
                problems.push(Problem::at(&tree.origin, print(steps), message));
                return false;
            }
        }
        TreeValue::Scalar(_) => {}
        TreeValue::List(items) => {
            let shapes = shapes.items();
            let mut index = 0;
            items.retain_mut(|item| {
                steps.push(Step::Item(index, item.name().map(str::to_owned)));
                let stays = walk(item, &shapes, steps, problems, ignored);
                steps.pop();
                index += 1;
                stays
            });
        }
        TreeValue::Map(map) => map.retain(|key, child| {
            steps.push(Step::Key(key.clone()));
            let stays = if shapes.has_removed(key) {
                ignored.push(Problem::at(&child.origin, print(steps), IGNORED));
                false
            } else if let Some(shapes) = shapes.under(key) {
                walk(child, &shapes, steps, problems, ignored)
            } else {
                let mut problem = Problem::at(&child.origin, print(steps), "unknown key");
                problem.nearest = nearest(key, shapes.properties().map(|(name, _)| name.as_str()))
                    .map(str::to_owned)
                    .or_else(|| elsewhere(key, shapes.root));
                problems.push(problem);
                false
            };
            steps.pop();
            stays
        }),
    }
    true
}

/// The most similar known word, if any is similar enough.
fn nearest<'w>(word: &str, known: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    let lower = word.to_lowercase();
    known
        .map(|known| (strsim::damerau_levenshtein(&lower, &known.to_lowercase()), known))
        .filter(|(distance, known)| {
            *distance <= 1 + known.len().min(word.len()) / 4 && *distance < known.len()
        })
        .min()
        .map(|(_, known)| known)
}

/// Path of a key with exactly this name elsewhere in the schema: the key may be at the wrong place.
fn elsewhere(key: &str, root: &Value) -> Option<String> {
    fn find(key: &str, shapes: &Shapes<'_>, path: &str, depth: usize) -> Option<String> {
        if depth == 0 {
            return None;
        }
        let join = |name: &str| {
            if path.is_empty() {
                name.to_owned()
            } else {
                format!("{path}.{name}")
            }
        };
        if let Some((name, _)) = shapes.properties().find(|(name, _)| *name == key) {
            return Some(join(name));
        }
        shapes.properties().find_map(|(name, schema)| {
            let below = Shapes::new(shapes.root, [schema]);
            find(key, &below, &join(name), depth - 1)
                .or_else(|| find(key, &below.items(), &format!("{}[]", join(name)), depth - 1))
        })
    }
    find(key, &Shapes::new(root, [root]), "", 5)
}

/// The most similar allowed word, if the schema lists the allowed words.
pub(super) fn nearest_word(root: &Value, steps: &[Step], word: &str) -> Option<String> {
    let mut shapes = Shapes::new(root, [root]);
    for step in steps {
        shapes = match step {
            Step::Key(key) => shapes.under(key)?,
            Step::Item(..) => shapes.items(),
        };
    }
    nearest(word, shapes.words()).map(str::to_owned)
}
