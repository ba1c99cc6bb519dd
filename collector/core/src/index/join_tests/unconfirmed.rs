//! Nodes that are joined and not confirmed.

use virtfleet_wire::{identity::Sourced, report::GuestReport};

use super::{super::tests::answer, *};
use crate::{
    facts::{Vm, Vmi},
    machine::tests::machine_of_name,
    node_conditions::plan_conditions,
    reported::{ReportedCondition, ReportedConditions, ReportedStatus},
    store::tests::vm,
};

/// The join with a Node to which nothing is written.
fn read_only(node: &str) -> (Option<String>, Option<String>) {
    (Some(node.to_owned()), None)
}

fn found(index: &FleetIndex, vm: &VmKey) -> Finding {
    let mut findings = index.store.vms[vm].findings.iter();
    let found = findings.find(|one| one.id == findings::NODE_UNCONFIRMED);
    found
        .unwrap_or_else(|| panic!("{vm}: {:?}", ids(index, vm)))
        .clone()
}

/// Two user clusters with a namespace each, whose kubeconfigs are swapped, and a VM `w0` in both.
fn swapped(uuid: Uuid) -> FleetIndex {
    let mut index = FleetIndex::default();
    index.apply(InventoryEvent::Init);
    for (name, namespace, uid) in [("a", "ns-a", "node-of-b"), ("b", "ns-b", "node-of-a")] {
        let cluster = UserCluster {
            selector: cluster(name, namespace, &[]).selector,
            namespace: namespace.parse().unwrap(),
            ..writing(name)
        };
        let node = UserNode {
            uid: Some(uid.parse().unwrap()),
            ..user_node(name, "w0", Some("kubevirt://w0"))
        };
        let facts = [
            Fact::UserCluster(cluster),
            with_uuid(node, Some(uuid)),
            with_firmware(namespace, uuid),
        ];
        apply(&mut index, facts);
    }
    index.apply(InventoryEvent::Synced);
    index
}

fn with_firmware(namespace: &str, uuid: Uuid) -> Fact {
    let vmi = Vmi {
        firmware_uuid: Some(uuid),
        ..apart(namespace, "w0")
    };
    Fact::Vmi(Box::new(vmi))
}

/// A VMI that shares no address.
fn apart(namespace: &str, name: &str) -> Vmi {
    Vmi {
        interfaces: Vec::new(),
        ..vmi(namespace, name)
    }
}

#[test]
fn a_uuid_that_follows_from_the_name_is_no_second_fact_while_another_vm_has_it() {
    let mut index = swapped(machine_of_name("w0"));
    let vms = [key("ns-a", "w0"), key("ns-b", "w0")];
    for vm in &vms {
        assert_eq!(joined_with(&index, vm), read_only("w0"));
        let finding = found(&index, vm);
        assert_eq!(
            (finding.severity, &*finding.reason),
            (Severity::Warning, "FirmwareUuidOfName")
        );
        for part in ["kubectl get vmi -A", "cloud-init", "vm reset", "replace the VM"] {
            assert!(finding.remedy.contains(part), "{part}: {}", finding.remedy);
        }
        let other = if vm == &vms[0] { "ns-b" } else { "ns-a" };
        let texts = finding.message.clone() + &finding.remedy;
        assert!(
            !texts.contains(other),
            "a tenant may not see the other VM: {texts}"
        );
    }
    // Stopped, and nothing says which UUID it will have.
    apply(&mut index, [Fact::Vm(vm("ns-b", "w0"))]);
    index.apply(InventoryEvent::Delete(FactKey::Vmi(vms[1].clone())));
    assert_eq!(joined_with(&index, &vms[0]), read_only("w0"));
    // Its template says that it will have another one.
    let other = Vm {
        firmware_uuid: Some(machine("w0")),
        ..vm("ns-b", "w0")
    };
    let touched = index.apply(InventoryEvent::Apply(Fact::Vm(other)));
    assert_eq!(touched, vms);
    assert_eq!(joined_with(&index, &vms[0]), both("w0"));
    let same = Vm {
        firmware_uuid: Some(machine_of_name("w0")),
        ..vm("ns-b", "w0")
    };
    apply(&mut index, [Fact::Vm(same)]);
    assert_eq!(joined_with(&index, &vms[0]), read_only("w0"));
    index.apply(InventoryEvent::Delete(FactKey::Vm(vms[1].clone())));
    assert_eq!(joined_with(&index, &vms[0]), both("w0"));
    // A VM of another name with the UUID.
    let mut copy = apart("elsewhere", "copy");
    copy.firmware_uuid = Some(machine_of_name("w0"));
    apply(&mut index, [Fact::Vmi(Box::new(copy))]);
    assert_eq!(joined_with(&index, &vms[0]), read_only("w0"));
}

