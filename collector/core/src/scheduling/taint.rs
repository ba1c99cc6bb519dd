//! Taints of infra nodes, and tolerations of VMs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `effect` of a taint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum TaintEffect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
    /// A value that this version does not know.
    Other,
}

impl TaintEffect {
    pub fn of(text: &str) -> Self {
        match text {
            "NoSchedule" => Self::NoSchedule,
            "PreferNoSchedule" => Self::PreferNoSchedule,
            "NoExecute" => Self::NoExecute,
            _ => Self::Other,
        }
    }

    /// Whether a pod that does not tolerate it cannot be scheduled.
    pub fn is_hard(self) -> bool {
        self != Self::PreferNoSchedule
    }
}

/// A taint of an infra node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Taint {
    pub key: Box<str>,
    /// Its value; empty if it has none.
    pub value: Box<str>,
    pub effect: TaintEffect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OperatorOfToleration {
    /// The values must be equal.
    Equal,
    /// Any value.
    Exists,
    /// A value that this version does not know; it tolerates nothing.
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Toleration {
    /// The taint's key; empty: every key.
    pub key: Box<str>,
    /// How the values are compared.
    pub operator: OperatorOfToleration,
    pub value: Box<str>,
    /// The taint's effect; none: every effect.
    pub effect: Option<TaintEffect>,
}

impl Toleration {
    /// Whether it tolerates `taint`, as Kubernetes compares them.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        let effect = self.effect.is_none_or(|effect| effect == taint.effect);
        let key = self.key.is_empty() || self.key == taint.key;
        let value = match self.operator {
            OperatorOfToleration::Exists => true,
            OperatorOfToleration::Equal => !self.key.is_empty() && self.value == taint.value,
            OperatorOfToleration::Other => false,
        };
        effect && key && value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerations_are_compared_as_in_kubernetes() {
        let taint = Taint {
            key: "gpu".into(),
            value: "yes".into(),
            effect: TaintEffect::NoSchedule,
        };
        let (equal, exists) = (OperatorOfToleration::Equal, OperatorOfToleration::Exists);
        for (key, operator, value, effect, tolerated) in [
            ("gpu", equal, "yes", None, true),
            ("gpu", equal, "no", None, false),
            ("gpu", exists, "", Some(TaintEffect::NoSchedule), true),
            ("gpu", exists, "", Some(TaintEffect::NoExecute), false),
            ("", exists, "", None, true),
            ("", equal, "yes", None, false),
            ("cpu", exists, "", None, false),
            ("gpu", OperatorOfToleration::Other, "yes", None, false),
        ] {
            let toleration = Toleration {
                key: key.into(),
                operator,
                value: value.into(),
                effect,
            };
            assert_eq!(toleration.tolerates(&taint), tolerated, "{toleration:?}");
        }
        assert!(!TaintEffect::PreferNoSchedule.is_hard() && TaintEffect::Other.is_hard());
    }
}
