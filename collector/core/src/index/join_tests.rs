//! Whether a Node is the VM's: two facts have to agree before anything is written to it.

mod unconfirmed;

use virtfleet_wire::{finding::Severity, ids::Uuid};

use super::{
    tests::{apply, ids, small},
    *,
};
use crate::{
    facts::{Fact, UserCluster, UserNode},
    node_conditions::NodeConditionKind,
    store::tests::{cluster, key, machine, user_node, vmi},
    view::ClusterState,
};

/// The Node that is joined with a VM of the namespace `ns`, and the one that may be written to. The
/// label plan, the conditions and the kubelet that vouches must always be about the same Node.
fn joined(index: &FleetIndex, vm: &str) -> (Option<String>, Option<String>) {
    joined_with(index, &key("ns", vm))
}

fn joined_with(index: &FleetIndex, vm: &VmKey) -> (Option<String>, Option<String>) {
    let read = index.snapshot().vms[vm]
        .user_node
        .as_ref()
        .map(ToString::to_string);
    let labels = index.label_input(vm).map(|input| input.node.to_string());
    // Without a confirmed Node, conditions are only removed.
    let input = index.node_condition_input(vm);
    let conditions = input.as_ref().filter(|input| !input.requested.is_empty());
    let conditions = conditions.map(|input| input.node.to_string());
    let expected = index.expected_node(vm).ok().map(|node| node.node.to_string());
    assert_eq!((&labels, &labels), (&conditions, &expected), "{vm}");
    let is_written = input.is_some();
    assert!(is_written || labels.is_none(), "{vm}");
    assert_eq!(index.written_cluster(vm).is_some(), is_written, "{vm}");
    assert_eq!(index.written().contains(vm), is_written, "{vm}");
    (read, labels)
}

fn both(node: &str) -> (Option<String>, Option<String>) {
    (Some(node.to_owned()), Some(node.to_owned()))
}

const NONE: (Option<String>, Option<String>) = (None, None);

/// A cluster to whose Nodes everything is written.
fn writing(name: &str) -> UserCluster {
    UserCluster {
        node_authorities: Some("PEM".into()),
        node_conditions: [NodeConditionKind::DisksReady].into(),
        ..cluster(name, "ns", &[("cluster", name)])
    }
}

/// As [`small`], with everything that is written to Nodes.
fn index() -> FleetIndex {
    let mut index = small();
    let selecting_all = UserCluster {
        selector: cluster("c", "ns", &[]).selector,
        ..writing("c")
    };
    index.apply(InventoryEvent::Init);
    let facts = [
        Fact::UserCluster(selecting_all),
        Fact::UserNode(user_node("c", "w0", Some("kubevirt://w0"))),
        Fact::Vmi(Box::new(vmi("ns", "w0"))),
    ];
    apply(&mut index, facts);
    index.apply(InventoryEvent::Synced);
    index
}

fn with_uuid(node: UserNode, uuid: Option<Uuid>) -> Fact {
    Fact::UserNode(UserNode {
        system_uuid: uuid,
        ..node
    })
}

#[test]
fn another_machines_uuid_prevents_the_join() {
    let mut index = index();
    assert_eq!(joined(&index, "w0"), both("w0"));
    let of_provider = || user_node("c", "w0", Some("kubevirt://w0"));
    let of_name = || user_node("c", "w0", None);
    for node in [of_provider(), of_name(), user_node("c", "w0", Some("k3s://w0"))] {
        apply(&mut index, [with_uuid(node.clone(), Some(machine("other")))]);
        assert_eq!(joined(&index, "w0"), NONE, "{node:?}");
        let entry = &index.store.vms[&key("ns", "w0")];
        let found = entry
            .findings
            .iter()
            .find(|one| one.id == findings::NODE_UUID_DIFFERS);
        let found = found.unwrap();
        assert_eq!(found.severity, Severity::Critical);
        assert_eq!(found.evidence["systemUUID"], machine("other").to_string());
        assert_eq!(found.evidence["firmwareUUID"], machine("w0").to_string());
        assert!(
            found.remedy.contains("kubeconfig of the UserCluster c"),
            "{}",
            found.remedy
        );
        apply(&mut index, [Fact::UserNode(of_provider())]);
        assert_eq!(
            (joined(&index, "w0"), ids(&index, &key("ns", "w0"))),
            (both("w0"), vec![])
        );
    }
}

#[test]
fn a_name_alone_is_read_and_never_written() {
    let mut index = index();
    let zero = "00000000-0000-0000-0000-000000000000".parse().unwrap();
    for uuid in [None, Some(zero)] {
        for provider in [None, Some("kubevirt://w0")] {
            apply(&mut index, [with_uuid(user_node("c", "w0", provider), uuid)]);
            assert_eq!(
                joined(&index, "w0"),
                (Some("w0".into()), None),
                "{uuid:?} {provider:?}"
            );
            assert_eq!(ids(&index, &key("ns", "w0")), [findings::NODE_UNCONFIRMED]);
        }
    }
    // The VM has no UUID.
    let mut without = vmi("ns", "w0");
    without.firmware_uuid = None;
    let node = user_node("c", "w0", None);
    apply(&mut index, [Fact::UserNode(node), Fact::Vmi(Box::new(without))]);
    assert_eq!(joined(&index, "w0"), (Some("w0".into()), None));
    // Without its VMI, nothing is known and nothing is wrong.
    apply(&mut index, [Fact::Vm(crate::store::tests::vm("ns", "w0"))]);
    index.apply(InventoryEvent::Delete(FactKey::Vmi(key("ns", "w0"))));
    assert_eq!(
        (joined(&index, "w0"), ids(&index, &key("ns", "w0"))),
        ((Some("w0".into()), None), vec![])
    );
}

