//! Claims of VMs that run: failed reads, standbys, and VMs that wait beside them.

use virtfleet_wire::report::{Section, SectionStatus};

use crate::{
    facts::{Fact, InventoryEvent, Phase, Vm, Vmi},
    findings::CLAIMS_UNREADABLE,
    health::HealthConditionView,
    index::{
        FleetIndex,
        tests::{answer, apply},
    },
    pull_result::PullResult,
    store::tests::{key, vm, vmi},
    volumes::{ClaimState, ClaimVolume, PluggingVolume, ReadAnswer, ReadVolume, ReadVolumes, VolumesToRead},
};

const START_MS: u64 = 1_800_000_000_000;
/// Maximum requests of a round for VMs that wait.
const MAX: usize = 32;

fn claims(number: usize) -> Box<[ClaimVolume]> {
    let claim = |n| ClaimVolume {
        claim: format!("root-{n}").parse().unwrap(),
        is_data_volume: false,
    };
    (0..number).map(claim).collect()
}

fn running(namespace: &str, name: &str, number: usize) -> Vmi {
    Vmi {
        volumes: claims(number),
        // An address that many VMs share costs time.
        interfaces: Vec::new(),
        ..vmi(namespace, name)
    }
}

fn waiting(namespace: &str, name: &str) -> Vm {
    Vm {
        printable_status: Some("WaitingForVolumeBinding".to_owned()),
        volumes: claims(1),
        ..vm(namespace, name)
    }
}

/// A fleet with the VM `ns/a`, which runs with one claim.
fn fleet() -> FleetIndex {
    let mut index = FleetIndex::default();
    index.set_time(String::new(), START_MS);
    apply(&mut index, [Fact::Vmi(Box::new(running("ns", "a", 1)))]);
    index.apply(InventoryEvent::Synced);
    index
}

/// The time goes on, and the agent of `ns/a` answers that all is well.
fn go_on(index: &mut FleetIndex, seconds: u64) {
    let now_ms = START_MS + seconds * 1000;
    index.set_time(String::new(), now_ms);
    let fine = Section {
        status: SectionStatus::Ok,
        ..Section::default()
    };
    let answered = answer(&key("ns", "a"), |report| {
        report.sections.insert("storage".to_owned(), fine);
    });
    index.record_pull(PullResult {
        at: now_ms,
        ..answered
    });
    index.settle();
}

fn disks(index: &FleetIndex) -> HealthConditionView {
    let detail = index.detail(&key("ns", "a")).unwrap();
    let mut conditions = detail.conditions.into_iter();
    conditions.find(|one| one.kind == "DisksReady").unwrap()
}

fn found(phase: &str) -> ReadAnswer<ClaimState> {
    ReadAnswer::Found(ClaimState::new(Some(phase), None, false))
}

fn record(index: &mut FleetIndex, claim: ReadAnswer<ClaimState>) {
    let volume = ReadVolume::new(claims(1)[0].clone(), claim, None);
    let read = ReadVolumes {
        at_ms: 0,
        volumes: [volume].into(),
        manifest: "infra/rbac.yaml",
    };
    index.record_volumes(&key("ns", "a"), read);
}

fn names(asked: &[VolumesToRead]) -> Vec<String> {
    asked.iter().map(|one| one.vm.to_string()).collect()
}

#[test]
fn a_failed_read_does_not_mend_a_claim_that_was_lost() {
    for nothing in [
        ReadAnswer::failed("no answer"),
        ReadAnswer::Denied,
        ReadAnswer::NotServed,
    ] {
        let mut index = fleet();
        go_on(&mut index, 0);
        record(&mut index, found("Lost"));
        for seconds in (30..=420).step_by(30) {
            go_on(&mut index, seconds);
            assert_eq!(
                names(&index.take_volumes_to_read(MAX, true)),
                ["ns/a"],
                "{nothing:?}"
            );
            record(&mut index, nothing.clone());
            if (60..=300).contains(&seconds) {
                assert_eq!(disks(&index).reason, "PvcLost", "{nothing:?} at {seconds} s");
            }
        }
        // Nothing has said for 5 minutes that it is lost, nor that it is not.
        let shown = disks(&index);
        assert_eq!(
            (&*shown.reason, shown.severity.as_str()),
            ("PvcNotRead", "Unknown")
        );
        record(&mut index, found("Bound"));
        go_on(&mut index, 430);
        assert_eq!(disks(&index).reason, "NoDisksDeclared");
        index.take_volumes_to_read(MAX, true);
        assert!(index.store.vms[&key("ns", "a")].volumes.is_none());
    }
}

#[test]
fn a_claim_that_was_lost_is_not_mended_by_silence() {
    let mut index = fleet();
    go_on(&mut index, 0);
    record(&mut index, found("Lost"));
    for seconds in (30..=420).step_by(30) {
        go_on(&mut index, seconds);
    }
    assert_eq!(disks(&index).reason, "PvcNotRead");
}

#[test]
fn a_failed_read_is_repeated_soon() {
    for (answer, after_seconds) in [
        (ReadAnswer::failed("no answer"), 60),
        (ReadAnswer::NotServed, 60),
        (found("Bound"), 600),
        (ReadAnswer::NotFound, 600),
        (ReadAnswer::Denied, 600),
    ] {
        let mut index = fleet();
        go_on(&mut index, 0);
        record(&mut index, answer.clone());
        let mut asked = |seconds: u64| {
            index.set_time(String::new(), START_MS + seconds * 1000);
            index.take_volumes_to_read(MAX, true).len()
        };
        assert_eq!(
            (asked(after_seconds - 1), asked(after_seconds)),
            (0, 1),
            "{answer:?}"
        );
    }
}

