//! The story of one VM, from facts and reports over time.

use virtfleet_wire::{
    finding::{Finding, Severity},
    report::{GuestReport, Section, SectionStatus},
};

use super::*;
use crate::{
    dial::DialRules,
    facts::{Fact, InventoryEvent, Migration, Vmi, VmiMove},
    index::FleetIndex,
    pull_result::{Answer, MetricsSummary, PullResult},
    report::KeptReport,
    store::tests::{infra_node, key, vmi},
    story::timeline::Timeline,
    usage::UsageCounters,
};

const START_MS: u64 = 1_700_000_000_000;

/// An index at a time in seconds after the start, with one VM on `a`.
struct Stage(FleetIndex);

impl Stage {
    fn new() -> Self {
        let mut index = FleetIndex::new(DialRules::default());
        index.set_time(String::new(), START_MS);
        index.apply(InventoryEvent::Init);
        for host in ["a", "b"] {
            index.apply(InventoryEvent::Apply(Fact::InfraNode(infra_node(host, "z"))));
        }
        let mut stage = Self(index);
        stage.vmi("x", |vmi| vmi.node = Some("a".parse().unwrap()));
        stage.0.apply(InventoryEvent::Synced);
        stage
    }

    fn at(&mut self, seconds: u64) -> &mut Self {
        self.0.set_time(String::new(), START_MS + seconds * 1000);
        self.0.settle();
        self
    }

    fn vmi(&mut self, name: &str, change: impl FnOnce(&mut Vmi)) -> &mut Self {
        let mut fact = vmi("ns", name);
        change(&mut fact);
        self.0.apply(InventoryEvent::Apply(Fact::Vmi(Box::new(fact))));
        self
    }

    /// A report at a time in seconds, with events of the clocks: kind, length, age in seconds.
    fn report(&mut self, seconds: u64, boot: &str, events: &[(&str, f64, u64)]) -> &mut Self {
        self.at(seconds);
        let pull = answer(seconds, |report| {
            report.boot_id = boot.to_owned();
            report.clock.boottime_ns = (seconds + 1000) * 1_000_000_000;
            let items = events.iter().map(|(kind, length, age)| {
                serde_json::json!({
                    "kind": kind, "lengthSeconds": length, "resolutionSeconds": 2.0, "ageMs": age * 1000,
                })
            });
            let watch = serde_json::json!({ "kind": "watch", "source": "rtc" });
            let section = Section {
                status: SectionStatus::Ok,
                items: std::iter::once(watch).chain(items).collect(),
                ..Section::default()
            };
            report.sections.insert("clock".to_owned(), section);
        });
        assert!(self.0.record_pull(pull));
        self
    }

    fn story(&self) -> StoryView {
        self.0.story(&key("ns", "x")).unwrap()
    }

    /// Seconds after the start, and texts, of one kind.
    fn texts(&self, kind: TimelineKind) -> Vec<(i64, String)> {
        let story = self.story();
        let of_kind = story.timeline.into_iter().filter(|entry| entry.kind == kind);
        of_kind
            .map(|entry| {
                let at = i64::try_from(entry.at_ms).unwrap() - i64::try_from(START_MS).unwrap();
                (at / 1000, entry.text)
            })
            .collect()
    }
}

/// An answer of the agent of `x`, so many seconds after the start.
fn answer(seconds: u64, change: impl FnOnce(&mut GuestReport)) -> PullResult {
    let mut report = GuestReport::default();
    change(&mut report);
    PullResult {
        vm: key("ns", "x"),
        at: START_MS + seconds * 1000,
        address: None,
        pushed: false,
        outcome: Ok(Answer {
            report: Box::new(KeptReport::of(&report)),
            metrics: MetricsSummary::default(),
            counters: UsageCounters::default(),
            queues: Box::default(),
            took_ms: 3,
            slow: false,
            certificate: None,
        }),
    }
}

/// A migration from `a` to `b`, times in seconds after the start.
fn migration(start: u64, end: Option<u64>, failed: Option<&str>) -> Migration {
    let time = |seconds: u64| START_MS + seconds * 1000;
    Migration {
        source: Some("a".parse().unwrap()),
        target: Some("b".parse().unwrap()),
        completed: end.is_some(),
        failed: failed.is_some(),
        start: Some(format!("s{start}")),
        end: end.map(|end| format!("s{end}")),
        mode: Some("PreCopy".into()),
        failure_reason: failed.map(str::to_owned),
        uid: None,
        start_ms: Some(time(start)),
        end_ms: end.map(time),
    }
}