#[test]
fn random_uuids_tell_vms_of_one_name_apart() {
    let mut index = swapped(machine("w0"));
    apply(&mut index, [with_firmware("ns-b", machine("random"))]);
    assert_eq!(joined_with(&index, &key("ns-a", "w0")), both("w0"));
    assert_eq!(joined_with(&index, &key("ns-b", "w0")), NONE);
    assert_eq!(ids(&index, &key("ns-b", "w0")), [findings::NODE_UUID_DIFFERS]);
}

#[test]
fn a_node_with_the_name_of_another_vm_does_not_join_by_its_uuid() {
    let mut index = index();
    let w1 = apart("ns", "w1");
    let node = with_uuid(user_node("c", "w2", Some("k3s://w2")), Some(machine("w1")));
    apply(&mut index, [Fact::Vmi(Box::new(w1)), node]);
    assert_eq!(joined(&index, "w1"), both("w2"));
    let mut w2 = apart("ns", "w2");
    let touched = index.apply(InventoryEvent::Apply(Fact::Vmi(Box::new(w2.clone()))));
    assert_eq!(touched, [key("ns", "w1"), key("ns", "w2")]);
    assert_eq!((joined(&index, "w1"), joined(&index, "w2")), (NONE, NONE));
    assert_eq!(ids(&index, &key("ns", "w1")), [findings::NODE_AMBIGUOUS]);
    assert_eq!(ids(&index, &key("ns", "w2")), [findings::NODE_UUID_DIFFERS]);
    // A Node is joined with one VM at most.
    w2.firmware_uuid = None;
    let node = with_uuid(user_node("c", "w2", None), Some(machine("w1")));
    apply(&mut index, [Fact::Vmi(Box::new(w2)), node]);
    assert_eq!(
        (joined(&index, "w1"), joined(&index, "w2")),
        (NONE, read_only("w2"))
    );
    index.apply(InventoryEvent::Delete(FactKey::Vmi(key("ns", "w2"))));
    assert_eq!(joined(&index, "w1"), both("w2"));
}

#[test]
fn a_node_of_another_name_is_read_while_a_vm_of_the_same_name_has_the_uuid() {
    let mut index = index();
    let mut w1 = apart("ns", "w1");
    w1.firmware_uuid = Some(machine_of_name("w1"));
    let node = with_uuid(
        user_node("c", "w1.example.org", None),
        Some(machine_of_name("w1")),
    );
    apply(&mut index, [Fact::Vmi(Box::new(w1.clone())), node]);
    assert_eq!(joined(&index, "w1"), both("w1.example.org"));
    w1.key = key("elsewhere", "w1");
    apply(&mut index, [Fact::Vmi(Box::new(w1))]);
    assert_eq!(joined(&index, "w1"), read_only("w1.example.org"));
}

#[test]
fn the_template_of_a_stopped_vm_identifies_its_node() {
    let mut index = index();
    let w0 = key("ns", "w0");
    let stopped = |uuid| {
        Fact::Vm(Vm {
            firmware_uuid: uuid,
            ..vm("ns", "w0")
        })
    };
    apply(&mut index, [stopped(Some(machine("w0")))]);
    index.apply(InventoryEvent::Delete(FactKey::Vmi(w0.clone())));
    for (uuid, expected) in [
        (Some(machine("w0")), both("w0")),
        (None, read_only("w0")),
        // It changes with the next start; no finding until then.
        (Some(machine("other")), NONE),
    ] {
        apply(&mut index, [stopped(uuid)]);
        assert_eq!(joined(&index, "w0"), expected, "{uuid:?}");
        assert_eq!(ids(&index, &w0), Vec::<String>::new(), "{uuid:?}");
    }
    // The VMI decides while there is one.
    apply(&mut index, [Fact::Vmi(Box::new(vmi("ns", "w0")))]);
    assert_eq!(joined(&index, "w0"), both("w0"));
}

