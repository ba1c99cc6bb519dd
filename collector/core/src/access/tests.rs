//! What each view has in each scope.

use std::{collections::BTreeMap, sync::Arc};

use virtfleet_wire::{finding::Severity, ids::VmKey};

use super::*;
use crate::{
    dial::DialRules,
    facts::{Fact, InventoryEvent, UserNode, Vmi},
    index::FleetIndex,
    mla::{
        delivery::{MetricsDelivery, PageDelivery, StreamDelivery},
        status::StreamName,
    },
    pull_result::{Failure, FailureClass, PullResult},
    spec_view::{SpecCheckView, SpecResult},
    store::tests::{cluster, infra_node, key, labels, user_node, vm, vmi},
    view::FleetSnapshot,
};

const CLUSTER_LABEL: &str = "cluster.x-k8s.io/cluster-name";

/// Two tenants on a shared host and on one of their own each; a VM of each without user cluster.
fn index() -> FleetIndex {
    let mut index = FleetIndex::new(DialRules::default());
    let shared_uuid = Some("5d307ca9-b3ef-428c-8861-06e72d69f223".parse().unwrap());
    let node = |cluster: &str, name: &str| {
        Fact::UserNode(UserNode {
            system_uuid: shared_uuid,
            ..user_node(cluster, name, Some(&format!("kubevirt://{name}")))
        })
    };
    let on = |namespace: &str, name: &str, node: &str, label: &str| {
        Fact::Vmi(Box::new(Vmi {
            node: Some(node.parse().unwrap()),
            labels: labels(&[(CLUSTER_LABEL, label)]),
            firmware_uuid: shared_uuid,
            ..vmi(namespace, name)
        }))
    };
    let facts = [
        Fact::InfraNode(infra_node("shared", "z1")),
        Fact::InfraNode(infra_node("only-a", "z1")),
        Fact::InfraNode(infra_node("only-b", "z2")),
        Fact::InfraNode(infra_node("unused", "z3")),
        Fact::UserCluster(cluster("a", "ns-a", &[(CLUSTER_LABEL, "a")])),
        Fact::UserCluster(cluster("b", "ns-b", &[(CLUSTER_LABEL, "b")])),
        node("a", "a0"),
        node("b", "b0"),
        on("ns-a", "a0", "shared", "a"),
        on("ns-a", "a1", "only-a", "a"),
        on("ns-a", "loose-a", "shared", "c"),
        on("ns-b", "b0", "shared", "b"),
        on("ns-b", "b1", "only-b", "b"),
        on("ns-b", "loose-b", "shared", "c"),
        Fact::Vm(vm("ns-b", "stopped")),
    ];
    for fact in facts {
        index.apply(InventoryEvent::Apply(fact));
    }
    index.apply(InventoryEvent::Synced);
    index
}

fn scope(namespaces: &[&str], clusters: &[&str]) -> AccessScope {
    AccessScope::Only {
        namespaces: namespaces.iter().map(|name| name.parse().unwrap()).collect(),
        clusters: clusters.iter().map(|name| name.parse().unwrap()).collect(),
    }
}

fn part(index: &FleetIndex, scope: &AccessScope) -> FleetSnapshot {
    let whole = index.snapshot();
    tenant_snapshot(&VisibleFleet::new(&whole, scope), &|key| index.findings(key))
}

