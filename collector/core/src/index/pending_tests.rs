//! Clusters that only labels of VMs name, and the status of each cluster.

use std::collections::BTreeMap;

use virtfleet_wire::finding::Severity;

use super::{tests::apply, *};
use crate::{
    facts::{Fact, UserCluster, Vmi},
    store::tests::{cluster, key, labels, user_node, vm, vmi},
    view::{ClusterState, ClusterView},
};

const ID: &str = "kubermatic.k8c.io/cluster-id";
const SHOOT: &str = "mcm.gardener.cloud/cluster";

fn labelled(namespace: &str, name: &str, pairs: &[(&str, &str)]) -> Fact {
    Fact::Vmi(Box::new(Vmi {
        labels: labels(pairs),
        interfaces: Vec::new(),
        ..vmi(namespace, name)
    }))
}

fn clusters(index: &FleetIndex) -> Vec<ClusterView> {
    index.snapshot().clusters
}

fn finding(index: &FleetIndex, vm: &VmKey) -> Option<Finding> {
    let found = &index.store.vms[vm].findings;
    assert!(found.len() < 2, "{found:#?}");
    found.first().cloned()
}

#[test]
fn a_labelled_vm_is_a_pending_cluster_until_a_user_cluster_selects_it() {
    let mut index = FleetIndex::new(DialRules::default());
    let one = key("ns", "w0");
    apply(
        &mut index,
        [
            labelled("ns", "w0", &[(ID, "blue"), ("tier", "gold")]),
            labelled("ns", "odd", &[(ID, "No Name")]),
        ],
    );
    let rows = clusters(&index);
    assert_eq!(rows.len(), 1, "{rows:#?}");
    let blue = &rows[0];
    assert_eq!(
        (
            blue.name.as_str(),
            blue.namespace.as_str(),
            blue.known,
            blue.state
        ),
        ("blue", "ns", false, ClusterState::Pending)
    );
    assert_eq!((blue.vms, blue.running, blue.nodes), (1, 1, 0));
    assert!(
        blue.message.as_deref().unwrap().ends_with(ID),
        "{:?}",
        blue.message
    );
    assert_eq!(
        index.snapshot().vms[&one].cluster,
        None,
        "a label is not an assignment"
    );
    let found = finding(&index, &one).unwrap();
    assert_eq!(
        (found.id.as_str(), found.severity),
        (findings::TENANT_PENDING, Severity::Info)
    );
    assert!(
        found
            .remedy
            .contains("{namespace: ns, selector: {matchLabels: {kubermatic.k8c.io/cluster-id: blue}}}"),
        "{}",
        found.remedy
    );
    assert_eq!(finding(&index, &key("ns", "odd")), None);

    // Each way in which a UserCluster of that name can miss it, and one that does not.
    let unmatched = |index: &mut FleetIndex, blue: UserCluster, why: &str| {
        let touched = index.apply(InventoryEvent::Apply(Fact::UserCluster(blue)));
        assert!(touched.contains(&one), "{why}");
        let rows = clusters(index);
        assert_eq!((rows.len(), rows[0].known, rows[0].vms), (1, true, 0));
        let found = finding(index, &one).unwrap();
        assert_eq!(found.id, findings::TENANT_LABEL_UNMATCHED);
        assert!(found.message.contains(why), "{}", found.message);
        assert_eq!(found.evidence["label"], "kubermatic.k8c.io/cluster-id=blue");
    };
    unmatched(
        &mut index,
        cluster("blue", "elsewhere", &[]),
        "the namespace elsewhere",
    );
    let silver = [("tier", "silver")];
    unmatched(&mut index, cluster("blue", "ns", &silver), "requires tier=silver");
    apply(
        &mut index,
        [Fact::UserCluster(cluster("blue", "ns", &[(ID, "blue")]))],
    );
    let rows = clusters(&index);
    assert_eq!(
        (rows[0].known, rows[0].vms, rows[0].state),
        (true, 1, ClusterState::Ready)
    );
    assert_eq!((rows[0].message.as_deref(), finding(&index, &one)), (None, None));

    // Without the UserCluster it is pending again; without its last VM it is gone.
    index.apply(InventoryEvent::Delete(FactKey::UserCluster(
        "blue".parse().unwrap(),
    )));
    assert!(!clusters(&index)[0].known);
    index.apply(InventoryEvent::Delete(FactKey::Vmi(one)));
    assert_eq!(clusters(&index), []);
    assert!(index.store.vms_by_cluster_label.is_empty());
}

