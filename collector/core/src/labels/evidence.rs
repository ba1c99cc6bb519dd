//! Objects that depend on a Node's labels. They decide whether a topology label may follow
//! (`FollowIfSafe`).

use std::collections::BTreeSet;

use super::guard;
use crate::facts::Labels;

/// Objects that depend on a Node's labels, read on demand.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Evidence {
    /// PersistentVolumes that are bound and used by a pod on the Node, and which have a required
    /// node affinity.
    pub volumes: Vec<Dependent>,
    /// CSI drivers registered on the Node (`CSINode.spec.drivers`) and their topology keys.
    pub csi: Vec<(String, Vec<String>)>,
    /// Pods on the Node that have not ended and have a node selector or a required node affinity.
    pub pods: Vec<Dependent>,
}

/// An object that requires certain labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependent {
    /// Name for display, e.g. `pod shop/db-0` or `PersistentVolume pvc-1 (shop/data)`.
    pub what: String,
    /// `nodeSelector`: all must hold.
    pub selector: Labels,
    /// Required node affinity: at least one term must hold; empty: no requirement.
    pub terms: Vec<Term>,
}

/// A `NodeSelectorTerm`: all its requirements must hold. Terms with `matchFields` only constrain
/// the Node's name; the reader omits them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Term {
    /// `matchExpressions`.
    pub expressions: Vec<NodeRequirement>,
}

/// One of `matchExpressions` of a node selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRequirement {
    pub key: String,
    /// How the label is compared with the values.
    pub operator: NodeOperator,
    pub values: Vec<String>,
}

/// The operator of a [`NodeRequirement`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeOperator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

/// Whether a change of labels is safe for the objects on the Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Safety {
    /// No object depends on the changed labels.
    Safe,
    /// One reason for each object that the change would break; never empty.
    Unsafe(Vec<String>),
}

/// Checks the change of a Node's labels from `before` to `after`.
///
/// - An object that matched before must match afterwards: a kubelet that restarts rejects running
///   pods whose required node affinity or selector no longer matches (kubernetes #123859), and the
///   next pod cannot use a volume whose node affinity no longer matches.
/// - A CSI driver reports its topology when it registers; registering again with another value
///   fails (kubernetes #108555).
///
/// Objects that did not match before are ignored.
pub fn check_safety(before: &Labels, after: &Labels, evidence: &Evidence) -> Safety {
    let keys: BTreeSet<&str> = before.keys().chain(after.keys()).collect();
    let changed: Vec<_> = keys
        .into_iter()
        .filter(|key| before.get(key) != after.get(key))
        .collect();
    let mut reasons = Vec::new();
    if !changed.is_empty() {
        let dependents = evidence.volumes.iter().chain(&evidence.pods);
        let broken = dependents.filter(|one| one.matches(before) && !one.matches(after));
        reasons.extend(broken.map(|one| format!("{} requires the labels that the Node has now", one.what)));
    }
    for (driver, topology) in &evidence.csi {
        for key in topology.iter().filter(|key| changed.contains(&key.as_str())) {
            reasons.push(format!(
                "the CSI driver {driver} is registered on the Node with {key}, which must not change until the driver is unregistered"
            ));
        }
    }
    if reasons.is_empty() {
        Safety::Safe
    } else {
        Safety::Unsafe(reasons)
    }
}

impl Dependent {
    /// Whether a Node with these labels satisfies the requirements.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.selector
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
            && (self.terms.is_empty() || self.terms.iter().any(|term| term.matches(labels)))
    }
}

impl Term {
    /// As Kubernetes' `nodeaffinity`: an empty term, and a term with a malformed requirement, match
    /// nothing.
    fn matches(&self, labels: &Labels) -> bool {
        !self.expressions.is_empty() && self.expressions.iter().all(|one| one.matches(labels))
    }
}

