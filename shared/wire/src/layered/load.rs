//! The loader: converts fragments to a typed value, with problems and origins. It never fails: for
//! invalid files it returns the defaults and problems.

use std::{collections::BTreeSet, sync::Arc};

use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use serde_path_to_error::Segment;

use super::{
    origins::Origins,
    path::{Step, is_within, print},
    problem::Problem,
    schema,
    tree::{Tree, TreeValue},
    yaml::parse_yaml,
};

/// A settings file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fragment {
    /// Its name in messages, usually its path in the guest.
    pub file: String,
    /// Its complete text.
    pub text: String,
}

/// Header that every fragment must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expect<'a> {
    /// Its `apiVersion`.
    pub api_version: &'a str,
    /// Its `kind`.
    pub kind: &'a str,
}

/// Result of loading the fragments.
#[derive(Debug, Clone)]
pub struct Loaded<T> {
    /// The settings to use. A section with a problem has its defaults.
    pub value: T,
    /// All problems, in the order of the fragments and their lines. Empty: every value was applied.
    pub problems: Vec<Problem>,
    /// Keys that earlier versions had, in the same order. They are not applied; all other values
    /// are.
    pub ignored: Vec<Problem>,
    /// Origins of the values in `value`.
    pub origins: Origins,
    /// Names of fragments that were skipped completely, because they are not YAML or of another
    /// kind.
    pub skipped: Vec<String>,
}

/// Merges fragments, lowest precedence first, over the type's default, and parses the type from the
/// result.
///
/// A section (top-level key) with a problem is not applied: its default applies. In the sections in
/// `keep` only the invalid value is dropped. A fragment that is not YAML, or of another kind than
/// `expect` requires, is skipped completely.
pub fn load<T>(fragments: &[Fragment], expect: Expect<'_>, keep: &[&str]) -> Loaded<T>
where
    T: DeserializeOwned + JsonSchema + Default + Serialize,
{
    let schema = schemars::schema_for!(T).to_value();
    let mut problems = Vec::new();
    let mut ignored = Vec::new();
    let mut skipped = Vec::new();
    let mut from_files: Option<Tree> = None;
    for fragment in fragments {
        match read(fragment, expect, &mut problems) {
            Ok(None) => {}
            Ok(Some(mut tree)) => {
                schema::screen(&mut tree, &schema, &mut problems, &mut ignored);
                from_files = Some(match from_files {
                    Some(weaker) => weaker.merge(tree),
                    None => tree,
                });
            }
            Err(problem) => {
                problems.push(problem);
                skipped.push(fragment.file.clone());
            }
        }
    }

    let default = Tree::defaults(serde_json::to_value(T::default()).unwrap_or_default());
    let mut tree = from_files
        .and_then(|from_files| from_files.over_default(Some(&default)))
        .unwrap_or_else(|| default.clone());
    replace_invalid::<T>(&mut tree, &default, &schema, &mut problems);
    let place = |file: &str| fragments.iter().position(|fragment| fragment.file == file);
    for list in [&mut problems, &mut ignored] {
        list.sort_by_key(|problem| (place(&problem.file).unwrap_or(usize::MAX), problem.line));
    }

    let refused: BTreeSet<&str> = problems
        .iter()
        .map(Problem::section)
        .filter(|section| !section.is_empty() && !keep.contains(section))
        .collect();
    for section in refused {
        restore(&mut tree, &default, &[Step::Key(section.to_owned())]);
    }
    // Each section was parsed before, and the defaults are the type's own. So this fails only for a
    // type whose sections contradict each other; then no part of it is reliable.
    let value = serde_json::from_value(tree.to_json()).unwrap_or_else(|error| {
        problems.push(Problem::of_file("(merged)", 0, error.to_string()));
        tree = default;
        T::default()
    });
    let mut origins = Origins::default();
    origins.collect(&tree, &mut Vec::new());
    Loaded {
        value,
        problems,
        ignored,
        origins,
        skipped,
    }
}

/// Parses a fragment to a tree. None if it is empty.
fn read(
    fragment: &Fragment,
    expect: Expect<'_>,
    problems: &mut Vec<Problem>,
) -> Result<Option<Tree>, Problem> {
    let refuse = |line, message: String| Problem::of_file(&fragment.file, line, message);
    let mut documents = parse_yaml(&fragment.text)
        .map_err(|error| refuse(error.line, format!("not YAML: {}", error.message)))?
        .into_iter();
    let Some(document) = documents.next() else {
        return Ok(None);
    };
    if let Some(second) = documents.next() {
        return Err(refuse(
            second.line,
            "a second document; a settings file has only one".to_owned(),
        ));
    }
    for (key, expected) in [("apiVersion", expect.api_version), ("kind", expect.kind)] {
        match document.get(key) {
            Some(node) if node.as_str() == Some(expected) => {}
            Some(node) => {
                let message = format!("{key} is {}, expected {expected}", node.to_json());
                return Err(refuse(node.line, message));
            }
            None => {
                return Err(refuse(
                    document.line,
                    format!("{key} is missing, expected {expected}"),
                ));
            }
        }
    }
    let file: Arc<str> = fragment.file.as_str().into();
    Ok(Some(Tree::of_document(document, &file, problems)))
}

/// Parses the type until it succeeds, each time replacing the rejected value with its default. A
/// value that is rejected only because an invalid key was removed from it is not reported again.
fn replace_invalid<T: DeserializeOwned>(
    tree: &mut Tree,
    default: &Tree,
    schema: &Value,
    problems: &mut Vec<Problem>,
) {
    while let Err(error) = serde_path_to_error::deserialize::<_, T>(tree.to_json()) {
        let (steps, culprit) = locate(tree, error.path());
        let mut problem = Problem::at(&culprit.origin, print(&steps), error.inner().to_string());
        if let TreeValue::Scalar(Value::String(word)) = &culprit.value {
            problem.nearest = schema::nearest_word(schema, &steps, word);
        }
        if !problems.iter().any(|known| is_within(&known.path, &problem.path)) {
            problems.push(problem);
        }
        if steps.is_empty() || !restore(tree, default, &steps) {
            *tree = default.clone();
            break;
        }
    }
}

/// The deepest value of the tree on the path at which serde stopped.
fn locate<'t>(tree: &'t Tree, path: &serde_path_to_error::Path) -> (Vec<Step>, &'t Tree) {
    let mut steps = Vec::new();
    let mut at = tree;
    for segment in path {
        let (step, below) = match (segment, &at.value) {
            (Segment::Map { key } | Segment::Enum { variant: key }, TreeValue::Map(map)) => {
                (Step::Key(key.clone()), map.get(key))
            }
            (Segment::Seq { index }, TreeValue::List(items)) => {
                let item = items.get(*index);
                let name = item.and_then(Tree::name).map(str::to_owned);
                (Step::Item(*index, name), item)
            }
            _ => break,
        };
        let Some(below) = below else { break };
        steps.push(step);
        at = below;
    }
    (steps, at)
}

