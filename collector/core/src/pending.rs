//! VMs whose labels name a user cluster, although no `UserCluster` selects them. A label never
//! assigns a VM to a user cluster: such a VM stays unassigned until a `UserCluster` selects it.

pub(crate) use super::cluster_label::ClusterLabel;
use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::{ClusterName, VmKey},
};

use crate::{
    facts::{Labels, UserCluster},
    findings,
    store::{Store, VmEntry},
};

/// Labels whose value is the name of a VM's user cluster. The first one with a valid name is used.
///
/// | label | who sets it |
/// |---|---|
/// | `kubermatic.k8c.io/cluster-id` | KKP: machine-controller 1.64 and newer, on VM and template (`pkg/cloudprovider/provider/kubevirt`); KKP's network policies select by it |
/// | `cluster.x-k8s.io/cluster-name` | machine-controller since KKP 2.22, on VM and template (the same); Cluster API's provider for KubeVirt, on both (`pkg/kubevirt/utils.go`); cloud-provider-kubevirt selects by it |
/// | `mcm.gardener.cloud/cluster` | Gardener: tags of the machine class (gardener-extension-provider-kubevirt, `pkg/controller/worker`), which machine-controller-manager-provider-kubevirt puts on the VirtualMachine, not on its template |
///
/// An older KKP may have another value in `cluster-name`, so the id has precedence.
pub const CLUSTER_LABELS: [&str; 3] = [
    "kubermatic.k8c.io/cluster-id",
    "cluster.x-k8s.io/cluster-name",
    "mcm.gardener.cloud/cluster",
];

/// The user cluster that `labels` name, with the key of [`CLUSTER_LABELS`]. Values that cannot be a
/// cluster's name are ignored.
pub fn named(labels: &Labels) -> Option<(&'static str, ClusterName)> {
    CLUSTER_LABELS
        .into_iter()
        .find_map(|key| Some((key, labels.get(key)?.parse().ok()?)))
}

/// The label that names the user cluster.
pub(crate) fn cluster_label(seen: &Labels) -> Option<ClusterLabel> {
    named(seen).map(|(key, cluster)| ClusterLabel { key, cluster })
}

/// The finding about a VM whose labels name a user cluster that does not select it.
pub(crate) fn finding(store: &Store, vm: &VmKey, seen: &Labels, entry: &VmEntry) -> Option<Finding> {
    let cluster_label = entry.keys.cluster_label.as_ref()?;
    Some(match store.clusters.get(&cluster_label.cluster) {
        None => unknown_cluster(vm, cluster_label),
        Some(cluster) => with_label(unmatched(vm, seen, cluster_label, cluster), cluster_label),
    })
}

/// The finding about a VM whose labels name a user cluster without `UserCluster`.
pub(crate) fn unknown_cluster(vm: &VmKey, cluster_label: &ClusterLabel) -> Finding {
    with_label(without_cluster(vm, cluster_label), cluster_label)
}

fn with_label(found: Finding, label: &ClusterLabel) -> Finding {
    found
        .with("label", format!("{}={}", label.key, label.cluster))
        .with("cluster", &label.cluster)
}

fn without_cluster(vm: &VmKey, cluster_label: &ClusterLabel) -> Finding {
    let ClusterLabel { key, cluster, .. } = cluster_label;
    let namespace = &vm.namespace;
    let remedy = format!(
        "create a UserCluster named {cluster} with spec.vmis: {{namespace: {namespace}, selector: {{matchLabels: \
         {{{key}: {cluster}}}}}}}, and give it a kubeconfig"
    );
    findings::vm(
        findings::TENANT_PENDING,
        Severity::Info,
        vm,
        "TenantPending",
        format!(
            "{vm} is labelled {key}={cluster}, and there is no UserCluster {cluster}: the VM has no user cluster until one selects it"
        ),
    )
    .remedy(remedy)
}

fn unmatched(vm: &VmKey, seen: &Labels, cluster_label: &ClusterLabel, cluster: &UserCluster) -> Finding {
    let ClusterLabel {
        key, cluster: name, ..
    } = cluster_label;
    let (why, remedy) = if cluster.namespace == vm.namespace {
        let unmet = cluster.selector.unmet(seen).unwrap_or_default();
        let remedy = format!("correct spec.vmis.selector of the UserCluster {name}, or the labels of the VM");
        (
            format!("its selector requires {unmet}, which the VM does not meet"),
            remedy,
        )
    } else {
        let why = format!("it selects in the namespace {} only", cluster.namespace);
        let remedy = format!(
            "correct spec.vmis.namespace of the UserCluster {name}, or the label, if the VM belongs to another cluster"
        );
        (why, remedy)
    };
    findings::vm(
        findings::TENANT_LABEL_UNMATCHED,
        Severity::Warning,
        vm,
        "TenantLabelUnmatched",
        format!("{vm} is labelled {key}={name}, but the UserCluster {name} does not select it: {why}"),
    )
    .remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::labels;

    #[test]
    fn the_first_label_with_a_valid_name_is_used() {
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