impl NodeRequirement {
    /// As Kubernetes' `labels.Requirement`: `NotIn` and `DoesNotExist` match if the key is absent,
    /// the others do not; `Gt` and `Lt` compare 64-bit integers.
    fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        let integer = |text: &str| text.parse::<i64>().ok();
        let compare = |holds: fn(&i64, &i64) -> bool| match self.values.as_slice() {
            [limit] => {
                let pair = value.and_then(integer).zip(integer(limit));
                pair.is_some_and(|(value, limit)| holds(&value, &limit))
            }
            _ => false,
        };
        let well_formed = || {
            let mut values = self.values.iter();
            !self.values.is_empty() && values.all(|value| guard::check_value(value).is_ok())
        };
        let listed = |value: &str| self.values.iter().any(|one| one == value);
        match self.operator {
            NodeOperator::In => well_formed() && value.is_some_and(listed),
            NodeOperator::NotIn => well_formed() && !value.is_some_and(listed),
            NodeOperator::Exists => self.values.is_empty() && value.is_some(),
            NodeOperator::DoesNotExist => self.values.is_empty() && value.is_none(),
            NodeOperator::Gt => compare(i64::gt),
            NodeOperator::Lt => compare(i64::lt),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::labels;

    fn requirement(key: &str, operator: NodeOperator, values: &[&str]) -> NodeRequirement {
        NodeRequirement {
            key: key.into(),
            operator,
            values: values.iter().map(|value| (*value).to_owned()).collect(),
        }
    }

    #[test]
    fn node_selector_operators() {
        use NodeOperator::{DoesNotExist, Exists, Gt, In, Lt, NotIn};
        let node = labels(&[
            ("zone", "a"),
            ("cores", "8"),
            ("empty", ""),
            ("big", "99999999999999999999"),
        ]);
        for (key, operator, values, holds) in [
            ("zone", In, &["a", "b"][..], true),
            ("zone", In, &["b"], false),
            ("none", In, &["a"], false),
            ("empty", In, &[""], true),
            ("zone", In, &[], false),
            ("zone", NotIn, &["b"], true),
            ("zone", NotIn, &["a"], false),
            ("none", NotIn, &["a"], true),
            ("none", NotIn, &[], false),
            ("none", NotIn, &["a b"], false),
            ("zone", Exists, &[], true),
            ("empty", Exists, &[], true),
            ("none", Exists, &[], false),
            ("zone", Exists, &["a"], false),
            ("none", DoesNotExist, &[], true),
            ("zone", DoesNotExist, &[], false),
            ("none", DoesNotExist, &["a"], false),
            ("cores", Gt, &["7"], true),
            ("cores", Gt, &["8"], false),
            ("cores", Gt, &["-1"], true),
            ("cores", Lt, &["9"], true),
            ("cores", Lt, &["8"], false),
            ("cores", Lt, &["9", "10"], false),
            ("cores", Gt, &["x"], false),
            ("zone", Gt, &["1"], false),
            ("none", Lt, &["1"], false),
            ("big", Gt, &["1"], false),
        ] {
            let one = requirement(key, operator, values);
            assert_eq!(one.matches(&node), holds, "{one:?}");
        }
    }

    #[test]
    fn terms_are_alternatives_and_an_empty_one_matches_nothing() {
        let zone = |zone: &str| Term {
            expressions: vec![requirement("zone", NodeOperator::In, &[zone])],
        };
        let one = |selector: &[(&str, &str)], terms: &[Term]| Dependent {
            what: "pod a/b".into(),
            selector: labels(selector),
            terms: terms.to_vec(),
        };
        let node = labels(&[("zone", "a"), ("disk", "ssd")]);
        assert!(one(&[], &[]).matches(&node));
        assert!(one(&[], &[zone("b"), zone("a")]).matches(&node));
        assert!(!one(&[], &[zone("b")]).matches(&node));
        assert!(!one(&[], &[Term::default()]).matches(&node));
        assert!(one(&[], &[Term::default(), zone("a")]).matches(&node));
        assert!(one(&[("disk", "ssd")], &[zone("a")]).matches(&node));
        assert!(!one(&[("disk", "hdd")], &[zone("a")]).matches(&node));
        let both = Term {
            expressions: [zone("a").expressions, zone("b").expressions].concat(),
        };
        assert!(!one(&[], &[both]).matches(&node), "all of a term must hold");
    }

    #[test]
    fn broken_objects_are_named_unless_broken_before() {
        let pod = |name: &str, zone: &str| Dependent {
            what: format!("pod shop/{name}"),
            selector: labels(&[("zone", zone)]),
            terms: Vec::new(),
        };
        let evidence = Evidence {
            pods: vec![pod("db", "a"), pod("lost", "c")],
            volumes: vec![Dependent {
                what: "PersistentVolume pv".into(),
                ..pod("", "a")
            }],
            csi: vec![("csi.example.com".into(), vec!["zone".into(), "host".into()])],
        };
        let (a, b) = (labels(&[("zone", "a")]), labels(&[("zone", "b")]));
        let Safety::Unsafe(reasons) = check_safety(&a, &b, &evidence) else {
            panic!()
        };
        assert_eq!(reasons.len(), 3, "{reasons:?}");
        for (reason, named) in reasons
            .iter()
            .zip(["PersistentVolume pv", "pod shop/db", "csi.example.com"])
        {
            assert!(reason.contains(named), "{reason}");
        }
        assert_eq!(check_safety(&a, &a, &evidence), Safety::Safe);
        assert_eq!(check_safety(&a, &b, &Evidence::default()), Safety::Safe);
        let more = labels(&[("zone", "a"), ("rack", "1")]);
        assert_eq!(
            check_safety(&a, &more, &evidence),
            Safety::Safe,
            "no object requires the rack"
        );
    }
}
