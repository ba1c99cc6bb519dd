//! Assigns a VM to a user cluster: the one whose `UserCluster` names its namespace and selects its
//! labels.
//!
//! The namespace alone is not enough, because several user clusters may share one (KKP's namespaced
//! mode).

use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::{ClusterName, Namespace, VmKey},
};

use crate::{
    facts::{Labels, UserCluster},
    findings,
};

/// The user cluster of a VM.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Tenant {
    /// No `UserCluster` selects it.
    #[default]
    None,
    /// Exactly one `UserCluster` selects it.
    One(ClusterName),
    /// Several select it: it has no cluster until an admin narrows the selectors. Sorted.
    Ambiguous(Vec<ClusterName>),
}

impl Tenant {
    /// The cluster, when there is exactly one.
    pub fn cluster(&self) -> Option<&ClusterName> {
        match self {
            Self::One(cluster) => Some(cluster),
            Self::None | Self::Ambiguous(_) => None,
        }
    }

    /// The finding about `vm` when several clusters select it.
    pub fn finding(&self, vm: &VmKey) -> Option<Finding> {
        let Self::Ambiguous(clusters) = self else {
            return None;
        };
        let names = clusters
            .iter()
            .map(ClusterName::as_str)
            .collect::<Vec<_>>()
            .join(", ");
        let found = findings::vm(
            findings::TENANT_AMBIGUOUS,
            Severity::Critical,
            vm,
            "TenantAmbiguous",
            format!("{vm} is selected by more than one UserCluster ({names}), so it is assigned to none"),
        );
        Some(found.with("clusters", names).remedy(
            "narrow spec.vmis.selector of these UserClusters until exactly one of them matches the VMI's labels",
        ))
    }
}

/// Assigns a VM with `labels` in `namespace` to one of `clusters`, which are sorted by name.
pub fn tenant<'a>(
    clusters: impl Iterator<Item = &'a UserCluster>,
    namespace: &Namespace,
    labels: &Labels,
) -> Tenant {
    let mut selecting = clusters
        .filter(|cluster| cluster.namespace == *namespace && cluster.selector.matches(labels))
        .map(|cluster| cluster.name.clone());
    match (selecting.next(), selecting.next()) {
        (None, _) => Tenant::None,
        (Some(one), None) => Tenant::One(one),
        (Some(first), Some(second)) => {
            Tenant::Ambiguous([first, second].into_iter().chain(selecting).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::{cluster, labels};

    #[test]
    fn the_selector_decides_and_not_the_namespace_alone() {
        let clusters = [
            cluster("a", "shared", &[("id", "a")]),
            cluster("b", "shared", &[("id", "b")]),
            cluster("b-wide", "shared", &[("role", "worker")]),
            cluster("elsewhere", "other", &[]),
        ];
        let decide =
            |pairs: &[(&str, &str)]| tenant(clusters.iter(), &"shared".parse().unwrap(), &labels(pairs));
        assert_eq!(decide(&[]), Tenant::None);
        assert_eq!(decide(&[("id", "a")]), Tenant::One("a".parse().unwrap()));
        let both = decide(&[("id", "b"), ("role", "worker")]);
        assert_eq!(
            both,
            Tenant::Ambiguous(vec!["b".parse().unwrap(), "b-wide".parse().unwrap()])
        );
        assert_eq!(both.cluster(), None);
        let finding = both.finding(&crate::store::tests::key("shared", "x")).unwrap();
        assert_eq!(finding.evidence["clusters"], "b, b-wide");
    }
}
