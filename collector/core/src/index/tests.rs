use virtfleet_wire::{finding::Severity, identity::Sourced, report::GuestReport};

use super::*;
use crate::{
    facts::{Fact, Phase, Vmi},
    pull_result::{Answer, MetricsSummary},
    report::KeptReport,
    store::tests::{cluster, infra_node, key, labels, user_node, vm, vmi},
    view::AgentStatus,
};

pub(super) fn apply(index: &mut FleetIndex, facts: impl IntoIterator<Item = Fact>) {
    for fact in facts {
        index.apply(InventoryEvent::Apply(fact));
    }
}

pub(super) fn answer(vm: &VmKey, change: impl FnOnce(&mut GuestReport)) -> PullResult {
    let mut report = GuestReport::default();
    change(&mut report);
    PullResult {
        vm: vm.clone(),
        at: 1,
        address: None,
        pushed: false,
        outcome: Ok(Answer {
            report: Box::new(KeptReport::of(&report)),
            metrics: MetricsSummary::default(),
            counters: crate::usage::UsageCounters::default(),
            queues: Box::default(),
            took_ms: 3,
            slow: false,
            certificate: None,
        }),
    }
}

pub(super) fn on(vmi: Vmi, node: &str) -> Fact {
    Fact::Vmi(Box::new(Vmi {
        node: Some(node.parse().unwrap()),
        ..vmi
    }))
}

pub(super) fn ids(index: &FleetIndex, vm: &VmKey) -> Vec<String> {
    index.store.vms[vm]
        .findings
        .iter()
        .map(|finding| finding.id.clone())
        .collect()
}

/// A VM `w0` of the cluster `c` on `n1` in zone `z1`, at its own address.
pub(super) fn small() -> FleetIndex {
    let mut index = FleetIndex::new(DialRules::default());
    apply(
        &mut index,
        [
            Fact::InfraNode(infra_node("n1", "z1")),
            Fact::InfraNode(infra_node("n2", "z2")),
            Fact::UserCluster(cluster("c", "ns", &[])),
            Fact::UserNode(user_node("c", "w0", Some("kubevirt://w0"))),
            on(vmi("ns", "w0"), "n1"),
        ],
    );
    index
}

#[test]
fn two_snapshots_share_the_views_that_are_the_same() {
    let mut index = FleetIndex::new(DialRules::default());
    for name in ["a", "b"] {
        index.apply(InventoryEvent::Apply(Fact::Vmi(Box::new(vmi("ns", name)))));
    }
    let before = index.snapshot();
    let mut moved = vmi("ns", "b");
    moved.node = Some("n1".parse().unwrap());
    index.apply(InventoryEvent::Apply(Fact::Vmi(Box::new(moved))));
    let after = index.snapshot();
    let shared = |name| std::sync::Arc::ptr_eq(&before.vms[&key("ns", name)], &after.vms[&key("ns", name)]);
    assert_eq!((shared("a"), shared("b")), (true, false));
}

#[test]
fn a_vm_is_joined_with_its_host_zone_cluster_and_node() {
    let index = small();
    let snapshot = index.snapshot();
    let view = &snapshot.vms[&key("ns", "w0")];
    assert_eq!(view.zone.as_deref(), Some("z1"));
    assert_eq!(view.cluster.as_ref().unwrap().as_str(), "c");
    assert_eq!(view.user_node.as_ref().unwrap().as_str(), "w0");
    assert_eq!(
        (view.state, view.agent.status, view.findings),
        (VmState::Running, AgentStatus::Waiting, 0)
    );
    assert_eq!(
        snapshot.hosts.iter().map(|host| host.vms).collect::<Vec<_>>(),
        [1, 0]
    );
    assert_eq!(
        (snapshot.clusters[0].vms, snapshot.clusters[0].nodes_without_vm),
        (1, 0)
    );
    assert!(snapshot.partial && !snapshot.synced);
    assert_eq!(index.targets(), [key("ns", "w0")]);
    assert_eq!(
        index.dial(&key("ns", "w0")).unwrap().address,
        "10.0.0.1:10911".parse().unwrap()
    );
    assert_eq!(
        index.dial(&key("ns", "no")).unwrap_err().class,
        FailureClass::NoAddress
    );
}

#[test]
fn a_migration_and_a_relabelled_host_affect_the_vms_on_it() {
    let mut index = small();
    let vm = key("ns", "w0");
    assert_eq!(
        index.apply(InventoryEvent::Apply(on(vmi("ns", "w0"), "n2"))),
        std::slice::from_ref(&vm)
    );
    assert_eq!(index.snapshot().vms[&vm].zone.as_deref(), Some("z2"));
    let touched = index.apply(InventoryEvent::Apply(Fact::InfraNode(infra_node("n2", "z9"))));
    assert_eq!(touched, std::slice::from_ref(&vm));
    assert_eq!(index.snapshot().vms[&vm].zone.as_deref(), Some("z9"));
    index.apply(InventoryEvent::Delete(FactKey::InfraNode("n2".parse().unwrap())));
    assert_eq!(ids(&index, &vm), [findings::INFRA_NODE_UNKNOWN]);
    let snapshot = index.snapshot();
    assert_eq!(snapshot.vms[&vm].zone, None);
    assert!(snapshot.hosts.iter().any(|host| !host.known && host.vms == 1));
    assert_eq!(snapshot.findings[0].subject.kind, "InfraNode");
    apply(&mut index, [Fact::InfraNode(infra_node("n2", "z2"))]);
    assert_eq!(index.snapshot().findings, []);
}

