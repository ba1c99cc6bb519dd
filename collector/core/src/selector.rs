//! A label selector.

use crate::label_map::Labels;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A Kubernetes label selector: all `match_labels` and all `match_expressions` must hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Selector {
    /// Keys and the value that each must have.
    pub match_labels: Labels,
    /// Further requirements.
    pub match_expressions: Vec<Requirement>,
}

/// One of a selector's `matchExpressions`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// Comparison.
    pub operator: Operator,
    /// Values to compare with; empty for `Exists` and `DoesNotExist`.
    pub values: Vec<String>,
}

/// The operator of a [`Requirement`]; `NotIn` and `DoesNotExist` hold when the key is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl Selector {
    pub fn matches(&self, labels: &Labels) -> bool {
        self.matches_with(|key| labels.get(key))
    }

    /// Whether labels match; `get` returns the value of a key.
    pub fn matches_with<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        let mut equal = self.match_labels.iter();
        let mut others = self.match_expressions.iter();
        equal.all(|(key, value)| get(key) == Some(value))
            && others.all(|requirement| requirement.holds(get(&requirement.key)))
    }

    /// The first condition that `labels` do not meet, in the syntax of kubectl's `-l`; none when
    /// they meet all.
    pub fn unmet(&self, labels: &Labels) -> Option<String> {
        let mut equal = self.match_labels.iter();
        let mut others = self.match_expressions.iter();
        equal
            .find(|(key, value)| labels.get(key) != Some(*value))
            .map(|(key, value)| format!("{key}={value}"))
            .or_else(|| {
                let unmet = others.find(|requirement| !requirement.holds(labels.get(&requirement.key)))?;
                Some(unmet.to_string())
            })
    }
}

impl Requirement {
    fn holds(&self, value: Option<&str>) -> bool {
        let listed = value.is_some_and(|value| self.values.iter().any(|one| one == value));
        match self.operator {
            Operator::In => listed,
            Operator::NotIn => !listed,
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

/// In the syntax of kubectl's `-l`.
impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, values) = (&self.key, self.values.join(", "));
        match self.operator {
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
        }
    }
}
