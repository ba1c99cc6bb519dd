//! Identities of VMs and of the guests that answer for them.

use virtfleet_wire::{identity::Sourced, report::GuestReport};

use super::{
    tests::{answer, apply, ids, small},
    *,
};
use crate::{
    facts::Fact,
    store::tests::{key, user_node, vm, vmi},
    view::{AgentStatus, IdentityVerdict},
};

#[test]
fn another_uid_is_another_machine() {
    let mut index = small();
    let vm = key("ns", "w0");
    let old = index.dial(&vm).unwrap().uid;
    index.record_pull(answer(&vm, |report| report.boot_id = "b".into()));
    assert_eq!(index.snapshot().vms[&vm].agent.status, AgentStatus::Up);
    let mut next = vmi("ns", "w0");
    next.uid = Some("other".parse().unwrap());
    apply(&mut index, [Fact::Vmi(Box::new(next))]);
    let view = &index.snapshot().vms[&vm];
    assert_eq!(
        (view.agent.status, view.guest.is_none()),
        (AgentStatus::Waiting, true)
    );
    assert!(
        !index.record_pull_of(old.as_ref(), answer(&vm, |_| {})),
        "the old dial target no longer exists"
    );
    let failure = Failure::new(FailureClass::Timeout, "slow");
    let silent = PullResult {
        vm: vm.clone(),
        at: 9,
        address: None,
        pushed: false,
        outcome: Err(failure),
    };
    assert!(index.record_pull_of(Some(&"other".parse().unwrap()), silent));
    assert_eq!(index.snapshot().vms[&vm].agent.status, AgentStatus::Silent);
    // The VirtualMachine stays when the VMI is deleted; pull results are removed with the VMI.
    apply(&mut index, [Fact::Vm(vm_of(&vm))]);
    index.apply(InventoryEvent::Delete(FactKey::Vmi(vm.clone())));
    let view = &index.snapshot().vms[&vm];
    assert_eq!(
        (view.state, view.agent.status, view.agent.last_try_ms),
        (VmState::Stopped, AgentStatus::Off, None)
    );
}

fn vm_of(key: &VmKey) -> crate::facts::Vm {
    vm(key.namespace.as_str(), key.name.as_str())
}

#[test]
fn shared_identities_are_findings_on_all_vms_that_share_them() {
    let mut index = FleetIndex::new(DialRules::default());
    let (a, b) = (key("ns", "a"), key("other", "b"));
    let uuid = "8f4c2d10-93ab-4e57-b0d6-5a1e7c9f2b34";
    for vm in [&a, &b] {
        let mut vmi = vmi(vm.namespace.as_str(), vm.name.as_str());
        vmi.firmware_uuid = Some(uuid.parse().unwrap());
        apply(&mut index, [Fact::Vmi(Box::new(vmi))]);
    }
    for vm in [&a, &b] {
        index.record_pull(answer(vm, |report| {
            report.boot_id = "boot".into();
            report.identity.smbios_uuid = Some(Sourced::new(uuid.into(), "dmi"));
        }));
    }
    // A value reported by a guest is no finding on a VM that has it by its own VMI: see
    // hostile_tests.
    let all = [findings::DUPLICATE_FIRMWARE_UUID, findings::DUPLICATE_ADDRESS];
    assert_eq!(ids(&index, &a), all);
    assert_eq!(ids(&index, &b), all);
    let found = &index.store.vms[&a].findings[0];
    assert!(found.message.contains("ns/a and other/b"), "{}", found.message);
    assert_eq!(
        index.detail(&a).unwrap().identity["smbiosUuid"].verdict,
        IdentityVerdict::Confirmed
    );
    index.apply(InventoryEvent::Delete(FactKey::Vmi(b)));
    assert_eq!(ids(&index, &a), Vec::<String>::new());
}