#[test]
fn the_revision_grows_only_with_what_is_visible() {
    let mut index = small();
    let before = index.revision();
    apply(
        &mut index,
        [on(vmi("ns", "w0"), "n1"), Fact::InfraNode(infra_node("n1", "z1"))],
    );
    assert!(
        index
            .apply(InventoryEvent::Delete(FactKey::Vm(key("ns", "never"))))
            .is_empty()
    );
    assert!(!index.record_pull(answer(&key("ns", "never"), |_| {})));
    index.set_inventory_findings(vec![]);
    assert_eq!(index.revision(), before);
    assert!(index.record_pull(answer(&key("ns", "w0"), |_| {})));
    assert!(index.revision() > before);
}

#[test]
fn objects_are_removed_only_at_the_end_of_a_full_read() {
    let mut index = small();
    index.apply(InventoryEvent::Init);
    apply(
        &mut index,
        [Fact::InfraNode(infra_node("n1", "z1")), on(vmi("ns", "w0"), "n1")],
    );
    index.apply(InventoryEvent::Delete(FactKey::Vmi(key("ns", "w0"))));
    assert_eq!(index.snapshot().vms.len(), 1);
    assert_eq!(index.snapshot().hosts.len(), 2);
    let gone = index.apply(InventoryEvent::Synced);
    assert_eq!(gone, [key("ns", "w0")]);
    let snapshot = index.snapshot();
    assert_eq!(
        (snapshot.vms.len(), snapshot.hosts.len(), snapshot.clusters.len()),
        (0, 1, 0)
    );
    assert!(snapshot.synced && !snapshot.partial);
    index.apply(InventoryEvent::Synced);
    assert_eq!(index.snapshot().hosts.len(), 1, "without Init nothing is swept");
}

#[test]
fn a_broken_inventory_is_partial() {
    let mut index = small();
    index.apply(InventoryEvent::Init);
    index.apply(InventoryEvent::Synced);
    let broken = Finding::new(
        findings::MANIFEST_BROKEN,
        Severity::Warning,
        ("Manifest", "f"),
        "R",
        "m",
    );
    index.set_time("t1".into(), 0);
    index.set_inventory_findings(vec![broken.clone()]);
    index.set_time("t2".into(), 0);
    index.set_inventory_findings(vec![broken]);
    assert!(index.snapshot().partial);
    assert_eq!(index.snapshot().findings[0].since, "t1");
}