/// Restores the default at a path, or removes the value if there is no default. Returns false if
/// nothing changed.
fn restore(tree: &mut Tree, default: &Tree, steps: &[Step]) -> bool {
    let Some((step, rest)) = steps.split_first() else {
        return false;
    };
    let standard = child(default, step);
    match (&mut tree.value, step) {
        (TreeValue::Map(map), Step::Key(key)) => {
            if let (Some(below), false) = (map.get_mut(key), rest.is_empty()) {
                let nothing = Tree::defaults(Value::Null);
                return restore(below, standard.unwrap_or(&nothing), rest);
            }
            match standard {
                Some(standard) => map.insert(key.clone(), standard.clone()).as_ref() != Some(standard),
                None => map.remove(key).is_some(),
            }
        }
        (TreeValue::List(items), Step::Item(index, _)) if *index < items.len() => {
            if !rest.is_empty() {
                let nothing = Tree::defaults(Value::Null);
                return restore(&mut items[*index], standard.unwrap_or(&nothing), rest);
            }
            items.remove(*index);
            true
        }
        _ => false,
    }
}

fn child<'t>(tree: &'t Tree, step: &Step) -> Option<&'t Tree> {
    match (&tree.value, step) {
        (TreeValue::Map(map), Step::Key(key)) => map.get(key),
        (TreeValue::List(items), Step::Item(_, Some(name))) => {
            items.iter().find(|item| item.name() == Some(name))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
