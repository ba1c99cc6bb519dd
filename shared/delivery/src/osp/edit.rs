//! Changes in a profile's text, which keep the author's comments and layout.

use serde_json::Value;
use virtfleet_wire::layered::{Node, NodeValue, parse_yaml};

use super::{file::ProfileFile, profile::Profile};

/// Fields of `metadata` that the API server sets, and that kubectl prints.
pub(super) const SERVER_KEYS: [&str; 8] = [
    "annotations",
    "creationTimestamp",
    "finalizers",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "uid",
];

/// A new value of a field of text, which may be absent.
#[derive(Debug, Clone, Copy)]
pub(super) struct FieldChange<'a> {
    /// The field's path of at most two keys.
    path: &'static str,
    text: &'a str,
}

impl<'a> FieldChange<'a> {
    pub(super) fn set(path: &'static str, text: &'a str) -> Self {
        Self { path, text }
    }

    fn keys(self) -> (Option<&'static str>, &'static str) {
        self.path
            .split_once('.')
            .map_or((None, self.path), |(parent, key)| (Some(parent), key))
    }

    pub(super) fn apply_to(self, value: &mut Value) {
        let (parent, key) = self.keys();
        let object = match parent {
            Some(parent) => &mut value[parent],
            None => value,
        };
        object[key] = self.text.into();
    }
}

/// The text with the changes and the new files before the others; none if it has a form that cannot
/// be edited by line. The caller verifies the result.
pub(super) fn apply(
    profile: &Profile<'_>,
    changes: &[FieldChange<'_>],
    entries: &[ProfileFile],
) -> Option<String> {
    let mut lines: Vec<Option<String>> = profile.text().lines().map(|line| Some(line.to_owned())).collect();
    let root = profile.node();
    for change in changes {
        let (parent, key) = change.keys();
        let parent = parent.map_or(Some(root), |parent| root.get(parent))?;
        let NodeValue::Mapping(fields) = &parent.value else {
            return None;
        };
        let line = match fields.iter().find(|(name, ..)| name == key) {
            Some((_, line, value)) if value.line == *line => line - 1,
            Some(_) => return None,
            None => {
                // Beside the first field.
                let first = fields.first()?.1 - 1;
                let old = lines.get(first)?.clone()?;
                let indent = indent_of(&old)?;
                lines[first] = Some(format!("{indent}{key}: {}\n{old}", change.text));
                continue;
            }
        };
        let old = lines.get(line)?.clone()?;
        let indent = indent_of(&old)?;
        old.trim_start().starts_with(&format!("{key}:")).then_some(())?;
        lines[line] = Some(format!("{indent}{key}: {}", change.text));
    }
    let metadata = root.get("metadata")?;
    for (mapping, keys) in [(metadata, &SERVER_KEYS[..]), (root, &["status"][..])] {
        remove(&mut lines, mapping, keys)?;
    }
    let files = root.get("spec")?.get("provisioningConfig")?.get("files")?;
    let NodeValue::Sequence(items) = &files.value else {
        return None;
    };
    let first = items.first()?.line - 1;
    let old = lines.get(first)?.clone()?;
    old.trim_start().starts_with("- ").then_some(())?;
    let indent = indent_of(&old)?.to_owned();
    let added: String = entries.iter().map(|entry| item(&indent, entry)).collect();
    lines[first] = Some(format!("{added}{old}"));
    let mut text = lines.into_iter().flatten().collect::<Vec<_>>().join("\n");
    text.push('\n');
    Some(text)
}

/// Removes fields with all their lines.
fn remove(lines: &mut [Option<String>], mapping: &Node, keys: &[&str]) -> Option<()> {
    let NodeValue::Mapping(fields) = &mapping.value else {
        return None;
    };
    for (key, line, _) in fields.iter().filter(|(key, ..)| keys.contains(&key.as_str())) {
        let first = line - 1;
        let old = lines.get(first)?.clone()?;
        let width = indent_of(&old)?.len();
        old.trim_start().starts_with(&format!("{key}:")).then_some(())?;
        lines[first] = None;
        for line in lines.iter_mut().skip(first + 1) {
            let Some(text) = line.as_deref() else { continue };
            let inner = text.trim_start_matches(' ');
            let deeper = text.len() - inner.len() > width;
            // A list may have the indentation of its key.
            let listed = text.len() - inner.len() == width && inner.starts_with("- ");
            if !(deeper || listed || inner.is_empty()) {
                break;
            }
            *line = None;
        }
    }
    Some(())
}

/// The blanks before a field; none for a field in a list's line.
fn indent_of(line: &str) -> Option<&str> {
    let rest = line.trim_start_matches(' ');
    (!rest.starts_with(['\t', '{'])).then(|| &line[..line.len() - rest.len()])
}

/// An entry as an item of a YAML list.
fn item(indent: &str, entry: &ProfileFile) -> String {
    let encoding = entry.encoding.map_or_else(String::new, |encoding| {
        format!("{indent}      encoding: {encoding}\n")
    });
    let data = data(&format!("{indent}        "), &entry.data);
    format!(
        "{indent}- path: {}\n{indent}  permissions: {}\n{indent}  content:\n{indent}    inline:\n{encoding}{indent}      data: {data}",
        entry.path, entry.permissions
    )
}

/// A text as a literal block if it keeps the text unchanged, otherwise between double quotes.
fn data(indent: &str, text: &str) -> String {
    let plain = |c: char| matches!(c, '\n' | '\t' | ' '..='~');
    let is_block = text.ends_with('\n')
        && !text.ends_with("\n\n")
        && !text.starts_with([' ', '\t', '\n'])
        && text.chars().all(plain);
    if !is_block {
        return format!("{}\n", Value::from(text));
    }
    let mut block = "|\n".to_owned();
    for line in text.lines() {
        if !line.is_empty() {
            block.push_str(indent);
            block.push_str(line);
        }
        block.push('\n');
    }
    block
}

/// The only document of a text.
pub(super) fn document(text: &str) -> Option<Value> {
    let documents = parse_yaml(text).ok()?;
    match documents.as_slice() {
        [one] => Some(one.to_json()),
        _ => None,
    }
}
