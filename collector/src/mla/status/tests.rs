//! Tests of the registry.

use virtfleet_collector_core::mla::status::StreamState;

use super::*;

fn target(name: &str, samples: u64) -> TargetStatus {
    TargetStatus {
        vm: VmKey {
            namespace: "ns".parse().unwrap(),
            name: name.parse().unwrap(),
        },
        cluster: None,
        last_scrape_ms: 1,
        took_ms: 2,
        samples,
        series_added: 0,
        page_bytes: 3,
        dropped_by_relabel: 0,
        unsent: 0,
        error: None,
    }
}

fn queue(sent: u64) -> QueueStatusView {
    QueueStatusView {
        sent_samples: sent,
        sent_bytes: sent * 10,
        ..QueueStatusView::new(StreamName::Fleet, StreamState::Live)
    }
}

#[test]
fn the_last_status_of_each_is_kept_until_it_is_removed() {
    let status = MlaStatus::default();
    assert!(!status.has_streams());
    assert!(status.publish_target(target("a", 1)) && status.publish_target(target("a", 2)));
    assert!(status.publish_target(target("b", 3)) && status.publish_queue(queue(0), 0));
    let samples = |status: &MlaStatus| status.targets().values().map(|one| one.samples).sum::<u64>();
    assert_eq!((samples(&status), status.queues().len()), (5, 1));
    status.remove_target(&target("b", 0).vm);
    assert_eq!(samples(&status), 2);
    status.clear_targets();
    assert_eq!(samples(&status), 0);
    status.remove_queue(&StreamName::Fleet);
    assert!(!status.has_streams());
}

#[test]
fn a_full_registry_accepts_only_known_streams() {
    let status = MlaStatus::default();
    let name = |number: usize| StreamName::Tenant(format!("c{number}").parse().unwrap());
    for number in 0..MAX_STREAMS {
        assert!(status.publish_queue(QueueStatusView::new(name(number), StreamState::Live), 0));
    }
    let publish = |number| status.publish_queue(QueueStatusView::new(name(number), StreamState::Stopped), 1);
    assert!(publish(7) && !publish(MAX_STREAMS));
    assert_eq!(status.queues().len(), MAX_STREAMS);
}

#[test]
fn rates_follow_the_counters_and_forget() {
    let status = MlaStatus::default();
    let rate = |sent, now| {
        assert!(status.publish_queue(queue(sent), now));
        let view = status.queues().remove(0);
        format!("{:.1} {:.1}", view.rate_samples_per_s, view.rate_bytes_per_s)
    };
    // What was sent before the first status has no known interval.
    assert_eq!(rate(5_000, 1_000), "0.0 0.0");
    for second in 1..100 {
        assert_eq!(rate(5_000 + second * 100, 1_000 + second * 1_000), "100.0 1000.0");
    }
    // Same time, and a clock that was set back: no division by zero, no negative rate.
    assert_eq!(rate(15_000, 100_000), "100.0 1000.0");
    assert_eq!(rate(15_000, 50_000), "0.0 0.0");
    assert_eq!(rate(15_060, 51_000), "60.0 600.0");
    // The stream was started again.
    assert_eq!(rate(60, 52_000), "60.0 600.0");
    let minute = rate(60, 52_000 + 60_000);
    assert!(minute != "60.0 600.0" && minute != "0.0 0.0", "{minute}");
    assert_eq!(rate(60, 52_000 + 1_000_000), "0.0 0.0");
}