#[test]
fn guest_reports_confirm_or_are_findings() {
    let mut index = small();
    let vm = key("ns", "w0");
    let mut fact = vmi("ns", "w0");
    fact.node = Some("n1".parse().unwrap());
    fact.firmware_uuid = Some("8f4c2d10-93ab-4e57-b0d6-5a1e7c9f2b34".parse().unwrap());
    fact.interfaces[0].mac = Some("02:00:00:00:00:01".parse().unwrap());
    let mut node = user_node("c", "w0", Some("kubevirt://w0"));
    node.system_uuid = fact.firmware_uuid;
    apply(&mut index, [Fact::UserNode(node), Fact::Vmi(Box::new(fact))]);
    let claim = |text: &str| Some(Sourced::new(text.to_owned(), "s"));
    index.record_pull(answer(&vm, |report| {
        report.identity.machine_id = claim("8f4c2d1093ab4e57b0d65a1e7c9f2b34");
        report.identity.hostname = claim("W0.example.org");
        report.claims.infra_node = claim("n1");
    }));
    assert_eq!(ids(&index, &vm), Vec::<String>::new());
    let identity = index.detail(&vm).unwrap().identity;
    assert_eq!(identity["machineId"].verdict, IdentityVerdict::Confirmed);
    assert_eq!(identity["hostname"].verdict, IdentityVerdict::Confirmed);
    assert_eq!(identity["smbiosUuid"].verdict, IdentityVerdict::Unknown);
    index.record_pull(answer(&vm, |report| {
        report.identity.smbios_uuid = claim("00000000-0000-0000-0000-00000000000a");
        report.identity.hostname = claim("evil\u{1b}[2J");
        let mut nic = virtfleet_wire::identity::Interface {
            name: "eth0".into(),
            mac: None,
            addresses: vec![],
            physical: true,
        };
        nic.mac = Some("02:00:00:00:00:99".parse().unwrap());
        report.identity.interfaces = Some(Sourced::new(vec![nic], "net"));
        report.claims.infra_node = claim("n2");
        report.claims.vm = claim("ns/else");
        report.claims.kubelet_labels.insert(
            "topology.kubernetes.io/zone".into(),
            Sourced::new("z7".into(), "k"),
        );
        report.claims.kubelet_labels.insert(
            "failure-domain.beta.kubernetes.io/region".into(),
            Sourced::new("r".into(), "k"),
        );
    }));
    assert_eq!(
        ids(&index, &vm),
        [
            findings::IDENTITY_UUID_MISMATCH,
            findings::CLAIM_INFRA_NODE_DIFFERS,
            findings::CLAIM_VM_DIFFERS,
            findings::CLAIM_ZONE_STALE,
            findings::IDENTITY_MAC_MISMATCH,
            findings::IDENTITY_HOSTNAME_DIFFERS,
        ]
    );
    let detail = index.detail(&vm).unwrap();
    assert!(
        detail
            .findings_list
            .iter()
            .all(|finding| !finding.message.contains('\u{1b}') && !finding.remedy.is_empty())
    );
    assert_eq!(detail.vm.zone.as_deref(), Some("z1"), "the claim moves nothing");
    assert_eq!(detail.vm.findings, detail.findings_list.len());
}

#[test]
fn the_guests_system_is_read_under_the_names_of_the_report() {
    let mut index = small();
    let vm = key("ns", "w0");
    index.record_pull(answer(&vm, |report| {
        let json = br#"{"apiVersion": "report.virtfleet.io/v1", "kind": "GuestReport", "sections":
            {"system": {"status": "ok", "items": [{"osName": "Debian 12", "kernel": "6.1.0"}]},
             "disks": {"status": "partial", "items": [{"name": "vda"}, {"name": "vdb"}]},
             "nics": {"status": "ok", "items": [{"name": "eth0"}], "truncated": true}}}"#;
        *report = GuestReport::from_json(json).unwrap();
    }));
    let guest = index.snapshot().vms[&vm].guest.clone().unwrap();
    assert_eq!(
        (guest.os.as_deref(), guest.kernel.as_deref()),
        (Some("Debian 12"), Some("6.1.0"))
    );
    assert_eq!(
        (guest.disks, guest.nics),
        (Some(2), None),
        "a truncated list is not counted"
    );
}
