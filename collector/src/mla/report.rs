//! Keeps the fleet's findings about streams of samples current.

use std::{sync::Arc, time::Duration};

use virtfleet_collector_core::{mla::findings::MlaFindings, pull_result::UnixMs};

use super::status::MlaStatus;
use crate::fleet::Fleet;

/// Interval between two evaluations.
const EVALUATION_INTERVAL: Duration = Duration::from_secs(15);

/// Evaluates the statuses from time to time. Returns never.
pub(crate) async fn report(
    status: Arc<MlaStatus>,
    fleet: Arc<Fleet>,
    now: fn() -> UnixMs,
) -> anyhow::Result<()> {
    let mut ticks = tokio::time::interval(EVALUATION_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut findings = MlaFindings::default();
    loop {
        ticks.tick().await;
        let found = findings.update(&status.queues(), status.targets().values(), now());
        fleet.set_mla_findings(found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api::testing, fleet::FleetRead as _};

    #[tokio::test(start_paused = true)]
    async fn the_fleet_shows_the_findings() {
        let rules = virtfleet_collector_core::dial::DialRules::default();
        let fleet = Arc::new(Fleet::new(rules, jiff::Timestamp::now));
        let reporting = report(testing::mla_status(), Arc::clone(&fleet), || testing::NOW);
        tokio::time::timeout(Duration::from_secs(1), reporting)
            .await
            .unwrap_err();
        let snapshot = fleet.snapshot();
        let ids: Vec<&str> = snapshot
            .findings
            .iter()
            .map(|finding| finding.id.as_str())
            .collect();
        assert_eq!(ids, ["mla-page-over-limit", "mla-samples-dropped"]);
    }
}