fn on(node: &str, address: Option<&str>, migration: Migration) -> impl FnOnce(&mut Vmi) {
    let node = node.parse().unwrap();
    let addresses = address
        .map(|address| address.parse().unwrap())
        .into_iter()
        .collect();
    move |vmi| {
        vmi.node = Some(node);
        vmi.migration = Some(migration);
        vmi.interfaces[0].addresses = addresses;
    }
}

#[test]
fn a_migration_is_told_with_what_the_guest_felt() {
    let mut stage = Stage::new();
    stage.report(0, "boot-1", &[]);
    stage
        .at(60)
        .vmi("x", on("a", Some("10.0.0.1"), migration(60, None, None)));
    let ended = migration(60, Some(102), None);
    stage.at(102).vmi("x", on("b", Some("10.0.0.1"), ended.clone()));
    stage.report(120, "boot-1", &[("pause", 7.0, 3), ("step", 6.9, 3)]);
    // The same events in the next report are no new ones.
    stage.report(150, "boot-1", &[("pause", 7.0, 33), ("step", 6.9, 33)]);
    assert_eq!(
        stage.texts(TimelineKind::Migration),
        [
            (60, "a live migration from a to b begins".to_owned()),
            (
                102,
                "the live migration from a to b ended after 42 s, PreCopy".to_owned()
            ),
        ]
    );
    assert_eq!(
        stage.texts(TimelineKind::Pause),
        [(
            117,
            "the guest was paused for 7 s (± 2 s), in the live migration from a to b".to_owned()
        )]
    );
    assert_eq!(
        stage.texts(TimelineKind::Placement),
        [(102, "the VM runs on b, was on a".to_owned())]
    );
    let migrations = stage.story().migrations;
    assert_eq!(migrations.len(), 1);
    assert_eq!(migrations[0].duration_ms, Some(42_000));
    let felt = migrations[0].felt.clone().unwrap();
    assert!(felt.is_reported && felt.detects_pauses && !felt.is_restarted);
    assert_eq!((felt.pause_ms, felt.clock_step_ms), (Some(7_000), Some(6_900)));
    assert_eq!(felt.address, AddressFate::Kept);
}

#[test]
fn an_address_that_is_lost_and_a_restart_are_told() {
    let mut stage = Stage::new();
    stage.report(0, "boot-1", &[]);
    stage
        .at(60)
        .vmi("x", on("a", Some("10.0.0.1"), migration(60, None, None)));
    stage
        .at(90)
        .vmi("x", on("b", None, migration(60, Some(90), None)));
    stage.report(120, "boot-2", &[]);
    let felt = stage.story().migrations[0].felt.clone().unwrap();
    assert_eq!((felt.address, felt.is_restarted), (AddressFate::Lost, true));
    assert_eq!(
        stage.texts(TimelineKind::Address),
        [(
            90,
            "the VM has lost its address 10.0.0.1 after the live migration from a to b".to_owned()
        )]
    );
    let restarts = stage.texts(TimelineKind::Restart);
    assert!(
        restarts[0].1.contains("soon after the live migration"),
        "{restarts:?}"
    );
    // Long after it, a restart has another reason.
    stage.report(1000, "boot-3", &[]);
    let restarts = stage.texts(TimelineKind::Restart);
    assert_eq!(
        restarts[1].1,
        "the guest has booted again: it reports another boot id"
    );
}

#[test]
fn a_failed_migration_names_its_reason_and_explains_no_later_pause() {
    let mut stage = Stage::new();
    stage
        .at(10)
        .vmi("x", on("a", Some("10.0.0.1"), migration(10, None, None)));
    let failed = migration(10, Some(40), Some("no room on the target"));
    stage.at(40).vmi("x", on("a", Some("10.0.0.1"), failed));
    let texts = stage.texts(TimelineKind::Migration);
    assert_eq!(
        texts[1].1,
        "the live migration from a to b failed after 30 s: no room on the target"
    );
    stage.report(2000, "boot-1", &[("pause", 9.0, 1)]);
    assert_eq!(
        stage.texts(TimelineKind::Pause)[0].1,
        "the guest was paused for 9 s (± 2 s)"
    );
    assert_eq!(stage.story().migrations[0].felt.as_ref().unwrap().pause_ms, None);
}