#[test]
fn the_selecting_user_cluster_wins_over_the_label() {
    let mut index = FleetIndex::new(DialRules::default());
    apply(
        &mut index,
        [
            labelled("ns", "w0", &[(ID, "blue")]),
            Fact::UserCluster(cluster("our-blue", "ns", &[(ID, "blue")])),
        ],
    );
    let rows = clusters(&index);
    assert_eq!(
        (rows.len(), rows[0].name.as_str(), rows[0].vms),
        (1, "our-blue", 1)
    );
    assert_eq!(finding(&index, &key("ns", "w0")), None);
}

#[test]
fn labels_of_the_virtual_machine_select_its_vmi_unless_the_vmi_has_the_key() {
    let mut index = FleetIndex::new(DialRules::default());
    let mut definition = vm("ns", "w0");
    definition.labels = labels(&[(SHOOT, "shoot--g--p"), ("tier", "old")]);
    let running = labelled("ns", "w0", &[("tier", "new")]);
    apply(&mut index, [Fact::Vm(definition), running]);
    assert_eq!(clusters(&index)[0].name.as_str(), "shoot--g--p");
    let one = key("ns", "w0");
    assert_eq!(finding(&index, &one).unwrap().id, findings::TENANT_PENDING);
    let pending = index.snapshot().vms[&one].findings_key;
    let of = |tier| cluster("shoot--g--p", "ns", &[(SHOOT, "shoot--g--p"), ("tier", tier)]);
    apply(&mut index, [Fact::UserCluster(of("old"))]);
    assert_eq!(index.snapshot().vms[&one].cluster, None);
    assert_eq!(
        finding(&index, &one).unwrap().id,
        findings::TENANT_LABEL_UNMATCHED
    );
    let unmatched = index.snapshot().vms[&one].findings_key;
    assert_ne!(unmatched, pending, "the same number of other findings");
    apply(&mut index, [Fact::UserCluster(of("new"))]);
    assert!(index.snapshot().vms[&one].cluster.is_some());
    assert_eq!(finding(&index, &one), None);
}

#[test]
fn a_pending_cluster_in_two_namespaces_is_one_and_its_nodes_are_counted() {
    let mut index = FleetIndex::new(DialRules::default());
    apply(
        &mut index,
        [
            labelled("b", "w0", &[(SHOOT, "blue")]),
            labelled("a", "w0", &[(ID, "blue")]),
            Fact::UserNode(user_node("blue", "w0", None)),
        ],
    );
    let rows = clusters(&index);
    assert_eq!((rows.len(), rows[0].namespace.as_str(), rows[0].vms), (1, "a", 2));
    assert_eq!((rows[0].nodes, rows[0].nodes_without_vm), (1, 1));
    assert_eq!(
        rows[0].message.as_deref(),
        Some(
            "there is no UserCluster; VMs name this cluster in their labels kubermatic.k8c.io/cluster-id, mcm.gardener.cloud/cluster, in the namespaces a, b"
        )
    );
}

#[test]
fn clusters_of_a_folder_are_ready_and_others_have_the_given_status() {
    let mut index = FleetIndex::new(DialRules::default());
    let suspended = UserCluster {
        suspend: true,
        ..cluster("c", "ns", &[])
    };
    apply(
        &mut index,
        [
            Fact::UserCluster(cluster("a", "ns", &[])),
            Fact::UserCluster(cluster("b", "ns", &[])),
            Fact::UserCluster(suspended),
        ],
    );
    let states = |index: &FleetIndex| clusters(index).iter().map(|one| one.state).collect::<Vec<_>>();
    let before = index.revision();
    assert_eq!(
        states(&index),
        [ClusterState::Ready, ClusterState::Ready, ClusterState::Suspended]
    );
    let unreachable = ClusterStatus {
        state: ClusterState::Unreachable,
        message: Some("no answer".to_owned()),
    };
    let statuses = BTreeMap::from([("b".parse().unwrap(), unreachable)]);
    index.set_cluster_statuses(statuses.clone());
    let revision = index.revision();
    assert!(revision > before, "the revision grows");
    assert_eq!(
        states(&index),
        [
            ClusterState::Pending,
            ClusterState::Unreachable,
            ClusterState::Pending
        ]
    );
    assert_eq!(clusters(&index)[1].message.as_deref(), Some("no answer"));
    index.set_cluster_statuses(statuses);
    assert_eq!(index.revision(), revision);
}
