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

#[test]
fn pages_over_a_limit_are_reported_for_their_vm_and_bounded() {
    let target = |number: usize, reason| TargetStatus {
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
        error: Some(TargetError {
            reason,
            message: "line 9: more than 8 samples".to_owned(),
        }),
    };
    let mut targets = vec![target(0, TargetErrorReason::PullFailed)];
    targets.extend((1..200).map(|number| target(number, TargetErrorReason::OverLimit)));
    let found = MlaFindings::default().update(&[], &targets, NOW);
    assert_eq!(found.len(), MAX_PAGE_FINDINGS);
    assert_eq!(found[0].subject.name, "ns/vm-1");
    assert!(found[0].message.ends_with("sent: line 9: more than 8 samples"));
}