#[test]
fn after_a_restart_of_the_collector_kubevirt_and_the_guest_tell_the_past() {
    let mut stage = Stage::new();
    stage
        .at(1000)
        .vmi("x", on("b", Some("10.0.0.1"), migration(60, Some(102), None)));
    stage.report(1030, "boot-1", &[("pause", 7.0, 910)]);
    assert_eq!(stage.texts(TimelineKind::Migration).len(), 2);
    assert_eq!(stage.texts(TimelineKind::Pause)[0].0, 120);
    let felt = stage.story().migrations[0].felt.clone().unwrap();
    assert_eq!(felt.pause_ms, Some(7_000));
    assert_eq!(
        felt.address,
        AddressFate::Unknown,
        "the address before is not known"
    );
}

#[test]
fn objects_of_migrations_are_joined_with_what_was_observed() {
    let mut stage = Stage::new();
    stage
        .at(60)
        .vmi("x", on("a", Some("10.0.0.1"), migration(60, None, None)));
    for (name, phase, state) in [
        ("m1", "Running", Some(migration(60, None, None))),
        ("m2", "Pending", None),
        ("m0", "Succeeded", Some(migration(5, Some(9), None))),
    ] {
        stage.0.apply(InventoryEvent::Apply(Fact::VmiMove(VmiMove {
            phase: Some(phase.into()),
            created_ms: Some(START_MS + 70_000),
            state: state.map(Box::new),
            ..VmiMove::new(name, key("ns", "x"))
        })));
    }
    let migrations = stage.story().migrations;
    let shown: Vec<_> = migrations
        .iter()
        .map(|one| (one.object.as_deref(), one.phase.as_str()))
        .collect();
    assert_eq!(
        shown,
        [
            (Some("m0"), "succeeded"),
            (Some("m1"), "running"),
            (Some("m2"), "pending")
        ]
    );
    assert!(migrations[1].felt.is_some() && migrations[0].felt.is_none());
}

#[test]
fn a_vm_that_migrates_again_and_again_has_a_finding_for_an_hour() {
    let mut stage = Stage::new();
    for round in 0..3 {
        let begin = 100 + round * 300;
        stage
            .at(begin + 30)
            .vmi("x", on("b", None, migration(begin, Some(begin + 30), None)));
        let found = stage.0.findings(&key("ns", "x"));
        let has = found
            .iter()
            .any(|one| one.id == crate::findings::MIGRATION_REPEATS);
        assert_eq!(has, round == 2, "{found:?}");
    }
    stage.at(100 + 3600);
    let found = stage.0.findings(&key("ns", "x"));
    assert!(
        found
            .iter()
            .all(|one| one.id != crate::findings::MIGRATION_REPEATS)
    );
}

#[test]
fn migrations_that_never_start_count_as_failed() {
    let mut stage = Stage::new();
    stage.at(60).vmi("x", |vmi| vmi.node = Some("a".parse().unwrap()));
    let put = |stage: &mut Stage, name: &str, phase: &str, created: u64| {
        stage.0.apply(InventoryEvent::Apply(Fact::VmiMove(VmiMove {
            uid: Some(format!("uid-{name}").parse().unwrap()),
            phase: Some(phase.into()),
            created_ms: Some(START_MS + created * 1000),
            ..VmiMove::new(name, key("ns", "x"))
        })));
    };
    let count = |stage: &Stage| stage.0.failed_migrations(&key("ns", "x"));
    for (name, created) in [("m1", 100), ("m2", 200), ("m3", 300)] {
        put(&mut stage, name, "Pending", created);
    }
    let repeats = |stage: &Stage| {
        let found = stage.0.findings(&key("ns", "x"));
        found
            .into_iter()
            .find(|one| one.id == crate::findings::MIGRATION_REPEATS)
    };
    assert_eq!((count(&stage), repeats(&stage)), (0, None), "they wait");
    for (name, created) in [("m1", 100), ("m2", 200), ("m3", 300)] {
        put(&mut stage, name, "Failed", created);
    }
    assert_eq!(count(&stage), 3);
    assert_eq!(repeats(&stage).unwrap().evidence["failed"], "3");
    // KubeVirt also says it of the last one in the VMI: the same migration.
    let mut last = migration(310, Some(320), Some("no room"));
    last.uid = Some("uid-m3".parse().unwrap());
    stage.at(330).vmi("x", on("a", None, last));
    assert_eq!(count(&stage), 3);
    put(&mut stage, "m4", "Succeeded", 400);
    assert_eq!(count(&stage), 0, "since the last one that succeeded");
    put(&mut stage, "m5", "Failed", 500);
    assert_eq!(count(&stage), 1);
    stage.at(100 + 2 * 3600);
    assert_eq!(count(&stage), 0);
}

