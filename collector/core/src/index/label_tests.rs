//! Input of a label plan: its content, and that every VM with a changed input is returned.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{prelude::*, sample::Index};

use super::{
    order::facts,
    tests::{apply, on, small},
    *,
};
use crate::{
    facts::{Fact, Migration, Selector, VmiMove},
    labels::{
        plan::{LabelInput, plan},
        policy::{LabelPolicy, Mode, Rule, Source},
    },
    store::tests::{cluster, infra_node, key, labels, user_node, vmi},
};

fn policy(name: &str, clusters: &[(&str, &str)]) -> Fact {
    Fact::Policy(Box::new(LabelPolicy {
        name: name.into(),
        uid: None,
        generation: 1,
        clusters: Selector {
            match_labels: labels(clusters),
            match_expressions: Vec::new(),
        },
        dry_run: false,
        rules: vec![Rule {
            source: Source::Key("rack".into()),
            target: None,
            mode: Some(Mode::Follow),
            takeover: None,
        }],
    }))
}

fn host(name: &str, rack: &str) -> Fact {
    let mut node = infra_node(name, "z1");
    node.labels.insert("rack".into(), rack.into());
    Fact::InfraNode(node)
}

/// [`small`] after its first full read, with another VM on `n2`.
fn synced() -> FleetIndex {
    let mut index = small();
    apply(
        &mut index,
        [
            Fact::UserNode(user_node("c", "w1", None)),
            on(vmi("ns", "w1"), "n2"),
        ],
    );
    index.apply(InventoryEvent::Synced);
    index
}

fn touched(index: &mut FleetIndex, fact: Fact) -> Vec<String> {
    let touched = index.apply(InventoryEvent::Apply(fact));
    touched.iter().map(|vm| vm.name.to_string()).collect()
}

fn of(index: &FleetIndex, name: &str) -> LabelInput {
    index.label_input(&key("ns", name)).unwrap()
}

#[test]
fn no_input_before_the_first_full_read_or_without_a_node() {
    let mut index = small();
    apply(
        &mut index,
        [on(vmi("ns", "alone"), "n1"), on(vmi("elsewhere", "w0"), "n1")],
    );
    assert_eq!(index.label_input(&key("ns", "w0")), None);
    index.apply(InventoryEvent::Synced);
    assert!(index.label_input(&key("ns", "w0")).is_some());
    assert_eq!(index.written(), [key("ns", "w0")]);
    for (namespace, name) in [("ns", "alone"), ("elsewhere", "w0"), ("ns", "never")] {
        assert_eq!(index.label_input(&key(namespace, name)), None);
    }
    index.apply(InventoryEvent::Delete(FactKey::UserNode(
        "c".parse().unwrap(),
        "w0".parse().unwrap(),
    )));
    assert_eq!(index.label_input(&key("ns", "w0")), None);
    assert_eq!(index.written(), []);
}

#[test]
fn a_relabelled_host_affects_the_vms_on_it_and_those_that_left_it() {
    let mut index = synced();
    assert_eq!(touched(&mut index, host("n1", "r1")), ["w0"]);
    assert_eq!(&of(&index, "w0").host.unwrap().labels["rack"], "r1");
    let mut moved = vmi("ns", "w0");
    moved.migration = Some(Migration {
        source: Some("n1".parse().unwrap()),
        target: Some("n2".parse().unwrap()),
        completed: true,
        failed: false,
        start: None,
        end: None,
        mode: None,
        failure_reason: None,
        ..Migration::default()
    });
    assert_eq!(touched(&mut index, on(moved, "n2")), ["w0"]);
    let earlier = VmiMove {
        source: Some("n1".parse().unwrap()),
        ..VmiMove::new("m", key("ns", "w1"))
    };
    assert_eq!(touched(&mut index, Fact::VmiMove(earlier.clone())), ["w1"]);
    assert_eq!(touched(&mut index, host("n1", "r2")), ["w0", "w1"]);
    for vm in ["w0", "w1"] {
        let input = of(&index, vm);
        assert_eq!(input.host.unwrap().name.as_str(), "n2");
        assert_eq!(input.stood_on.len(), 1);
        assert_eq!(&input.stood_on[0]["rack"], "r2", "as they are now");
    }
    let Fact::InfraNode(mut unready) = host("n1", "r2") else {
        panic!()
    };
    unready.ready = Some(false);
    assert!(
        touched(&mut index, Fact::InfraNode(unready)).is_empty(),
        "its labels are the same"
    );
    let gone = FactKey::VmiMove("ns".parse().unwrap(), "m".into());
    assert_eq!(index.apply(InventoryEvent::Delete(gone)), [key("ns", "w1")]);
    assert!(of(&index, "w1").stood_on.is_empty());
    index.apply(InventoryEvent::Delete(FactKey::InfraNode("n2".parse().unwrap())));
    assert_eq!(of(&index, "w0").host, None, "an unknown host gives no placement");
}