/// Whatever is not undecided is in the timeline and on the Node.
#[test]
fn claims_that_were_not_read_leave_nothing_undecided() {
    let mut index = fleet();
    // The use of CPU is known with the second answer.
    go_on(&mut index, 0);
    // A standby, which then leads.
    for (leads, seconds) in [(false, 30), (false, 1200), (true, 1205), (true, 1210)] {
        let asked = index.take_volumes_to_read(MAX, leads);
        assert_eq!(names(&asked), if leads { vec!["ns/a"] } else { vec![] });
        go_on(&mut index, seconds);
        let shown = disks(&index);
        assert_eq!((&*shown.reason, shown.is_undecided), ("NoDisksDeclared", false));
        assert!(!index.detail(&key("ns", "a")).unwrap().vm.health.is_undecided);
    }
    record(&mut index, found("Lost"));
    go_on(&mut index, 1240);
    assert_eq!(disks(&index).reason, "PvcLost");
    // Now another process leads. What was read counts, and is read again.
    assert_eq!(names(&index.take_volumes_to_read(MAX, false)), ["ns/a"]);
    go_on(&mut index, 1245);
    assert_eq!(disks(&index).reason, "PvcLost");
}

#[test]
fn a_missing_right_is_one_finding() {
    let mut index = fleet();
    apply(&mut index, [Fact::Vmi(Box::new(running("team", "b", 1)))]);
    let shown = |index: &mut FleetIndex, leads| {
        index.take_volumes_to_read(MAX, leads);
        let findings = index.snapshot().findings;
        let shown = findings.into_iter().filter(|one| one.id == CLAIMS_UNREADABLE);
        shown.map(|one| (one.message, one.remedy)).collect::<Vec<_>>()
    };
    record(&mut index, ReadAnswer::Denied);
    let found_once = shown(&mut index, true);
    let [(message, remedy)] = found_once.as_slice() else {
        panic!("{found_once:?}");
    };
    assert!(message.contains("in the namespace ns, "), "{message}");
    assert!(remedy.contains("infra/rbac.yaml"), "{remedy}");
    assert!(shown(&mut index, false).is_empty(), "the leader tells of it");
    record(&mut index, ReadAnswer::failed("no answer"));
    assert_eq!(shown(&mut index, true).len(), 1, "that says nothing about rights");
    record(&mut index, found("Bound"));
    assert!(shown(&mut index, true).is_empty());
}

#[test]
fn vms_that_wait_do_not_stop_the_reads_of_others() {
    let mut index = fleet();
    let loud = (0..100).map(|n| Fact::Vm(waiting("loud", &format!("w{n}"))));
    apply(&mut index, loud);
    let asked = names(&index.take_volumes_to_read(MAX, true));
    assert_eq!(asked.len(), MAX + 1);
    assert_eq!(asked.last().unwrap(), "ns/a");
}

#[test]
fn more_claims_are_read_in_a_round_if_there_are_more() {
    for (vms, requests) in [(500, 40), (2000, 96)] {
        let mut index = FleetIndex::default();
        index.set_time(String::new(), START_MS);
        let all = (0..vms).map(|n| Fact::Vmi(Box::new(running("ns", &format!("v{n}"), 8))));
        apply(&mut index, all);
        let asked = index.take_volumes_to_read(MAX, true);
        let sent: usize = asked.iter().map(|one| one.volumes.len()).sum();
        assert_eq!(sent, requests, "{vms} VMs with 8 claims each");
    }
}

fn plugging() -> PluggingVolume {
    PluggingVolume {
        name: "data".into(),
        phase: "AttachedToNode".into(),
        said: None,
        claim: None,
    }
}

#[test]
fn volumes_are_plugged_into_a_vm_only_while_it_runs() {
    let mut index = fleet();
    let mut made = running("ns", "a", 1);
    made.plugging = [plugging()].into();
    apply(&mut index, [Fact::Vmi(Box::new(made.clone()))]);
    assert_eq!(names(&index.take_volumes_to_read(MAX, false)), ["ns/a"]);
    made.phase = Phase::Succeeded;
    apply(&mut index, [Fact::Vmi(Box::new(made))]);
    assert_eq!(index.take_volumes_to_read(MAX, false), []);
}

#[test]
fn a_volume_that_was_being_plugged_in_before_is_undecided() {
    let vmi = |is_plugging: bool| {
        let mut made = vmi("ns", "a");
        made.plugging = Some(plugging()).filter(|_| is_plugging).into_iter().collect();
        Fact::Vmi(Box::new(made))
    };
    let mut index = FleetIndex::default();
    index.set_time(String::new(), START_MS);
    apply(&mut index, [Fact::Vm(vm("ns", "a")), vmi(true)]);
    index.apply(InventoryEvent::Synced);
    go_on(&mut index, 0);
    assert!(
        disks(&index).is_undecided,
        "nothing says for how long it has been so"
    );
    apply(&mut index, [vmi(false)]);
    assert!(!disks(&index).is_undecided);
    apply(&mut index, [vmi(true)]);
    assert!(!disks(&index).is_undecided, "it was not so a moment ago");
    for seconds in (30..=660).step_by(30) {
        go_on(&mut index, seconds);
    }
    assert_eq!(disks(&index).reason, "VolumeNotAttached");
}