#[test]
fn many_vms_that_leave_a_host_are_a_storm_until_it_is_over() {
    let mut stage = Stage::new();
    let storm = |stage: &Stage| {
        let found = stage.0.snapshot().findings.into_iter();
        found
            .filter(|one| one.id == crate::findings::MIGRATION_STORM)
            .collect::<Vec<_>>()
    };
    for number in 0..STORM_HOST_VMS {
        assert!(storm(stage.at(60)).is_empty());
        stage.vmi(&format!("w{number}"), on("a", None, migration(60, None, None)));
    }
    stage.at(65);
    let found = storm(&stage);
    assert_eq!(found.len(), 2, "one for each host: {found:?}");
    assert_eq!(found[0].message, "10 VMs leave a within 10 minutes");
    assert_eq!(
        (found[0].severity, found[1].subject.name.as_str()),
        (Severity::Warning, "b")
    );
    // The same migrations again are no new ones.
    let mut node = infra_node("a", "z");
    node.unschedulable = true;
    stage.0.apply(InventoryEvent::Apply(Fact::InfraNode(node)));
    stage.at(70);
    let found = storm(&stage);
    assert_eq!(found[0].severity, Severity::Info, "a drain: {found:?}");
    assert!(storm(stage.at(60 + STORM_INTERVAL_MS / 1000 + 1)).is_empty());
}

#[test]
fn a_timeline_is_bounded_and_no_kind_displaces_the_others() {
    let mut timeline = Timeline::default();
    timeline.add(TimelineEntry::new(1, TimelineKind::Verdict, "Critical"));
    for at in 0..10_000 {
        timeline.add(TimelineEntry::new(
            at,
            TimelineKind::Finding,
            format!("{at}{}", "x".repeat(500)),
        ));
        assert!(timeline.entries().len() <= MAX_ENTRIES && timeline.bytes() <= MAX_TIMELINE_BYTES);
    }
    assert!(
        timeline
            .entries()
            .iter()
            .any(|entry| entry.kind == TimelineKind::Verdict)
    );
    let last = timeline.entries().last().unwrap();
    assert!(last.text.starts_with("9999") && last.text.len() <= 240);
}

#[test]
fn verdicts_and_findings_that_change_are_told() {
    let mut stage = Stage::new();
    let report = |stage: &mut Stage, seconds: u64, findings: Vec<Finding>| {
        stage.at(seconds);
        let pull = answer(seconds, |report| report.findings = findings);
        assert!(stage.0.record_pull(pull));
    };
    let broken = |id: &str| Finding::new(id, Severity::Critical, ("Disk", "data"), "R", "it\u{1b}[2J hangs");
    report(&mut stage, 30, Vec::new());
    report(
        &mut stage,
        60,
        vec![broken("disk-not-answering"), broken("guest-paused")],
    );
    stage.at(200);
    report(&mut stage, 230, Vec::new());
    assert_eq!(
        stage.texts(TimelineKind::Finding),
        [
            (60, "disk-not-answering: it\\u{1b}[2J hangs".to_owned()),
            (230, "disk-not-answering is gone".to_owned())
        ]
    );
    let verdicts = stage.texts(TimelineKind::Verdict);
    assert!(
        verdicts
            .iter()
            .any(|(_, text)| text.starts_with("Critical (guest, DiskFailing)")),
        "{verdicts:?}"
    );
}