#[test]
fn conditions_of_an_earlier_time_are_removed_from_an_unconfirmed_node_and_none_is_added() {
    let mut index = index();
    let disks = NodeConditionKind::DisksReady.node_type();
    let with_conditions = |uuid: Option<Uuid>| {
        let conditions = [&*disks, "Ready"]
            .map(|kind| ReportedCondition::new(kind, ReportedStatus::True, Some("R"), Some("m")));
        let node = UserNode {
            conditions: ReportedConditions::new(conditions),
            ..user_node("c", "w0", Some("kubevirt://w0"))
        };
        with_uuid(node, uuid)
    };
    apply(&mut index, [with_conditions(None)]);
    let planned = |index: &FleetIndex| {
        let input = index.node_condition_input(&key("ns", "w0"));
        input.and_then(|input| plan_conditions(&input))
    };
    let patch = planned(&index).unwrap();
    assert_eq!((patch.set, patch.remove), (vec![], vec![disks.clone()]));
    // Another machine's Node is left alone.
    apply(&mut index, [with_conditions(Some(machine("other")))]);
    assert_eq!(planned(&index), None);
    // Also if the guest says that this is its machine-id.
    index.record_pull(answer(&key("ns", "w0"), |report| {
        report.identity.machine_id = Some(Sourced::new(machine("other").to_string(), "etc"));
    }));
    assert_eq!(joined(&index, "w0"), read_only("w0"));
    assert_eq!(planned(&index), None);
}

#[test]
fn each_doubt_has_its_own_remedy() {
    type Claim = fn(&mut GuestReport);
    let shows: Claim = |report| {
        report.identity.smbios_uuid = Some(Sourced::new(machine("w0").to_string(), "dmi"));
        report.identity.machine_id = Some(Sourced::new(machine("id").to_string(), "etc"));
    };
    let shows_none: Claim = |report| {
        // As it is in the file.
        let text = machine("id").to_string().replace('-', "");
        report.identity.machine_id = Some(Sourced::new(text, "etc"));
    };
    let own = Some(machine("w0"));
    for (firmware, node, claim, reason, part) in [
        (None, own, shows, "NoFirmwareUuid", "runs as on a new instance"),
        (
            own,
            None,
            shows,
            "KubeletWithoutUuid",
            "systemctl restart kubelet",
        ),
        (own, None, shows_none, "NodeWithoutUuid", "has no SMBIOS"),
        (
            own,
            Some(machine("id")),
            shows_none,
            "MachineIdAsUuid",
            "has no SMBIOS",
        ),
    ] {
        let mut index = index();
        let mut w0 = vmi("ns", "w0");
        w0.firmware_uuid = firmware;
        let node = with_uuid(user_node("c", "w0", None), node);
        apply(&mut index, [Fact::Vmi(Box::new(w0)), node]);
        index.record_pull(answer(&key("ns", "w0"), claim));
        assert_eq!(joined(&index, "w0"), read_only("w0"), "{reason}");
        let finding = found(&index, &key("ns", "w0"));
        assert_eq!(finding.reason, reason);
        assert!(finding.remedy.contains(part), "{reason}: {}", finding.remedy);
        let is_changed = finding.remedy.contains("spec.template.spec.domain.firmware.uuid");
        assert_eq!(is_changed, firmware.is_none(), "{}", finding.remedy);
    }
    // A guest that shows a UUID does not report its machine-id in its place.
    let mut index = index();
    let node = with_uuid(user_node("c", "w0", None), Some(machine("id")));
    apply(&mut index, [node]);
    index.record_pull(answer(&key("ns", "w0"), shows));
    assert_eq!(joined(&index, "w0"), NONE);
}

#[test]
fn what_a_guest_says_of_its_machine_does_not_undo_what_a_node_says() {
    let mut index = index();
    let own_name = |uuid| with_uuid(user_node("c", "w1.example", None), uuid);
    apply(&mut index, [Fact::Vmi(Box::new(apart("ns", "w1")))]);
    let claim: fn(&mut GuestReport) = |report| {
        report.identity.hostname = Some(Sourced::new("w1.example".to_owned(), "kernel"));
        report.identity.machine_id = Some(Sourced::new(machine("other").to_string(), "etc"));
    };
    for (uuid, expected) in [(None, read_only("w1.example")), (Some(machine("other")), NONE)] {
        apply(&mut index, [own_name(uuid)]);
        index.record_pull(answer(&key("ns", "w1"), claim));
        assert_eq!(joined(&index, "w1"), expected, "{uuid:?}");
    }
}
