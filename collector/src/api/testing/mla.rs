//! Streams of samples for tests: the operator's is live, prod's endpoint is down.

use std::{fmt::Debug, str::FromStr, sync::Arc};

use virtfleet_collector_core::mla::status::{
    DroppedSamples, QueueStatusView, StreamCompression, StreamError, StreamName, StreamProtocol, StreamState,
    TargetError, TargetErrorReason, TargetStatus,
};
use virtfleet_wire::ids::VmKey;

use crate::mla::status::MlaStatus;

fn id<T: FromStr<Err: Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

fn key(namespace: &str, name: &str) -> VmKey {
    VmKey {
        namespace: id(namespace),
        name: id(name),
    }
}

/// A registry with two streams and the pages of two VMs.
pub(super) fn status(now: u64) -> Arc<MlaStatus> {
    let status = MlaStatus::default();
    let page = |name: &str, error| TargetStatus {
        vm: key("cluster-a", name),
        cluster: Some(id("prod")),
        last_scrape_ms: now - 7_000,
        took_ms: 14,
        samples: 812,
        series_added: 3,
        page_bytes: 51_200,
        dropped_by_relabel: 12,
        unsent: 0,
        error,
    };
    status.publish_target(page("worker-0", None));
    let over = TargetError {
        reason: TargetErrorReason::OverLimit,
        message: "line 813: more than 812 samples".to_owned(),
    };
    status.publish_target(page("worker-2", Some(over)));
    for (view, before) in [fleet(now), tenant(now)] {
        status.publish_queue(before, now - 60_000);
        status.publish_queue(view, now);
    }
    Arc::new(status)
}

/// A status with what was sent 60 s before.
fn with_rate(view: QueueStatusView, per_second: u64) -> (QueueStatusView, QueueStatusView) {
    let before = QueueStatusView {
        sent_samples: view.sent_samples - 60 * per_second,
        sent_bytes: view.sent_bytes - 600 * per_second,
        ..view.clone()
    };
    (view, before)
}

fn fleet(now: u64) -> (QueueStatusView, QueueStatusView) {
    let view = QueueStatusView {
        endpoint: Some("mimir.example:443".to_owned()),
        protocol: Some(StreamProtocol::V2),
        compression: Some(StreamCompression::Zstd),
        limit_bytes: 1 << 30,
        scraped_samples: 90_100,
        accepted_samples: 90_000,
        sent_samples: 90_000,
        sent_bytes: 900_000,
        last_success_ms: Some(now - 1_000),
        ..QueueStatusView::new(StreamName::Fleet, StreamState::Live)
    };
    with_rate(view, 160)
}

fn tenant(now: u64) -> (QueueStatusView, QueueStatusView) {
    let view = QueueStatusView {
        endpoint: Some("gateway.infra-1.example:8080".to_owned()),
        protocol: Some(StreamProtocol::V1),
        compression: Some(StreamCompression::Snappy),
        records: 40,
        samples: 60_000,
        bytes: 3 << 20,
        limit_bytes: 4 << 20,
        oldest_ms: Some(now - 400_000),
        scraped_samples: 90_000,
        accepted_samples: 85_000,
        sent_samples: 20_000,
        sent_bytes: 200_000,
        dropped: DroppedSamples {
            queue_full: 5_000,
            ..DroppedSamples::default()
        },
        last_success_ms: Some(now - 410_000),
        last_error: Some(StreamError {
            at_ms: now - 3_000,
            message: "gateway.infra-1.example:8080 refused the connection".to_owned(),
            status: None,
        }),
        ..QueueStatusView::new(StreamName::Tenant(id("prod")), StreamState::Retrying)
    };
    with_rate(view, 0)
}

/// One stream and one page for each tenant of `access::two_tenants`, with texts that name them, and
/// the operator's stream.
pub(super) fn of_tenants(now: u64) -> Arc<MlaStatus> {
    let status = MlaStatus::default();
    for (cluster, namespace, vm) in [
        ("uc-alpha", "ns-alpha", "vm-alpha-1"),
        ("uc-beta", "ns-beta", "vm-beta-1"),
    ] {
        let message = format!("{namespace}/{vm} on hx-beta-only");
        let error = |reason| TargetError {
            reason,
            message: message.clone(),
        };
        status.publish_target(TargetStatus {
            vm: key(namespace, vm),
            cluster: Some(id(cluster)),
            last_scrape_ms: now,
            took_ms: 1,
            samples: 2,
            series_added: 0,
            page_bytes: 3,
            dropped_by_relabel: 0,
            unsent: 0,
            error: Some(error(TargetErrorReason::PullFailed)),
        });
        let view = QueueStatusView {
            endpoint: Some(format!("gw.{cluster}.example:443")),
            last_error: Some(StreamError {
                at_ms: now,
                message: format!("gw.{cluster}.example:443 refused the connection"),
                status: None,
            }),
            ..QueueStatusView::new(StreamName::Tenant(id(cluster)), StreamState::Retrying)
        };
        status.publish_queue(view, now);
    }
    let fleet = QueueStatusView {
        problem: Some("uc-beta is down, node-uid-vm-beta-1".to_owned()),
        ..QueueStatusView::new(StreamName::Fleet, StreamState::Stopped)
    };
    status.publish_queue(fleet, now);
    Arc::new(status)
}
