//! Keeps current what the fleet knows of streams of samples: findings, and whether the metrics of
//! each VM are delivered.

use std::{sync::Arc, time::Duration};

use virtfleet_collector_core::{
    mla::{
        delivery::{DeliveryWatch, MetricsDelivery},
        findings::MlaFindings,
    },
    pull_result::UnixMs,
};

use super::status::MlaStatus;
use crate::{fleet::Fleet, leader::WriteAccess};

/// Interval between two evaluations.
const EVALUATION_INTERVAL: Duration = Duration::from_secs(15);

/// Evaluates the statuses from time to time. Returns never. `feeding` says whether this process
/// feeds the streams.
pub(crate) async fn report(
    status: Arc<MlaStatus>,
    fleet: Arc<Fleet>,
    feeding: WriteAccess,
    now: fn() -> UnixMs,
) -> anyhow::Result<()> {
    let mut ticks = tokio::time::interval(EVALUATION_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut findings = MlaFindings::default();
    let mut delivery = DeliveryWatch::default();
    loop {
        ticks.tick().await;
        let (targets, now) = (status.targets(), now());
        let found = findings.update(&status.queues(), targets.values(), now);
        fleet.change(|index| index.set_mla_findings(found));
        let known = delivery.update(findings.deliveries(), &targets, now);
        // A standby only sends its backlog: it does not know which pages the leader reads.
        let delivered = if feeding.leads() {
            known
        } else {
            MetricsDelivery::default()
        };
        fleet.change(|index| index.set_metrics_delivery(delivered));
    }
}

#[cfg(test)]
mod tests {
    use virtfleet_collector_core::mla::status::{QueueStatusView, StreamName, StreamState};

    use super::*;
    use crate::{access::two_tenants, api::testing, fleet::FleetRead as _};

    async fn report_once(status: Arc<MlaStatus>, fleet: &Arc<Fleet>, leads: bool) {
        let feeding = WriteAccess::fixed(leads);
        let reporting = report(status, Arc::clone(fleet), feeding, || testing::NOW);
        tokio::time::timeout(Duration::from_secs(1), reporting)
            .await
            .unwrap_err();
    }

    #[tokio::test(start_paused = true)]
    async fn a_standby_does_not_say_whether_metrics_are_delivered() {
        for leads in [true, false] {
            let fleet = two_tenants::fleet(false);
            let status = MlaStatus::default();
            let stream = StreamName::Tenant("uc-alpha".parse().unwrap());
            status.publish_queue(QueueStatusView::new(stream, StreamState::Live), testing::NOW);
            report_once(Arc::new(status), &fleet, leads).await;
            let detail = fleet.detail(&testing::key("ns-alpha", "vm-alpha-1")).unwrap();
            let mut conditions = detail.conditions.iter();
            let is_shown = conditions.any(|one| one.kind == "MetricsDelivered");
            assert_eq!(is_shown, leads);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_fleet_shows_the_findings() {
        let rules = virtfleet_collector_core::dial::DialRules::default();
        let fleet = Arc::new(Fleet::new(rules, jiff::Timestamp::now));
        report_once(testing::mla_status(), &fleet, true).await;
        let snapshot = fleet.snapshot();
        let ids: Vec<&str> = snapshot
            .findings
            .iter()
            .map(|finding| finding.id.as_str())
            .collect();
        assert_eq!(ids, ["mla-page-over-limit", "mla-samples-dropped"]);
    }
}