#[test]
fn each_view_has_what_its_scope_has() {
    let index = index();
    for (scope, vms, hosts, clusters) in [
        (
            AccessScope::All,
            &[
                "ns-a/a0",
                "ns-a/a1",
                "ns-a/loose-a",
                "ns-b/b0",
                "ns-b/b1",
                "ns-b/loose-b",
                "ns-b/stopped",
            ][..],
            &["only-a 1", "only-b 1", "shared 4"][..],
            &["a 2/1", "b 2/1", "c 2/0"][..],
        ),
        (
            scope(&["ns-a"], &[]),
            &["ns-a/a0", "ns-a/a1", "ns-a/loose-a"],
            &["only-a 1", "shared 2"],
            &["a 2/1", "c 1/0"],
        ),
        (
            scope(&[], &["a"]),
            &["ns-a/a0", "ns-a/a1"],
            &["only-a 1", "shared 1"],
            &["a 2/1"],
        ),
        (
            scope(&["ns-a"], &["b"]),
            &["ns-a/a0", "ns-a/a1", "ns-a/loose-a", "ns-b/b0", "ns-b/b1"],
            &["only-a 1", "only-b 1", "shared 3"],
            &["a 2/1", "b 2/1", "c 1/0"],
        ),
        // Labels of VMs name this cluster. It has no UserCluster, so a scope cannot have it.
        (scope(&["no-such"], &["c", "no-such"]), &[], &[], &[]),
        (AccessScope::nothing(), &[], &[], &[]),
    ] {
        let part = part(&index, &scope);
        assert!(part.synced && part.revision > 0);
        let found: Vec<String> = part.vms.keys().map(ToString::to_string).collect();
        assert_eq!(found, vms, "{scope:?}");
        let found = part
            .hosts
            .iter()
            .map(|host| format!("{} {}", host.name, host.vms));
        assert_eq!(found.collect::<Vec<_>>(), hosts, "{scope:?}");
        let found = part
            .clusters
            .iter()
            .map(|one| format!("{} {}/{}", one.name, one.vms, one.nodes));
        assert_eq!(found.collect::<Vec<_>>(), clusters, "{scope:?}");
        for key in index.snapshot().vms.keys() {
            let whole = index.snapshot();
            let detail = index
                .detail(key)
                .and_then(|one| tenant_detail(&VisibleFleet::new(&whole, &scope), one));
            assert_eq!(detail.is_some(), vms.contains(&key.to_string().as_str()), "{key}");
        }
        let whole = index.snapshot();
        let inputs = index
            .written()
            .into_iter()
            .filter_map(|key| index.label_input(&key));
        let inputs = inputs.filter_map(|input| tenant_label_input(&VisibleFleet::new(&whole, &scope), input));
        let inputs: Vec<String> = inputs.map(|input| input.vm.to_string()).collect();
        let expected: Vec<&str> = ["ns-a/a0", "ns-b/b0"]
            .into_iter()
            .filter(|name| vms.contains(name))
            .collect();
        assert_eq!(inputs, expected, "{scope:?}");
    }
}

#[test]
fn findings_name_and_count_only_visible_vms() {
    let index = index();
    let of = |scope: &AccessScope, vm: &VmKey| {
        let (whole, part) = (index.snapshot(), part(&index, scope));
        let view = &part.vms[vm];
        let found = tenant_findings(
            &VisibleFleet::new(&whole, scope),
            &whole.vms[vm],
            index.findings(vm),
        );
        assert_eq!(view.findings, found.len());
        let critical = found
            .iter()
            .filter(|one| one.severity == Severity::Critical)
            .count();
        assert_eq!(view.severities.critical, critical);
        found
    };
    // VMs of different names share a firmware UUID.
    let vm = key("ns-a", "a0");
    let duplicate = |scope: &AccessScope| {
        let found = of(scope, &vm);
        let found = found.into_iter().find(|one| one.id == "duplicate-firmware-uuid");
        found.map(|one| (one.message, one.evidence["others"].clone()))
    };
    let (message, others) = duplicate(&scope(&["ns-a"], &[])).unwrap();
    assert_eq!(others, "ns-a/a1, ns-a/loose-a");
    assert!(
        message.starts_with("ns-a/a0 and ns-a/a1, ns-a/loose-a have the firmware UUID"),
        "{message}"
    );
    assert_eq!(duplicate(&AccessScope::All).unwrap().1.matches("ns-b").count(), 3);
    let one = scope(&[], &["b"]);
    let found = of(&one, &key("ns-b", "b0"));
    assert!(found.iter().any(|found| {
        found
            .evidence
            .get("others")
            .is_some_and(|others| others == "ns-b/b1")
    }));
}

