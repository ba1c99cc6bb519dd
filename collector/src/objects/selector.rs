//! A Kubernetes label selector.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_collector_core::facts::{Operator, Requirement, Selector};

/// All of matchLabels and matchExpressions must match. At least one of them is required: the API
/// server drops misspelled keys, and an empty selector would select everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("minProperties" = 1))]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Required label values by key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements, which must all match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub match_expressions: Vec<SelectorRequirement>,
}

/// A requirement for one label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SelectorRequirement {
    /// The label's key.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// How the label is compared with the values.
    pub operator: SelectorOperator,
    /// The values to compare with: at least one for In and NotIn, none for Exists and DoesNotExist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub values: Vec<String>,
}

/// Operator of a requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SelectorOperator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl From<&LabelSelector> for Selector {
    fn from(selector: &LabelSelector) -> Self {
        let expressions = selector.match_expressions.iter().map(|one| Requirement {
            key: one.key.clone(),
            operator: match one.operator {
                SelectorOperator::In => Operator::In,
                SelectorOperator::NotIn => Operator::NotIn,
                SelectorOperator::Exists => Operator::Exists,
                SelectorOperator::DoesNotExist => Operator::DoesNotExist,
            },
            values: one.values.clone(),
        });
        Self {
            match_labels: selector.match_labels.clone().into_iter().collect(),
            match_expressions: expressions.collect(),
        }
    }
}

impl From<&Selector> for LabelSelector {
    fn from(selector: &Selector) -> Self {
        let labels = selector.match_labels.iter();
        let expressions = selector.match_expressions.iter().map(|one| SelectorRequirement {
            key: one.key.clone(),
            operator: match one.operator {
                Operator::In => SelectorOperator::In,
                Operator::NotIn => SelectorOperator::NotIn,
                Operator::Exists => SelectorOperator::Exists,
                Operator::DoesNotExist => SelectorOperator::DoesNotExist,
            },
            values: one.values.clone(),
        });
        Self {
            match_labels: labels
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
            match_expressions: expressions.collect(),
        }
    }
}
