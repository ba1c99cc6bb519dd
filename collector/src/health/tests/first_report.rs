//! The verdict that follows from the first report of a guest.

use virtfleet_collector_core::{
    pull_result::{Answer, MetricsSummary},
    report::KeptReport,
    reported::{ReportedCondition, ReportedConditions, ReportedStatus},
    usage::UsageCounters,
};
use virtfleet_wire::report::{Clock, GuestReport, REPORT_API_VERSION, REPORT_KIND, Section, SectionStatus};

use super::*;

/// An answer whose report lacks DNS, and in which a virtio device has failed.
fn first_answer() -> Answer {
    let now_ms = u64::try_from(running_clock().as_millisecond()).unwrap();
    let ready = Section {
        status: SectionStatus::Ok,
        ..Section::default()
    };
    let failed = Finding::new("virtio-x", Severity::Critical, ("Device", "x"), "R", "m");
    let report = GuestReport {
        api_version: REPORT_API_VERSION.into(),
        kind: REPORT_KIND.into(),
        clock: Clock {
            realtime_ns: now_ms * 1_000_000,
            ..Clock::default()
        },
        sections: [("storage".to_owned(), ready)].into(),
        findings: vec![failed],
        ..GuestReport::default()
    };
    Answer {
        report: Box::new(KeptReport::read(&serde_json::to_vec(&report).unwrap()).unwrap()),
        metrics: MetricsSummary::default(),
        counters: UsageCounters::default(),
        queues: Box::default(),
        took_ms: 10,
        slow: false,
        certificate: None,
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_written_although_another_condition_settles() {
    let fake = Fake::default();
    let (fleet, _stop, _events) = stage_in_time(&fake);
    fleet.apply(InventoryEvent::Delete(FactKey::UserCluster("c".parse().unwrap())));
    let ready = || {
        let ready = ReportedCondition::new("Ready", ReportedStatus::True, None, None);
        ReportedConditions::new([ready])
    };
    let mut running = vmi_of("h1");
    running.conditions = ready();
    fleet.apply(InventoryEvent::Apply(Fact::Vmi(Box::new(running))));
    if let InventoryEvent::Apply(Fact::InfraNode(mut node)) = host("h1") {
        node.conditions = ready();
        fleet.apply(InventoryEvent::Apply(Fact::InfraNode(node)));
    }
    seconds(6).await;
    let reason = || fake.stored.lock().unwrap()[&key()].status().reason.unwrap();
    assert_eq!(reason(), "Waiting");
    fleet.record_pull(PullResult {
        vm: key(),
        at: u64::try_from(running_clock().as_millisecond()).unwrap(),
        address: None,
        pushed: false,
        outcome: Ok(first_answer()),
    });
    seconds(6).await;
    assert_eq!(fake.condition(&key(), "AgentReporting").1, "Up");
    assert_eq!(reason(), "DNSNotReported");
    // What settles is shown once it has lasted for five minutes.
    seconds(280).await;
    assert_eq!(reason(), "DNSNotReported");
}
