//! A hostile guest cannot affect other VMs in the index.

use virtfleet_wire::{finding::Severity, identity::Sourced, report::GuestReport};

use super::{
    tests::{answer, apply},
    *,
};
use crate::{
    facts::{Fact, LauncherPod, Vmi},
    store::tests::{key, launcher, vmi},
};

const UUID: &str = "8f4c2d10-93ab-4e57-b0d6-5a1e7c9f2b34";
const OTHER: &str = "11111111-93ab-4e57-b0d6-5a1e7c9f2b34";

fn index_of(vmis: impl IntoIterator<Item = Vmi>) -> FleetIndex {
    let mut index = FleetIndex::new(DialRules::default());
    apply(&mut index, vmis.into_iter().map(|vmi| Fact::Vmi(Box::new(vmi))));
    index
}

fn found(index: &FleetIndex, vm: &VmKey) -> Vec<(String, Severity)> {
    let findings = index.findings(vm).into_iter();
    findings.map(|finding| (finding.id, finding.severity)).collect()
}

fn with_uuid(name: &str, uuid: Option<&str>) -> Vmi {
    let mut vmi = vmi("ns", name);
    vmi.interfaces.clear();
    vmi.firmware_uuid = uuid.map(|uuid| uuid.parse().unwrap());
    vmi
}

fn claim(report: &mut GuestReport) {
    report.boot_id = "boot".into();
    report.identity.smbios_uuid = Some(Sourced::new(UUID.into(), "dmi"));
}

#[test]
fn a_guest_that_claims_anothers_uuid_and_boot_id_gets_the_findings_alone() {
    let (victim, liar, unknown) = (key("ns", "victim"), key("ns", "liar"), key("ns", "unknown"));
    let mut index = index_of([
        with_uuid("victim", Some(UUID)),
        with_uuid("liar", Some(OTHER)),
        with_uuid("unknown", None),
    ]);
    for vm in [&victim, &liar, &unknown] {
        index.record_pull(answer(vm, claim));
    }
    assert_eq!(found(&index, &victim), []);
    let of_liar = found(&index, &liar);
    for id in [
        findings::DUPLICATE_BOOT_ID,
        findings::DUPLICATE_CLAIMED_UUID,
        findings::IDENTITY_UUID_MISMATCH,
    ] {
        assert!(
            of_liar.contains(&(id.to_owned(), Severity::Critical)),
            "{of_liar:?}"
        );
    }
    // Without a firmware UUID the claim cannot be checked.
    let of_unknown = found(&index, &unknown);
    assert_eq!(of_unknown.len(), 2, "{of_unknown:?}");
    assert!(of_unknown.iter().all(|(_, severity)| *severity == Severity::Info));
}

fn pod(vm: &str, uid: &str, node: &str, address: &str) -> LauncherPod {
    let mut pod = launcher("ns", vm, &[address]);
    pod.name = format!("virt-launcher-{vm}-{node}");
    pod.vmi_uid = Some(uid.parse().unwrap());
    pod.node = Some(node.parse().unwrap());
    pod
}

#[test]
fn the_pod_on_the_vms_node_is_dialled_while_it_migrates() {
    let vm = key("ns", "a");
    let on = |node: &str| {
        let mut vmi = vmi("ns", "a");
        vmi.node = Some(node.parse().unwrap());
        vmi.interfaces[0].addresses_claimed = true;
        Fact::Vmi(Box::new(vmi))
    };
    let mut index = FleetIndex::new(DialRules::default().pods_only());
    let dialled = |index: &FleetIndex| index.dial(&vm).map(|target| target.address.ip().to_string());
    apply(&mut index, [on("n1")]);
    let refusal = dialled(&index).unwrap_err();
    assert!(
        refusal.message().contains("virt-launcher pod"),
        "{}",
        refusal.message()
    );
    let touched = index.apply(InventoryEvent::Apply(Fact::LauncherPod(pod(
        "a", "uid-a", "n1", "10.0.0.7",
    ))));
    assert_eq!(touched, std::slice::from_ref(&vm), "the scraper gets the change");
    assert_eq!(dialled(&index).unwrap(), "10.0.0.7");
    // Pods: without owner, of an earlier incarnation, ended, and the target of the migration.
    let mut ended = pod("a", "uid-a", "n1", "10.0.0.9");
    (ended.name, ended.running, ended.created) = ("ended".into(), false, "2027".into());
    let mut stray = pod("a", "uid-a", "n1", "10.0.0.10");
    (stray.name, stray.vm) = ("stray".into(), None);
    let older = pod("a", "older", "n1", "10.0.0.11");
    let older = LauncherPod {
        name: "older".into(),
        ..older
    };
    let target = pod("a", "uid-a", "n2", "10.0.0.8");
    apply(&mut index, [ended, stray, older, target].map(Fact::LauncherPod));
    assert_eq!(dialled(&index).unwrap(), "10.0.0.7");
    apply(&mut index, [on("n2")]);
    assert_eq!(dialled(&index).unwrap(), "10.0.0.8");
    let gone = FactKey::LauncherPod("ns".parse().unwrap(), "virt-launcher-a-n2".into());
    let touched = index.apply(InventoryEvent::Delete(gone));
    assert_eq!(touched, std::slice::from_ref(&vm));
    dialled(&index).unwrap_err();
}