#[test]
fn precedence_of_the_node_join() {
    let node = |index: &FleetIndex, name: &str| {
        let view = index.snapshot().vms[&key("ns", name)].user_node.clone();
        view.map(|node| node.to_string())
    };
    let hostname = |index: &mut FleetIndex, vm: &str, name: &str| {
        index.record_pull(answer(&key("ns", vm), |report| {
            report.identity.hostname = Some(Sourced::new(name.into(), "uname"));
        }));
    };
    let mut index = small();
    let mut w1 = vmi("ns", "w1");
    w1.interfaces.clear();
    apply(
        &mut index,
        [
            Fact::Vmi(Box::new(w1)),
            Fact::UserNode(user_node("other", "w1", None)),
        ],
    );
    assert_eq!(node(&index, "w1"), None, "another cluster's Node is never used");
    assert!(
        index
            .snapshot()
            .findings
            .iter()
            .any(|finding| finding.id == findings::USER_CLUSTER_MISSING)
    );
    // Claimed by one VM, then returned to the VM of that name.
    let mut host_1 = user_node("c", "host-1", None);
    host_1.system_uuid = None;
    apply(&mut index, [Fact::UserNode(host_1)]);
    hostname(&mut index, "w1", "host-1");
    assert_eq!(node(&index, "w1").as_deref(), Some("host-1"));
    assert!(index.node_condition_input(&key("ns", "w1")).is_none());
    assert_eq!(
        ids(&index, &key("ns", "w1")),
        [findings::IDENTITY_HOSTNAME_DIFFERS, findings::NODE_BY_HOSTNAME]
    );
    let mut rightful = vmi("ns", "host-1");
    rightful.interfaces.clear();
    apply(&mut index, [Fact::Vmi(Box::new(rightful))]);
    assert_eq!(
        (node(&index, "w1"), node(&index, "host-1").as_deref()),
        (None, Some("host-1"))
    );
    index.apply(InventoryEvent::Delete(FactKey::Vmi(key("ns", "host-1"))));
    assert_eq!(node(&index, "w1").as_deref(), Some("host-1"));
    // Two guests claim it.
    let mut w2 = vmi("ns", "w2");
    w2.interfaces.clear();
    apply(&mut index, [Fact::Vmi(Box::new(w2))]);
    hostname(&mut index, "w2", "host-1");
    for name in ["w1", "w2"] {
        assert_eq!(node(&index, name), None);
        assert!(ids(&index, &key("ns", name)).contains(&findings::NODE_CLAIMED_TWICE.to_owned()));
    }
    // By name, unless the Node has the identity of another VM; providerID takes precedence.
    apply(&mut index, [Fact::UserNode(user_node("c", "w1", None))]);
    assert_eq!(
        (node(&index, "w1").as_deref(), node(&index, "w2").as_deref()),
        (Some("w1"), Some("host-1"))
    );
    apply(
        &mut index,
        [Fact::UserNode(user_node("c", "w1", Some("kubevirt://w2")))],
    );
    assert_eq!(
        (node(&index, "w1"), node(&index, "w2").as_deref()),
        (None, Some("w1"))
    );
    assert!(ids(&index, &key("ns", "w1")).contains(&findings::NODE_PROVIDER_DIFFERS.to_owned()));
    // k3s has its own scheme; the machine's UUID identifies this VM.
    let mut of_k3s = user_node("c", "w1", Some("k3s://w1"));
    of_k3s.system_uuid = Some("5d307ca9-b3ef-428c-8861-06e72d69f223".parse().unwrap());
    let mut w1 = vmi("ns", "w1");
    w1.interfaces.clear();
    w1.firmware_uuid = None;
    apply(
        &mut index,
        [Fact::UserNode(of_k3s.clone()), Fact::Vmi(Box::new(w1.clone()))],
    );
    let mut found = index.store.vms[&key("ns", "w1")].findings.iter();
    let differs = found.find(|one| one.id == findings::NODE_PROVIDER_DIFFERS);
    assert!(differs.is_some_and(|one| one.message.contains("5d307ca9") && !one.remedy.contains("delete")));
    w1.firmware_uuid = of_k3s.system_uuid;
    apply(&mut index, [Fact::Vmi(Box::new(w1.clone()))]);
    assert_eq!(node(&index, "w1").as_deref(), Some("w1"));
    assert_eq!(
        ids(&index, &key("ns", "w1")),
        [findings::IDENTITY_HOSTNAME_DIFFERS]
    );
    // A UUID that many machines share identifies none.
    of_k3s.system_uuid = Some("00000000-0000-0000-0000-000000000000".parse().unwrap());
    w1.firmware_uuid = of_k3s.system_uuid;
    apply(&mut index, [Fact::UserNode(of_k3s), Fact::Vmi(Box::new(w1))]);
    assert_eq!(node(&index, "w1"), None);
    // Two Nodes for one VM.
    apply(
        &mut index,
        [Fact::UserNode(user_node("c", "w0-old", Some("kubevirt://w0")))],
    );
    assert_eq!(node(&index, "w0"), None);
    assert_eq!(ids(&index, &key("ns", "w0")), [findings::NODE_AMBIGUOUS]);
}

#[test]
fn a_vmi_without_status_is_a_finding_and_is_not_dialled() {
    let mut index = small();
    let mut bare = vmi("ns", "bare");
    (bare.has_status, bare.phase, bare.interfaces) = (false, Phase::Unset, vec![]);
    apply(&mut index, [Fact::Vmi(Box::new(bare))]);
    assert_eq!(ids(&index, &key("ns", "bare")), [findings::VMI_WITHOUT_STATUS]);
    assert_eq!(index.snapshot().vms[&key("ns", "bare")].state, VmState::Unknown);
    assert_eq!(index.targets(), [key("ns", "w0")]);
}

#[test]
fn a_stopped_vm_belongs_to_the_tenant_whose_labels_its_template_has() {
    let mut index = FleetIndex::new(DialRules::default());
    let mut stopped = vm("ns", "s");
    stopped.labels = labels(&[("id", "c")]);
    apply(
        &mut index,
        [
            Fact::Vm(stopped),
            Fact::UserCluster(cluster("c", "ns", &[("id", "c")])),
            Fact::UserCluster(cluster("d", "ns", &[("id", "d")])),
        ],
    );
    assert_eq!(
        index.snapshot().vms[&key("ns", "s")]
            .cluster
            .as_ref()
            .unwrap()
            .as_str(),
        "c"
    );
    apply(&mut index, [Fact::UserCluster(cluster("d", "ns", &[]))]);
    assert_eq!(index.snapshot().vms[&key("ns", "s")].cluster, None);
    assert_eq!(ids(&index, &key("ns", "s")), [findings::TENANT_AMBIGUOUS]);
}
