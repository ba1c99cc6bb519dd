//! VMs that no `UserCluster` selects, and whose labels name a user cluster all the same: who made them has said whose they are,
//! and no admin has yet. A label is a wish, never an assignment: such a VM stays nobody's.

use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::{ClusterName, VmKey},
};

use crate::{
    facts::{Labels, UserCluster},
    findings,
    store::{Entry, Store},
};

/// Labels whose value is the name of a VM's user cluster. The first that is there and is a name counts.
///
/// | label | who sets it |
/// |---|---|
/// | `kubermatic.k8c.io/cluster-id` | KKP: machine-controller 1.64 and newer, on VM and template (`pkg/cloudprovider/provider/kubevirt`); KKP's network policies select by it |
/// | `cluster.x-k8s.io/cluster-name` | machine-controller since KKP 2.22, on VM and template (the same); Cluster API's provider for KubeVirt, on both (`pkg/kubevirt/utils.go`); cloud-provider-kubevirt selects by it |
/// | `mcm.gardener.cloud/cluster` | Gardener: tags of the machine class (gardener-extension-provider-kubevirt, `pkg/controller/worker`), which machine-controller-manager-provider-kubevirt puts on the VirtualMachine, not on its template |
///
/// An older KKP may have another value in `cluster-name`, so the id goes first.
pub const CLUSTER_LABELS: [&str; 3] = [
    "kubermatic.k8c.io/cluster-id",
    "cluster.x-k8s.io/cluster-name",
    "mcm.gardener.cloud/cluster",
];

/// The user cluster that `labels` name, and by which of [`CLUSTER_LABELS`]. A value that cannot be a cluster's name says nothing.
pub fn named(labels: &Labels) -> Option<(&'static str, ClusterName)> {
    CLUSTER_LABELS
        .into_iter()
        .find_map(|key| Some((key, labels.get(key)?.parse().ok()?)))
}

/// What the labels of a VM say that no `UserCluster` selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wish {
    /// Which of [`CLUSTER_LABELS`].
    pub(crate) key: &'static str,
    /// Its value.
    pub(crate) cluster: ClusterName,
}

/// What the labels of a VM say.
pub(crate) fn wish(seen: &Labels) -> Option<Wish> {
    named(seen).map(|(key, cluster)| Wish { key, cluster })
}

/// The finding about a VM whose labels name a user cluster that does not select it.
pub(crate) fn finding(store: &Store, vm: &VmKey, seen: &Labels, entry: &Entry) -> Option<Finding> {
    let wish = entry.keys.wish.as_ref()?;
    let found = match store.clusters.get(&wish.cluster) {
        None => without_cluster(vm, wish),
        Some(cluster) => unmatched(vm, seen, wish, cluster),
    };
    Some(
        found
            .with("label", format!("{}={}", wish.key, wish.cluster))
            .with("cluster", &wish.cluster),
    )
}

fn without_cluster(vm: &VmKey, wish: &Wish) -> Finding {
    let Wish { key, cluster, .. } = wish;
    let namespace = &vm.namespace;
    let remedy = format!(
        "make a UserCluster named {cluster} with spec.vmis: {{namespace: {namespace}, selector: {{matchLabels: \
         {{{key}: {cluster}}}}}}}, and give it a kubeconfig"
    );
    findings::vm(
        findings::TENANT_PENDING,
        Severity::Info,
        vm,
        "TenantPending",
        format!(
            "{vm} is labelled {key}={cluster}, and there is no UserCluster {cluster}: it counts as nobody's until one selects it"
        ),
    )
    .remedy(remedy)
}

fn unmatched(vm: &VmKey, seen: &Labels, wish: &Wish, cluster: &UserCluster) -> Finding {
    let Wish {
        key, cluster: name, ..
    } = wish;
    let (why, remedy) = if cluster.namespace == vm.namespace {
        let unmet = cluster.selector.unmet(seen).unwrap_or_default();
        let remedy = format!("correct spec.vmis.selector of the UserCluster {name}, or the labels of the VM");
        (
            format!("its selector asks for {unmet}, which the VM does not meet"),
            remedy,
        )
    } else {
        let why = format!("it selects in the namespace {} only", cluster.namespace);
        let remedy = format!(
            "correct spec.vmis.namespace of the UserCluster {name}, or the label, when the VM is another cluster's"
        );
        (why, remedy)
    };
    findings::vm(
        findings::TENANT_LABEL_UNMATCHED,
        Severity::Warning,
        vm,
        "TenantLabelUnmatched",
        format!("{vm} is labelled {key}={name}, and the UserCluster {name} does not select it: {why}"),
    )
    .remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::labels;

    #[test]
    fn the_first_label_that_is_a_name_counts() {
        let say =
            |pairs: &[(&str, &str)]| named(&labels(pairs)).map(|(key, cluster)| format!("{key} {cluster}"));
        assert_eq!(say(&[("app", "x")]), None);
        let [id, name, shoot] = CLUSTER_LABELS;
        assert_eq!(say(&[(name, "b"), (id, "a")]), Some(format!("{id} a")));
        assert_eq!(say(&[(name, "b"), (id, "No Name")]), Some(format!("{name} b")));
        assert_eq!(
            say(&[(shoot, "shoot--garden--prod")]),
            Some(format!("{shoot} shoot--garden--prod"))
        );
        assert_eq!(say(&[(id, ""), (name, "-")]), None);
    }
}