#[test]
fn a_policy_affects_the_clusters_that_it_selects_or_selected() {
    let mut index = synced();
    apply(&mut index, [Fact::InfraNode(infra_node("n3", "z1"))]);
    assert!(touched(&mut index, policy("p", &[("tier", "gold")])).is_empty());
    assert!(of(&index, "w0").policies.is_empty());
    let mut gold = cluster("c", "ns", &[]);
    gold.labels = labels(&[("tier", "gold")]);
    assert_eq!(touched(&mut index, Fact::UserCluster(gold.clone())), ["w0", "w1"]);
    assert_eq!(of(&index, "w0").policies[0].name, "p");
    let revision = index.revision();
    assert!(
        touched(&mut index, policy("p", &[("tier", "gold")])).is_empty(),
        "unchanged"
    );
    assert_eq!(index.revision(), revision);
    assert_eq!(
        touched(&mut index, policy("p", &[("tier", "lead")])),
        ["w0", "w1"]
    );
    assert_eq!(touched(&mut index, policy("q", &[])), ["w0", "w1"]);
    let q = FactKey::Policy("q".into());
    assert_eq!(
        index.apply(InventoryEvent::Delete(q.clone())),
        [key("ns", "w0"), key("ns", "w1")]
    );
    assert!(index.apply(InventoryEvent::Delete(q)).is_empty());
    gold.suspend = true;
    assert_eq!(touched(&mut index, Fact::UserCluster(gold)), ["w0", "w1"]);
    assert!(of(&index, "w0").suspended);
}

#[test]
fn a_heartbeat_affects_no_vm_and_its_version_is_stored() {
    let mut index = synced();
    let mut node = user_node("c", "w0", Some("kubevirt://w0"));
    node.resource_version = Some("2".into());
    let revision = index.revision();
    assert!(touched(&mut index, Fact::UserNode(node.clone())).is_empty());
    assert_eq!(index.revision(), revision);
    assert_eq!(of(&index, "w0").resource_version.as_deref(), Some("2"));
    node.labels.insert("rack".into(), "r".into());
    assert_eq!(touched(&mut index, Fact::UserNode(node.clone())), ["w0"]);
    node.owned = Some("{".into());
    assert_eq!(touched(&mut index, Fact::UserNode(node.clone())), ["w0"]);
    node.kubelet_labels.insert("rack".into());
    assert_eq!(touched(&mut index, Fact::UserNode(node.clone())), ["w0"]);
    let input = of(&index, "w0");
    assert_eq!(
        (input.labels, input.owned, input.kubelet_labels),
        (node.labels, node.owned, node.kubelet_labels)
    );
}

#[test]
fn a_label_of_the_host_is_planned_for_the_node_of_its_vm() {
    let mut index = synced();
    apply(&mut index, [host("n1", "r1"), policy("p", &[])]);
    let patch = plan(&of(&index, "w0"), None).patch.unwrap();
    assert_eq!(patch.labels, BTreeMap::from([("rack".into(), Some("r1".into()))]));
    assert_eq!(plan(&of(&index, "w1"), None).patch, None, "n2 has no rack");
}

proptest! {
    #[test]
    fn every_vm_with_a_changed_input_is_returned(
        acts in prop::collection::vec((facts(), any::<Index>(), prop::bool::weighted(0.7)), 0..60),
    ) {
        let mut index = FleetIndex::new(DialRules::default());
        index.apply(InventoryEvent::Init);
        index.apply(InventoryEvent::Synced);
        let mut known: BTreeSet<FactKey> = BTreeSet::new();
        let inputs = |index: &FleetIndex| -> BTreeMap<VmKey, LabelInput> {
            let found = index.written().into_iter();
            found.filter_map(|vm| Some((vm.clone(), index.label_input(&vm)?))).collect()
        };
        for (fact, which, put) in acts {
            let before = inputs(&index);
            let returned = if put || known.is_empty() {
                known.insert(fact.key());
                index.apply(InventoryEvent::Apply(fact))
            } else {
                let key = which.get(&known.iter().cloned().collect::<Vec<_>>()).clone();
                known.remove(&key);
                index.apply(InventoryEvent::Delete(key))
            };
            let after = inputs(&index);
            for vm in before.keys().chain(after.keys()) {
                prop_assert!(returned.contains(vm) || before.get(vm) == after.get(vm), "{} was not returned", vm);
            }
        }
    }
}

#[test]
fn a_policy_that_selects_no_cluster_is_a_finding() {
    let mut index = small();
    let named = |index: &FleetIndex| {
        let found = index.snapshot().findings.into_iter();
        let found = found.filter(|one| one.id == findings::POLICY_SELECTS_NOTHING);
        found.map(|one| one.subject.name).collect::<Vec<_>>()
    };
    apply(
        &mut index,
        [policy("all", &[]), policy("gold", &[("tier", "gold")])],
    );
    assert_eq!(named(&index), [""; 0], "not known before the first full read");
    index.apply(InventoryEvent::Synced);
    assert_eq!(named(&index), ["gold"]);
    let mut gold = cluster("gold", "ns-2", &[]);
    gold.labels = labels(&[("tier", "gold")]);
    apply(&mut index, [Fact::UserCluster(gold)]);
    assert_eq!(named(&index), [""; 0]);
    index.apply(InventoryEvent::Delete(FactKey::UserCluster(
        "gold".parse().unwrap(),
    )));
    assert_eq!(named(&index), ["gold"]);
    index.apply(InventoryEvent::Delete(FactKey::Policy("gold".into())));
    assert_eq!(named(&index), [""; 0]);
}
