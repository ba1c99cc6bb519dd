//! Label selectors of Kubernetes.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Labels of a pod or a namespace.
pub type Labels = BTreeMap<String, String>;

/// A label selector. The empty one matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels that are required.
    #[serde(default)]
    pub match_labels: Labels,
    /// Conditions that are required, too.
    #[serde(default)]
    pub match_expressions: Vec<LabelExpression>,
}

/// A condition on the labels.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelExpression {
    /// Key of the label.
    pub key: String,
    /// How its value is compared with `values`.
    pub operator: LabelOperator,
    /// Values for `In` and `NotIn`.
    #[serde(default)]
    pub values: Vec<String>,
}

/// Comparison of a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum LabelOperator {
    /// The value is one of the values.
    In,
    /// The label is absent, or its value is none of the values.
    NotIn,
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

impl LabelSelector {
    /// Whether the labels satisfy every requirement.
    pub fn matches(&self, labels: &Labels) -> bool {
        let mut required = self.match_labels.iter();
        required.all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|one| one.matches(labels))
    }
}

impl LabelExpression {
    fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        let is_listed = value.is_some_and(|value| self.values.contains(value));
        match self.operator {
            LabelOperator::In => is_listed,
            LabelOperator::NotIn => !is_listed,
            LabelOperator::Exists => value.is_some(),
            LabelOperator::DoesNotExist => value.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn all_requirements_must_hold() {
        let labels = Labels::from([("app", "relay"), ("zone", "a")].map(|(k, v)| (k.into(), v.into())));
        let expression = |operator: &str, key: &str, values: Value| json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] });
        let cases = [
            (json!({}), true),
            (json!({ "matchLabels": { "app": "relay" } }), true),
            (json!({ "matchLabels": { "app": "relay", "zone": "b" } }), false),
            (json!({ "matchLabels": { "absent": "" } }), false),
            (expression("In", "zone", json!(["a", "b"])), true),
            (expression("In", "zone", json!(["b"])), false),
            (expression("In", "absent", json!(["a"])), false),
            (expression("NotIn", "zone", json!(["a"])), false),
            (expression("NotIn", "absent", json!(["a"])), true),
            (expression("Exists", "zone", json!([])), true),
            (expression("Exists", "absent", json!([])), false),
            (expression("DoesNotExist", "zone", json!([])), false),
            (expression("DoesNotExist", "absent", json!([])), true),
        ];
        for (selector, expected) in cases {
            let parsed: LabelSelector = serde_json::from_value(selector.clone()).unwrap();
            assert_eq!(parsed.matches(&labels), expected, "{selector}");
        }
    }
}
