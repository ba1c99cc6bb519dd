//! Index of the selectors of a namespace's user clusters: each cluster is stored under a label that
//! its selector requires, so that not every selector is tried on a VM.
//!
//! Several user clusters may share a namespace (KKP's namespaced mode, Gardener), and then hundreds
//! of selectors differ in the value of one label.

use std::collections::{BTreeSet, HashMap};

use virtfleet_wire::ids::ClusterName;

use crate::facts::{Labels, Operator, Selector};

/// Clusters by a label's key and value.
type ByPair = HashMap<String, HashMap<String, BTreeSet<ClusterName>>>;

/// The user clusters of one namespace.
#[derive(Debug, Default)]
pub(crate) struct Selectors {
    by_pair: ByPair,
    /// Clusters whose selectors require no label value.
    others: BTreeSet<ClusterName>,
    /// The pairs under which each cluster is stored; empty: in `others`.
    anchors: HashMap<ClusterName, Vec<(String, String)>>,
}

impl Selectors {
    /// Whether the namespace has no cluster.
    pub(crate) fn is_empty(&self) -> bool {
        self.anchors.is_empty()
    }

    /// Adds a cluster, or replaces its selector.
    pub(crate) fn insert(&mut self, name: &ClusterName, selector: &Selector) {
        self.remove(name);
        let pairs = self.anchor(selector);
        if pairs.is_empty() {
            self.others.insert(name.clone());
        }
        for (key, value) in &pairs {
            let values = self.by_pair.entry(key.clone()).or_default();
            values.entry(value.clone()).or_default().insert(name.clone());
        }
        self.anchors.insert(name.clone(), pairs);
    }

    pub(crate) fn remove(&mut self, name: &ClusterName) {
        self.others.remove(name);
        for (key, value) in self.anchors.remove(name).unwrap_or_default() {
            let Some(values) = self.by_pair.get_mut(&key) else {
                continue;
            };
            if let Some(names) = values.get_mut(&value) {
                names.remove(name);
                if names.is_empty() {
                    values.remove(&value);
                }
            }
            if values.is_empty() {
                self.by_pair.remove(&key);
            }
        }
    }

    /// The pairs of which a VM must have one: of the requirements with values, the one that the
    /// fewest other clusters share. `role=worker`, which all share, would exclude none.
    fn anchor(&self, selector: &Selector) -> Vec<(String, String)> {
        let equal = selector.match_labels.iter();
        let equal = equal.map(|(key, value)| vec![(key.to_owned(), value.to_owned())]);
        let listed = selector.match_expressions.iter();
        let listed = listed.filter(|one| one.operator == Operator::In).map(|one| {
            let pair = |value: &String| (one.key.clone(), value.clone());
            one.values.iter().map(pair).collect::<Vec<_>>()
        });
        let shared = |pairs: &Vec<(String, String)>| {
            let of = |(key, value): &(String, String)| self.by_pair.get(key)?.get(value).map(BTreeSet::len);
            pairs.iter().filter_map(of).sum::<usize>() + pairs.len()
        };
        equal.chain(listed).min_by_key(shared).unwrap_or_default()
    }

    /// The clusters whose selectors may match these labels, sorted by name; no other cluster
    /// matches.
    pub(crate) fn candidates(&self, labels: &Labels) -> BTreeSet<&ClusterName> {
        let of = |(key, value): (&str, &str)| self.by_pair.get(key)?.get(value);
        let named = labels.iter().filter_map(of).flatten();
        self.others.iter().chain(named).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{facts::Requirement, store::tests::labels};

    fn selector() -> impl Strategy<Value = Selector> {
        let word = || prop::sample::select(vec!["a", "b", "c"]);
        let pairs = prop::collection::vec((word(), word()), 0..3);
        let operator = prop::sample::select(vec![
            Operator::In,
            Operator::NotIn,
            Operator::Exists,
            Operator::DoesNotExist,
        ]);
        let expression =
            (word(), operator, prop::collection::vec(word(), 1..3)).prop_map(|(key, operator, values)| {
                let takes = matches!(operator, Operator::In | Operator::NotIn);
                let values = values.into_iter().filter(|_| takes).map(str::to_owned).collect();
                Requirement {
                    key: key.to_owned(),
                    operator,
                    values,
                }
            });
        (pairs, prop::collection::vec(expression, 0..3)).prop_map(|(pairs, match_expressions)| Selector {
            match_labels: labels(&pairs),
            match_expressions,
        })
    }

    proptest! {
        #[test]
        fn every_selecting_cluster_is_a_candidate(
            steps in prop::collection::vec((0..5u8, prop::option::of(selector())), 1..20),
            vm in prop::collection::vec((prop::sample::select(vec!["a", "b", "c"]), prop::sample::select(vec!["a", "b", "c"])), 0..4),
        ) {
            let mut all: HashMap<ClusterName, Selector> = HashMap::new();
            let mut index = Selectors::default();
            for (name, selector) in steps {
                let name: ClusterName = format!("c{name}").parse().unwrap();
                if let Some(selector) = selector {
                    index.insert(&name, &selector);
                    all.insert(name, selector);
                } else {
                    index.remove(&name);
                    all.remove(&name);
                }
            }
            let vm = labels(&vm);
            let found = index.candidates(&vm);
            for (name, selector) in &all {
                prop_assert!(!selector.matches(&vm) || found.contains(name), "{name} {selector:?}");
            }
            prop_assert!(found.iter().all(|name| all.contains_key(*name)));
            prop_assert_eq!(index.is_empty(), all.is_empty());
        }
    }

    #[test]
    fn a_label_that_all_selectors_share_is_not_used_as_index() {
        let mut index = Selectors::default();
        for n in 0..100 {
            let name = format!("c{n}");
            let selector = Selector {
                match_labels: labels(&[("id", &name), ("a-role", "worker")]),
                match_expressions: vec![],
            };
            index.insert(&name.parse().unwrap(), &selector);
        }
        let of = |pairs: &[(&str, &str)]| index.candidates(&labels(pairs)).len();
        assert!(of(&[("a-role", "worker"), ("id", "c7")]) <= 2);
        assert!(of(&[("a-role", "worker")]) <= 1);
        assert_eq!(of(&[]), 0);
    }
}
