//! Node selector and node affinity: which infra nodes a VM may run on.

use std::fmt;

use crate::label_map::Labels;

/// What node requirements are compared with.
#[derive(Debug, Clone, Copy)]
pub struct NodeTraits<'a> {
    pub name: &'a str,
    pub labels: &'a Labels,
}

/// `operator` of a node requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodeComparison {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

impl NodeComparison {
    /// The operator of this name.
    pub fn of(text: &str) -> Option<Self> {
        Some(match text {
            "In" => Self::In,
            "NotIn" => Self::NotIn,
            "Exists" => Self::Exists,
            "DoesNotExist" => Self::DoesNotExist,
            "Gt" => Self::Gt,
            "Lt" => Self::Lt,
            _ => return None,
        })
    }
}

/// One requirement on a label of a node, or on its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NodeExpression {
    pub key: Box<str>,
    pub operator: NodeComparison,
    pub values: Box<[Box<str>]>,
    /// It is one of `matchFields`: `key` is `metadata.name`, and the name is compared.
    pub is_field: bool,
}

impl NodeExpression {
    /// Whether a node meets it.
    pub fn holds(&self, node: NodeTraits<'_>) -> bool {
        let value = if self.is_field {
            (&*self.key == "metadata.name").then_some(node.name)
        } else {
            node.labels.get(&self.key)
        };
        let is_listed = value.is_some_and(|value| self.values.iter().any(|one| **one == *value));
        let number = |text: &str| text.parse::<i64>().ok();
        let pair = value
            .and_then(number)
            .zip(self.values.first().and_then(|one| number(one)));
        match self.operator {
            NodeComparison::In => is_listed,
            NodeComparison::NotIn => !is_listed,
            NodeComparison::Exists => value.is_some(),
            NodeComparison::DoesNotExist => value.is_none(),
            NodeComparison::Gt => pair.is_some_and(|(is, bound)| is > bound),
            NodeComparison::Lt => pair.is_some_and(|(is, bound)| is < bound),
        }
    }
}

/// In the syntax of kubectl's `-l`.
impl fmt::Display for NodeExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, values) = (&self.key, self.values.join(", "));
        match self.operator {
            NodeComparison::In => write!(f, "{key} in ({values})"),
            NodeComparison::NotIn => write!(f, "{key} notin ({values})"),
            NodeComparison::Exists => write!(f, "{key}"),
            NodeComparison::DoesNotExist => write!(f, "!{key}"),
            NodeComparison::Gt => write!(f, "{key} > {values}"),
            NodeComparison::Lt => write!(f, "{key} < {values}"),
        }
    }
}

/// A term: all of its requirements must hold. A term without requirements matches no node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NodeTerm(pub Box<[NodeExpression]>);

impl NodeTerm {
    pub fn matches(&self, node: NodeTraits<'_>) -> bool {
        !self.0.is_empty() && self.0.iter().all(|one| one.holds(node))
    }

    /// The first requirement that a node does not meet.
    pub fn unmet(&self, node: NodeTraits<'_>) -> Option<String> {
        let unmet = self.0.iter().find(|one| !one.holds(node));
        unmet.map(ToString::to_string)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WeightedNodeTerm {
    /// From 1 to 100.
    pub weight: u8,
    pub term: NodeTerm,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::labels;

    fn one(key: &str, operator: NodeComparison, values: &[&str]) -> NodeExpression {
        NodeExpression {
            key: key.into(),
            operator,
            values: values.iter().map(|&value| value.into()).collect(),
            is_field: key == "metadata.name",
        }
    }

    #[test]
    fn requirements_are_compared_as_in_kubernetes() {
        let labels = labels(&[("topology.kubernetes.io/zone", "a"), ("cores", "32")]);
        let node = NodeTraits {
            name: "h1",
            labels: &labels,
        };
        for (key, operator, values, holds) in [
            (
                "topology.kubernetes.io/zone",
                NodeComparison::In,
                &["a", "b"][..],
                true,
            ),
            ("topology.kubernetes.io/zone", NodeComparison::In, &["b"], false),
            ("topology.kubernetes.io/zone", NodeComparison::NotIn, &["b"], true),
            ("absent", NodeComparison::NotIn, &["b"], true),
            ("absent", NodeComparison::In, &["b"], false),
            ("absent", NodeComparison::Exists, &[], false),
            ("absent", NodeComparison::DoesNotExist, &[], true),
            ("cores", NodeComparison::Gt, &["16"], true),
            ("cores", NodeComparison::Gt, &["32"], false),
            ("cores", NodeComparison::Lt, &["64"], true),
            ("absent", NodeComparison::Lt, &["64"], false),
            ("cores", NodeComparison::Gt, &["many"], false),
            ("metadata.name", NodeComparison::In, &["h1"], true),
            ("metadata.name", NodeComparison::NotIn, &["h1"], false),
        ] {
            let expression = one(key, operator, values);
            assert_eq!(expression.holds(node), holds, "{expression}");
        }
        assert!(
            !NodeTerm(Box::default()).matches(node),
            "an empty term matches nothing"
        );
    }
}