#[test]
fn a_label_that_names_a_hidden_cluster_is_as_one_that_names_none() {
    let with_label = |label: &str| {
        let mut index = index();
        let mut odd = vmi("ns-a", "odd");
        odd.labels = labels(&[(CLUSTER_LABEL, label)]);
        index.apply(InventoryEvent::Apply(Fact::Vmi(Box::new(odd))));
        let tenant = scope(&["ns-a"], &[]);
        let part = part(&index, &tenant);
        let whole = index.snapshot();
        let vm = key("ns-a", "odd");
        let found = tenant_findings(
            &VisibleFleet::new(&whole, &tenant),
            &whole.vms[&vm],
            index.findings(&vm),
        );
        let clusters: Vec<_> = part
            .clusters
            .iter()
            .map(|one| serde_json::to_string(one).unwrap())
            .collect();
        (
            serde_json::to_string(&found).unwrap(),
            clusters,
            part.vms[&vm].severities,
        )
    };
    let (hidden, missing) = (with_label("b"), with_label("x"));
    let renamed = |text: &str| {
        text.replace("=x", "=b")
            .replace("UserCluster x", "UserCluster b")
            .replace("named x", "named b")
            .replace(": x}", ": b}")
            .replace("\"x\"", "\"b\"")
    };
    assert_eq!(hidden.0, renamed(&missing.0));
    assert!(hidden.0.contains("tenant-pending"), "{}", hidden.0);
    let name = |clusters: &[String]| clusters.iter().map(|one| renamed(one)).collect::<Vec<_>>();
    let sorted = |mut clusters: Vec<String>| {
        clusters.sort();
        clusters
    };
    assert_eq!(sorted(hidden.1), sorted(name(&missing.1)));
    assert_eq!(hidden.2, missing.2);
}

#[test]
fn the_identity_of_another_vm_is_not_named() {
    let mut index = index();
    let vm = key("ns-a", "a0");
    let other = "the certificate at 10.0.0.1:1 is that of spiffe://d/vmi/ns-b/b0/uid-b0";
    index.record_pull(PullResult {
        vm: vm.clone(),
        at: 1,
        address: None,
        pushed: false,
        outcome: Err(Failure::new(FailureClass::WrongVm, other)),
    });
    let tenant = scope(&["ns-a"], &[]);
    let part = part(&index, &tenant);
    let failure = part.vms[&vm].agent.failure.clone().unwrap();
    assert_eq!(failure.class, FailureClass::WrongVm);
    let whole = index.snapshot();
    let visible = VisibleFleet::new(&whole, &tenant);
    let detail = tenant_detail(&visible, index.detail(&vm).unwrap()).unwrap();
    let text = format!("{failure:?} {}", serde_json::to_string(&detail).unwrap());
    assert!(
        text.contains("agent-wrong-vm") && !text.contains("ns-b"),
        "{text}"
    );
}

/// A disk may be named after an infra node.
#[test]
fn infra_names_in_a_specification_are_replaced() {
    let index = index();
    let mut detail = index.detail(&key("ns-a", "a1")).unwrap();
    detail.spec.push(SpecCheckView {
        path: "spec.domain.devices.disks[data].serial".to_owned(),
        asked: "only-a".to_owned(),
        seen: Some("only-a".to_owned()),
        result: SpecResult::Agrees,
        matters: true,
        why: String::new(),
    });
    let mut terms = redact::InfraTerms::default();
    terms.add_node("only-a");
    let redactor = redact::Redactor::new(Arc::new(|_: &str| [7; 8]), Arc::new(terms));
    let spec = redactor.detail(detail).spec;
    let text = serde_json::to_string(&spec).unwrap();
    assert!(spec.len() == 1 && !text.contains("only-a"), "{text}");
}

#[test]
fn a_tenant_does_not_see_the_state_of_the_operators_stream() {
    let mut index = index();
    let vm = key("ns-a", "a0");
    let mut is_seen = |stream: &str, scope: &AccessScope| {
        let stream: StreamName = stream.parse().unwrap();
        let pages = BTreeMap::from([(vm.clone(), PageDelivery::Read)]);
        index.set_metrics_delivery(MetricsDelivery::new([(stream, StreamDelivery::Refused)], pages));
        let (whole, detail) = (index.snapshot(), index.detail(&vm).unwrap());
        let detail = tenant_detail(&VisibleFleet::new(&whole, scope), detail).unwrap();
        let mut kinds = detail.conditions.iter().map(|one| one.kind.as_str());
        kinds.any(|kind| kind == "MetricsDelivered")
    };
    let tenant = scope(&["ns-a"], &[]);
    assert!(is_seen("cluster/a", &tenant));
    assert!(!is_seen("fleet", &tenant));
    assert!(is_seen("fleet", &AccessScope::All));
}
