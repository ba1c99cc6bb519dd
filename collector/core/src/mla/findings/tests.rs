//! Tests of the findings.

use virtfleet_wire::ids::VmKey;

use super::*;
use crate::mla::status::{StreamError, TargetError};

const MINUTE: u64 = 60_000;
const NOW: u64 = 1_000 * MINUTE;

fn stream(bytes: u64, oldest: Option<u64>) -> QueueStatusView {
    QueueStatusView {
        bytes,
        limit_bytes: 1_000,
        oldest_ms: oldest,
        last_success_ms: Some(NOW),
        ..QueueStatusView::new(StreamName::Tenant("blue".parse().unwrap()), StreamState::Live)
    }
}

fn ids(found: &[Finding]) -> Vec<&str> {
    found.iter().map(|finding| finding.id.as_str()).collect()
}

#[test]
fn a_queue_is_reported_while_it_grows_and_not_while_it_drains() {
    let mut watch = MlaFindings::default();
    let mut at = |minute: u64, bytes, oldest: Option<u64>| {
        let queue = stream(bytes, oldest.map(|minute| NOW + minute * MINUTE));
        let found = watch.update(&[queue], [], NOW + minute * MINUTE);
        ids(&found).join(",")
    };
    assert_eq!(at(0, 10, Some(0)), "");
    assert_eq!(at(4, 100, Some(0)), "", "a short outage");
    assert_eq!(at(6, 200, Some(0)), MLA_QUEUE_GROWING);
    assert_eq!(
        at(8, 190, Some(0)),
        MLA_QUEUE_GROWING,
        "one smaller size is no trend"
    );
    assert_eq!(at(11, 300, Some(0)), MLA_QUEUE_GROWING);
    assert_eq!(
        at(16, 300, Some(5)),
        MLA_QUEUE_GROWING,
        "full: neither larger nor smaller"
    );
    assert_eq!(at(21, 200, Some(7)), "", "it drains");
    assert_eq!(at(26, 250, Some(7)), MLA_QUEUE_GROWING);
    assert_eq!(at(27, 5, Some(26)), "", "only new samples");
    // A clock that was set back compares with a new size.
    assert_eq!(at(1, 500, Some(0)), "");
    assert_eq!(at(6, 600, Some(0)), MLA_QUEUE_GROWING);
    assert_eq!(at(7, 0, None), "");
}

#[test]
fn losses_are_reported_for_a_while() {
    let mut watch = MlaFindings::default();
    let mut at = |minute: u64, dropped, refused| {
        let mut queue = stream(0, None);
        queue.dropped.add(DropReason::TooOld, dropped);
        queue.refused.add(RefusalReason::BadRequest, refused);
        watch.update(&[queue], [], NOW + minute * MINUTE)
    };
    assert_eq!(at(0, 0, 0), []);
    let found = at(1, 5, 0);
    assert_eq!(ids(&found), [MLA_SAMPLES_DROPPED]);
    assert_eq!(found[0].evidence["reasons"], "too_old");
    assert_eq!(found[0].evidence["cluster"], "blue");
    assert_eq!(ids(&at(2, 5, 7)), [MLA_ENDPOINT_REFUSES, MLA_SAMPLES_DROPPED]);
    assert_eq!(ids(&at(16, 5, 7)), [MLA_ENDPOINT_REFUSES]);
    assert_eq!(at(17, 5, 7), []);
    assert_eq!(at(18, 0, 0), [], "the stream was started again");
    assert_eq!(ids(&at(19, 1, 0)), [MLA_SAMPLES_DROPPED]);
}

#[test]
fn an_endpoint_must_fail_for_a_while() {
    let mut watch = MlaFindings::default();
    let mut at = |minute: u64, state, failed: bool| {
        let mut queue = QueueStatusView {
            state,
            ..stream(0, None)
        };
        queue.last_error = failed.then(|| StreamError {
            at_ms: NOW + 1,
            message: "gw:443 refused the connection".to_owned(),
            status: Some(400),
        });
        watch.update(&[queue], [], NOW + minute * MINUTE)
    };
    assert_eq!(at(0, StreamState::Retrying, true), []);
    assert_eq!(at(1, StreamState::Live, false), []);
    assert_eq!(at(2, StreamState::Retrying, true), []);
    let found = at(4, StreamState::Retrying, true);
    assert_eq!(ids(&found), [MLA_ENDPOINT_UNREACHABLE]);
    assert!(found[0].message.ends_with("fail: gw:443 refused the connection"));
    let found = at(5, StreamState::Refused, true);
    assert_eq!(ids(&found), [MLA_ENDPOINT_REFUSES], "one cause, one finding");
    assert!(
        found[0]
            .message
            .ends_with("it answers: gw:443 refused the connection")
    );
    assert_eq!(at(6, StreamState::Live, false), []);
    assert_eq!(at(7, StreamState::NotConfigured, true), []);
}

#[test]
fn a_finding_of_the_operators_stream_has_no_cluster() {
    let mut queue = QueueStatusView {
        stream: StreamName::Fleet,
        ..stream(0, None)
    };
    queue.dropped.add(DropReason::Corrupt, 1);
    let found = MlaFindings::default().update(&[queue], [], NOW);
    assert_eq!(
        (found[0].subject.kind.as_str(), found[0].subject.name.as_str()),
        ("Stream", "fleet")
    );
    assert!(!found[0].evidence.contains_key("cluster"));
}

