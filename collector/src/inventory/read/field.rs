//! A reader of object fields that tracks line and field path for error messages.

use std::{fmt::Display, str::FromStr};

use serde_json::Value;
use virtfleet_collector_core::facts::Labels;
use virtfleet_wire::layered::{Node, NodeValue};

/// A problem with an object, and its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}: {message}")]
pub(in crate::inventory) struct Problem {
    /// Line, from 1; 0 for an object of an API server.
    pub(in crate::inventory) line: usize,
    /// Field path and problem.
    pub(in crate::inventory) message: String,
}

/// One field: its path, and its node if it is present and not null.
#[derive(Debug, Clone)]
pub(in crate::inventory) struct Field<'a> {
    node: Option<&'a Node>,
    /// The line of the field, or of the mapping that should have it.
    pub(in crate::inventory) line: usize,
    /// e.g. `spec.domain.firmware.uuid`; empty for the object itself.
    pub(in crate::inventory) path: String,
}

impl<'a> Field<'a> {
    pub(in crate::inventory) fn top(node: &'a Node) -> Self {
        Self {
            node: Some(node),
            line: node.line,
            path: String::new(),
        }
    }

    pub(in crate::inventory) fn problem(&self, message: impl Display) -> Problem {
        let message = if self.path.is_empty() {
            message.to_string()
        } else {
            format!("{}: {message}", self.path)
        };
        Problem {
            line: self.line,
            message,
        }
    }

    fn unexpected(&self, expected: &str) -> Problem {
        let found = match self.node.map(|node| &node.value) {
            None => return self.problem(format_args!("required, {expected}")),
            Some(NodeValue::Scalar(value)) => shorten(&value.to_string()),
            Some(NodeValue::Sequence(_)) => "a list".to_owned(),
            Some(NodeValue::Mapping(_)) => "a mapping".to_owned(),
        };
        self.problem(format_args!("{found} is not {expected}"))
    }

    pub(in crate::inventory) fn is_there(&self) -> bool {
        self.node.is_some()
    }

    /// The field with this name.
    ///
    /// # Errors
    /// This field is neither absent nor a mapping.
    pub(in crate::inventory) fn get(&self, name: &str) -> Result<Self, Problem> {
        let path = match (self.path.is_empty(), name.contains(['.', '/'])) {
            (true, false) => name.to_owned(),
            (true, true) => format!("[{name:?}]"),
            (false, false) => format!("{}.{name}", self.path),
            (false, true) => format!("{}[{name:?}]", self.path),
        };
        #[cfg(test)]
        asked::field(&path);
        let entries = match self.node.map(|node| &node.value) {
            None => &[][..],
            Some(NodeValue::Mapping(entries)) => entries,
            Some(_) => return Err(self.unexpected("a mapping")),
        };
        Ok(match entries.iter().find(|(key, ..)| key == name) {
            Some((_, line, node)) => Self {
                node: Some(node).filter(|node| node.value != NodeValue::Scalar(Value::Null)),
                line: *line,
                path,
            },
            None => Self {
                node: None,
                line: self.line,
                path,
            },
        })
    }

    /// The whole value; none if it is absent.
    pub(in crate::inventory) fn json(&self) -> Option<Value> {
        self.node.map(Node::to_json)
    }

    /// The field at a path such as `spec.domain.firmware.uuid`.
    pub(in crate::inventory) fn at(&self, path: &str) -> Result<Self, Problem> {
        path.split('.')
            .try_fold(self.clone(), |field, name| field.get(name))
    }

    /// Rejects all other keys.
    pub(in crate::inventory) fn only(&self, known: &[&str]) -> Result<(), Problem> {
        let entries = match self.node.map(|node| &node.value) {
            None => return Ok(()),
            Some(NodeValue::Mapping(entries)) => entries,
            Some(_) => return Err(self.unexpected("a mapping")),
        };
        match entries.iter().find(|(key, ..)| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some((key, ..)) => Err(self
                .get(key)?
                .problem(format_args!("unknown; valid keys: {}", known.join(", ")))),
        }
    }