#[test]
fn a_vm_is_verified_for_the_last_pulls_and_at_its_address_only() {
    let vm = key("ns", "a");
    let mut index = index_of([vmi("ns", "a")]);
    let verified = |index: &FleetIndex| index.snapshot().vms[&vm].agent.verified_ms;
    let pull = |address: &str, class: Option<FailureClass>| {
        let mut pull = answer(&vm, |_| {});
        pull.address = Some(address.parse().unwrap());
        if let Some(class) = class {
            pull.outcome = Err(Failure::new(class, "x"));
        }
        pull
    };
    let here = "10.0.0.1:10911";
    assert_eq!(verified(&index), None);
    index.record_pull(pull(here, None));
    assert_eq!(verified(&index), Some(1));
    for _ in 0..2 {
        index.record_pull(pull(here, Some(FailureClass::Timeout)));
        assert_eq!(verified(&index), Some(1));
    }
    index.record_pull(pull(here, Some(FailureClass::Timeout)));
    assert_eq!(verified(&index), None, "after the third failure");
    // A malformed answer after a valid certificate comes from this VM.
    index.record_pull(pull(here, Some(FailureClass::Malformed)));
    assert_eq!(verified(&index), Some(1));
    index.record_pull(pull(here, Some(FailureClass::WrongVm)));
    assert_eq!(verified(&index), None, "at once");
    index.record_pull(pull("10.0.0.2:10911", None));
    assert_eq!(verified(&index), None, "another address");
}

#[test]
fn reports_over_the_budget_cost_the_largest_of_that_tenant() {
    let names = ["a", "b", "c"];
    let mut index = index_of(names.map(|name| with_uuid(name, None)));
    let size = |words: usize| {
        move |name: &str| {
            answer(&key("ns", name), |report| {
                report.api_version = virtfleet_wire::report::REPORT_API_VERSION.into();
                report.kind = virtfleet_wire::report::REPORT_KIND.into();
                report.agent.features = (0..words).map(|word| format!("{:x}", word * 7919)).collect();
            })
        }
    };
    let bytes = |pull: &PullResult| {
        pull.outcome
            .as_ref()
            .map(|answer| answer.report.kept_bytes())
            .unwrap()
    };
    let (small, large) = (size(10), size(200));
    index.budget = ReportBudget::new(1 << 20, bytes(&large("a")) + bytes(&small("a")) * 2 - 1);
    for pull in [small("a"), small("b")] {
        index.record_pull(pull);
    }
    let whole = |index: &FleetIndex, name: &str| index.detail(&key("ns", name)).unwrap().report.is_some();
    index.record_pull(large("c"));
    assert_eq!(names.map(|name| whole(&index, name)), [true, true, false]);
    assert_eq!(
        found(&index, &key("ns", "c")),
        [(findings::REPORT_CUT.to_owned(), Severity::Warning)]
    );
    assert_eq!(
        index.snapshot().vms[&key("ns", "c")].agent.status,
        crate::view::AgentStatus::Up
    );
    index.record_pull(small("c"));
    assert_eq!(names.map(|name| whole(&index, name)), [true; 3]);
}
