//! The names of an infra cluster.

use std::collections::HashMap;

use crate::facts::InfraNode;

/// Labels of a Node whose values say nothing about one infra cluster.
const PUBLIC_KEYS: [&str; 4] = [
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/os",
];
/// Labels of a Node with its place.
const PLACE_KEYS: [&str; 4] = [
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
];
/// Minimum length of a label value that is replaced as a bare word of a sentence. A shorter one is
/// replaced between quotes, after `=`, and where it is a whole value.
const MIN_WORD_LENGTH: usize = 3;

/// Whether a label of an infra node has a value that need not be hidden.
pub(super) fn is_public(key: &str, value: &str) -> bool {
    PUBLIC_KEYS.contains(&key) || is_flag(value)
}

/// Whether a label says where a Node is.
pub(super) fn is_place(key: &str) -> bool {
    PLACE_KEYS.contains(&key)
}

/// Whether a value is the same on all clusters.
pub(super) fn is_flag(value: &str) -> bool {
    matches!(value, "" | "true" | "false")
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct InfraTerm {
    /// The full name of a node of which this is the short one.
    full: Option<Box<str>>,
    /// Whether it is a name of a node.
    node: bool,
}

/// The names of an infra cluster: those of its nodes, and the values of their labels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InfraTerms(HashMap<Box<str>, InfraTerm>);

impl InfraTerms {
    /// The names of these nodes and the values of their labels.
    pub fn new<'a>(nodes: impl IntoIterator<Item = &'a InfraNode>) -> Self {
        let mut terms = Self::default();
        let mut names = Vec::new();
        for node in nodes {
            names.push(node.name.as_str());
            for (key, value) in node.labels.iter().filter(|(key, value)| !is_public(key, value)) {
                terms.add_value(key, value);
            }
        }
        for name in names {
            terms.add_node(name);
        }
        terms
    }

    /// Adds a place or another value of a label.
    pub fn add_value(&mut self, key: &str, value: &str) {
        if !is_public(key, value) {
            let term = InfraTerm {
                full: None,
                node: false,
            };
            self.0.entry(value.into()).or_insert(term);
        }
    }

    /// Adds the name of a node, and its short name if it is a domain name.
    pub fn add_node(&mut self, name: &str) {
        let term = |full: Option<&str>| InfraTerm {
            full: full.map(Box::from),
            node: true,
        };
        self.0.insert(name.into(), term(None));
        if let Some((short, _)) = name.split_once('.').filter(|(short, _)| !is_flag(short)) {
            let known = self.0.get(short).is_some_and(|known| known.node);
            if !known {
                self.0.insert(short.into(), term(Some(name)));
            }
        }
    }

    /// Whether a whole value is a name.
    pub(super) fn has(&self, value: &str) -> bool {
        self.0.contains_key(value)
    }

    pub(super) fn has_node(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|term| term.node)
    }

    /// Whether a bare word of a sentence is a name.
    pub(super) fn has_word(&self, word: &str) -> bool {
        let is_distinctive = word.len() >= MIN_WORD_LENGTH && !word.bytes().all(|byte| byte.is_ascii_digit());
        self.0.get(word).is_some_and(|term| term.node || is_distinctive)
    }

    /// The full name of a node, if `value` is its short one; else `value`.
    pub(super) fn canonical<'a>(&'a self, value: &'a str) -> &'a str {
        self.0
            .get(value)
            .and_then(|term| term.full.as_deref())
            .unwrap_or(value)
    }
}