    /// The keys of a mapping; none if it is absent.
    pub(in crate::inventory) fn keys(&self) -> Result<Vec<&'a str>, Problem> {
        match self.node.map(|node| &node.value) {
            None => Ok(Vec::new()),
            Some(NodeValue::Mapping(entries)) => Ok(entries.iter().map(|(key, ..)| key.as_str()).collect()),
            Some(_) => Err(self.unexpected("a mapping")),
        }
    }

    /// The whole number; none if it is absent.
    pub(in crate::inventory) fn whole(&self) -> Result<Option<i64>, Problem> {
        match self.node.map(|node| &node.value) {
            None => Ok(None),
            Some(NodeValue::Scalar(Value::Number(number))) if number.is_i64() => Ok(number.as_i64()),
            Some(_) => Err(self.unexpected("a whole number")),
        }
    }

    /// The items of a list; none if it is absent.
    pub(in crate::inventory) fn items(&self) -> Result<Vec<Self>, Problem> {
        #[cfg(test)]
        asked::list(&self.path, self.is_there());
        match self.node.map(|node| &node.value) {
            None => Ok(Vec::new()),
            Some(NodeValue::Sequence(items)) => Ok(items
                .iter()
                .enumerate()
                .map(|(index, node)| Self {
                    node: Some(node),
                    line: node.line,
                    path: format!("{}[{index}]", self.path),
                })
                .collect()),
            Some(_) => Err(self.unexpected("a list")),
        }
    }

    /// The text; none if it is absent or empty, which Kubernetes treats alike.
    pub(in crate::inventory) fn text(&self) -> Result<Option<&'a str>, Problem> {
        let Some(node) = self.node else { return Ok(None) };
        match node.as_str() {
            Some(text) => Ok(Some(text).filter(|text| !text.is_empty())),
            None => Err(self.unexpected("a string (quote it)")),
        }
    }

    pub(in crate::inventory) fn required_text(&self) -> Result<&'a str, Problem> {
        self.text()?
            .ok_or_else(|| self.problem("required, but absent or empty"))
    }

    pub(in crate::inventory) fn flag(&self) -> Result<bool, Problem> {
        match self.node.map(|node| &node.value) {
            None => Ok(false),
            Some(NodeValue::Scalar(Value::Bool(flag))) => Ok(*flag),
            Some(_) => Err(self.unexpected("true or false")),
        }
    }

    /// The parsed text; none if it is absent or empty.
    pub(in crate::inventory) fn parsed<T: FromStr<Err: Display>>(&self) -> Result<Option<T>, Problem> {
        let text = self.text()?;
        text.map(|text| {
            text.parse()
                .map_err(|error| self.problem(shorten(&format!("{error}"))))
        })
        .transpose()
    }

    /// The parsed text.
    pub(in crate::inventory) fn required<T: FromStr<Err: Display>>(&self) -> Result<T, Problem> {
        self.required_text()?;
        self.parsed()?
            .ok_or_else(|| self.problem("required, but absent or empty"))
    }

    /// Labels: a mapping of strings.
    pub(in crate::inventory) fn labels(&self) -> Result<Labels, Problem> {
        let entries = match self.node.map(|node| &node.value) {
            None => return Ok(Labels::new()),
            Some(NodeValue::Mapping(entries)) => entries,
            Some(_) => return Err(self.unexpected("a mapping")),
        };
        let label = |(key, ..): &(String, usize, Node)| {
            let value = self.get(key)?.text()?.unwrap_or_default();
            Ok((key.clone(), value.to_owned()))
        };
        entries.iter().map(label).collect()
    }
}

fn shorten(text: &str) -> String {
    const MAX_CHARS: usize = 160;
    if text.chars().count() <= MAX_CHARS {
        return text.to_owned();
    }
    text.chars().take(MAX_CHARS).chain(['…']).collect()
}

/// What readers have asked for on this thread, to compare it with what is kept of live objects.
#[cfg(test)]
pub(in crate::inventory) mod asked {
    use std::{
        cell::RefCell,
        collections::{BTreeMap, BTreeSet},
    };

    /// Fields and lists, by the names of the fields that lead to them.
    #[derive(Debug, Default)]
    pub(in crate::inventory) struct Asked {
        pub(in crate::inventory) fields: BTreeSet<Vec<String>>,
        /// Whether the list was there at least once.
        pub(in crate::inventory) lists: BTreeMap<Vec<String>, bool>,
    }

    thread_local! {
        static ASKED: RefCell<Asked> = RefCell::default();
    }

    pub(super) fn field(path: &str) {
        ASKED.with_borrow_mut(|asked| asked.fields.insert(names(path)));
    }

    pub(super) fn list(path: &str, is_there: bool) {
        ASKED.with_borrow_mut(|asked| *asked.lists.entry(names(path)).or_default() |= is_there);
    }

    /// What was asked for since the last call.
    pub(in crate::inventory) fn take() -> Asked {
        ASKED.take()
    }

    /// The names of the fields of a path, without the numbers of items.
    fn names(path: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut rest = path;
        while !rest.is_empty() {
            if let Some((name, after)) = rest.strip_prefix("[\"").and_then(|rest| rest.split_once("\"]")) {
                found.push(name.to_owned());
                rest = after;
            } else if let Some((_, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
                rest = after;
            } else {
                rest = rest.strip_prefix('.').unwrap_or(rest);
                let end = rest.find(['.', '[']).unwrap_or(rest.len());
                found.push(rest[..end].to_owned());
                rest = &rest[end..];
            }
        }
        found
    }
}