fn target(number: usize, error: Option<TargetErrorReason>) -> TargetStatus {
    TargetStatus {
        vm: VmKey {
            namespace: "ns".parse().unwrap(),
            name: format!("vm-{number}").parse().unwrap(),
        },
        cluster: Some("blue".parse().unwrap()),
        last_scrape_ms: NOW,
        took_ms: 1,
        samples: 0,
        series_added: 0,
        page_bytes: 1,
        dropped_by_relabel: 0,
        unsent: 0,
        error: error.map(|reason| TargetError {
            reason,
            message: "line 9: more than 8 samples".to_owned(),
        }),
    }
}

#[test]
fn pages_over_a_limit_are_reported_for_their_vm_and_bounded() {
    let mut targets = vec![target(0, Some(TargetErrorReason::PullFailed))];
    targets.extend((1..200).map(|number| target(number, Some(TargetErrorReason::OverLimit))));
    targets.push(TargetStatus {
        cluster: Some("red".parse().unwrap()),
        ..target(200, Some(TargetErrorReason::OverLimit))
    });
    let found = MlaFindings::default().update(&[], &targets, NOW);
    assert_eq!(found.len(), MAX_PAGE_FINDINGS + 1);
    let is_other = |one: &Finding| one.subject.name == "ns/vm-200";
    assert!(found.iter().any(is_other), "a tenant does not hide another's");
    assert_eq!(found[0].subject.name, "ns/vm-1");
    assert!(found[0].message.ends_with("sent: line 9: more than 8 samples"));
}

#[test]
fn what_a_page_causes_is_reported_for_its_vm_and_not_for_the_stream() {
    let mut queue = stream(0, None);
    for reason in [DropReason::Limit, DropReason::NotLater, DropReason::Collided] {
        queue.dropped.add(reason, 5);
    }
    let (mut page, other) = (target(1, None), target(2, None));
    page.unsent = 5;
    let pages = [&page, &other];
    let found = MlaFindings::default().update(std::slice::from_ref(&queue), pages, NOW);
    assert_eq!(ids(&found), [MLA_PAGE_OVER_LIMIT]);
    assert_eq!(
        (found[0].reason.as_str(), found[0].subject.name.as_str()),
        ("SamplesNotSent", "ns/vm-1")
    );
    queue.dropped.add(DropReason::Corrupt, 1);
    let found = MlaFindings::default().update(&[queue], [], NOW);
    assert_eq!(ids(&found), [MLA_SAMPLES_DROPPED]);
    assert_eq!(found[0].evidence["reasons"], "corrupt");
}

#[test]
fn what_becomes_of_samples_follows_what_has_lasted() {
    let mut watch = MlaFindings::default();
    let mut at = |minute: u64, state, is_failing: bool, (full, problem): (u64, Option<&str>)| {
        let mut queue = QueueStatusView {
            state,
            problem: problem.map(str::to_owned),
            ..stream(0, Some(NOW))
        };
        queue.last_error = is_failing.then(|| StreamError {
            at_ms: NOW + 1,
            message: "gw:443 refused the connection".to_owned(),
            status: None,
        });
        queue.dropped.add(DropReason::QueueFull, full);
        watch.update(&[queue], [], NOW + minute * MINUTE);
        watch.deliveries().values().copied().collect::<Vec<_>>()
    };
    let (state, delivery) = (StreamState::Live, StreamDelivery::Delivered);
    assert_eq!(at(0, state, false, (0, None)), [delivery]);
    assert_eq!(at(1, StreamState::Retrying, true, (0, None)), [delivery]);
    assert_eq!(
        at(3, StreamState::Retrying, true, (0, None)),
        [StreamDelivery::Unreachable]
    );
    // The oldest sample in the queue is from minute 0.
    let behind = StreamState::CatchingUp;
    assert_eq!(at(4, behind, false, (0, None)), [delivery]);
    assert_eq!(at(5, behind, false, (0, None)), [StreamDelivery::Late]);
    assert_eq!(at(6, state, false, (3, None)), [StreamDelivery::QueueFull]);
    assert_eq!(at(20, state, false, (3, None)), [StreamDelivery::QueueFull]);
    assert_eq!(at(21, state, false, (3, None)), [delivery]);
    assert_eq!(
        at(22, StreamState::Refused, true, (3, None)),
        [StreamDelivery::Refused]
    );
    let stopped = StreamState::Stopped;
    assert_eq!(at(23, stopped, false, (3, None)), [StreamDelivery::Suspended]);
    assert_eq!(
        at(24, stopped, false, (3, Some("no space"))),
        [StreamDelivery::Stopped]
    );
    assert_eq!(
        at(25, StreamState::NotConfigured, false, (3, None)),
        [StreamDelivery::NoReceiver]
    );
}

#[test]
fn a_receiver_that_has_never_answered_is_not_known_to_accept_samples() {
    for state in [StreamState::Live, StreamState::CatchingUp, StreamState::Retrying] {
        let mut watch = MlaFindings::default();
        let queue = QueueStatusView {
            state,
            last_success_ms: None,
            ..stream(0, None)
        };
        watch.update(&[queue], [], NOW);
        let found: Vec<_> = watch.deliveries().values().collect();
        assert_eq!(found, [&StreamDelivery::Untried], "{state:?}");
    }
}