#[test]
fn of_several_nodes_the_one_with_the_uuid_is_the_vms() {
    let mut index = index();
    let leftover = || user_node("c", "w0-old", Some("kubevirt://w0"));
    apply(&mut index, [with_uuid(leftover(), Some(machine("old")))]);
    assert_eq!(joined(&index, "w0"), both("w0"));
    apply(&mut index, [with_uuid(leftover(), Some(machine("w0")))]);
    assert_eq!(joined(&index, "w0"), NONE);
    assert_eq!(ids(&index, &key("ns", "w0")), [findings::NODE_AMBIGUOUS]);
}

#[test]
fn a_node_of_another_name_joins_by_a_uuid_that_is_unique() {
    let mut index = index();
    let w1 = || Fact::Vmi(Box::new(vmi("ns", "w1")));
    let fqdn = |uuid: &str| {
        let node = user_node("c", "w1.example.org", Some("rke2://w1.example.org"));
        with_uuid(node, Some(machine(uuid)))
    };
    apply(&mut index, [w1(), fqdn("w1")]);
    assert_eq!(joined(&index, "w1"), both("w1.example.org"));
    apply(&mut index, [fqdn("other")]);
    assert_eq!(joined(&index, "w1"), NONE);
    apply(&mut index, [fqdn("w1")]);
    assert_eq!(joined(&index, "w1"), both("w1.example.org"));

    // Another VM has the UUID: which of them the Node is, is not known.
    let mut copy = vmi("elsewhere", "copy");
    copy.firmware_uuid = Some(machine("w1"));
    apply(&mut index, [Fact::Vmi(Box::new(copy))]);
    assert_eq!(joined(&index, "w1"), NONE);
    assert!(ids(&index, &key("ns", "w1")).contains(&findings::DUPLICATE_FIRMWARE_UUID.to_owned()));
    index.apply(InventoryEvent::Delete(FactKey::Vmi(key("elsewhere", "copy"))));
    assert_eq!(joined(&index, "w1"), both("w1.example.org"));

    // A Node of another cluster, one that is another VM's, and a second one.
    index.apply(InventoryEvent::Delete(FactKey::UserNode(
        "c".parse().unwrap(),
        "w1.example.org".parse().unwrap(),
    )));
    let of_other = with_uuid(user_node("other", "x", None), Some(machine("w1")));
    let of_w2 = with_uuid(user_node("c", "x", Some("kubevirt://w2")), Some(machine("w1")));
    for node in [of_other, of_w2] {
        apply(&mut index, [node]);
        assert_eq!(joined(&index, "w1"), NONE);
    }
    let second = with_uuid(user_node("c", "y", None), Some(machine("w1")));
    apply(&mut index, [fqdn("w1"), second]);
    assert_eq!(joined(&index, "w1"), NONE);
    assert!(ids(&index, &key("ns", "w1")).contains(&findings::NODE_AMBIGUOUS.to_owned()));
}

#[test]
fn clusters_with_a_node_in_common_are_refused_until_they_have_none() {
    let mut index = FleetIndex::default();
    index.apply(InventoryEvent::Init);
    let node = |cluster: &str, uid: &str| {
        Fact::UserNode(UserNode {
            uid: Some(uid.parse().unwrap()),
            ..user_node(cluster, "w0", Some("kubevirt://w0"))
        })
    };
    let of = |cluster: &str, name: &str| {
        let mut vmi = vmi("ns", name);
        vmi.labels = crate::store::tests::labels(&[("cluster", cluster)]);
        // As KubeVirt before 1.5 makes it from the name, so that only the shared Node tells.
        vmi.firmware_uuid = Some(machine("w0"));
        Fact::Vmi(Box::new(vmi))
    };
    let facts = [
        Fact::UserCluster(writing("a")),
        Fact::UserCluster(writing("b")),
        of("a", "w0"),
        of("b", "b0"),
        node("a", "node-of-a"),
    ];
    apply(&mut index, facts);
    index.apply(InventoryEvent::Synced);
    assert_eq!(joined(&index, "w0"), both("w0"));

    // The kubeconfig of `a` is stored as that of `b`.
    let touched = index.apply(InventoryEvent::Apply(node("b", "node-of-a")));
    assert_eq!(touched, [key("ns", "b0"), key("ns", "w0")]);
    assert_eq!((joined(&index, "w0"), joined(&index, "b0")), (NONE, NONE));
    let whole = index.snapshot();
    let found: Vec<_> = whole
        .findings
        .iter()
        .map(|one| (one.id.as_str(), one.severity, &*one.subject.name))
        .collect();
    let shares = |name| (findings::USER_CLUSTERS_SHARE_NODES, Severity::Critical, name);
    assert_eq!(found, [shares("a"), shares("b")]);
    assert!(
        whole.findings[0].message.contains("a and b"),
        "{}",
        whole.findings[0].message
    );
    for view in &whole.clusters {
        assert_eq!((view.state, view.nodes_without_vm), (ClusterState::Refused, 1));
        let message = view.message.as_deref().unwrap();
        assert!(
            !message.contains("a and b") && message.contains("nothing is written"),
            "tenants read it: {message}"
        );
    }
    let health = index.detail(&key("ns", "w0")).unwrap().conditions;
    assert!(
        health.iter().any(|one| one.reason == "UserClusterRefused"),
        "{health:?}"
    );

    apply(&mut index, [node("b", "node-of-b")]);
    assert_eq!(joined(&index, "w0"), both("w0"));
    let whole = index.snapshot();
    assert!(whole.findings.is_empty(), "{:?}", whole.findings);
    assert!(
        whole
            .clusters
            .iter()
            .all(|view| view.state == ClusterState::Ready)
    );
}
