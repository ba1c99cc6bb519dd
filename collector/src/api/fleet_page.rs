//! `GET /metrics/fleet`: series about all VMs, infra nodes and user clusters. Prometheus scrapes it
//! with `honor_labels`, because the labels `namespace` and `name` are those of the VM.
//! `docs/metrics.md` lists the families.

use virtfleet_wire::exposition::{MetricType::Gauge, Page};

use super::{error::ApiError, reply::Reply, router::ApiRequest};
use crate::{
    fleet_series,
    labels::{Drift, drift_series},
};

/// Handles `GET /metrics/fleet`.
#[expect(clippy::unnecessary_wraps, reason = "all handlers have the same signature")]
pub(super) fn page(request: &ApiRequest) -> Result<Reply, ApiError> {
    let mut page = Page::new();
    fleet_series::fleet(&mut page, &request.snapshot);
    // Only the leader compares labels; series of a standby would contradict those of the leader.
    if request.snapshot.synced && request.api.write_access.standby().is_none() {
        label_drift(&mut page, request.visible_drift(request.api.labels.drift()));
    }
    Ok(Reply::page(&page))
}

fn label_drift(page: &mut Page, drift: Drift) {
    let mut family = page.family(
        "virtfleet_label_drift",
        "Nodes whose label differs from what a LabelPropagation requests, by user cluster, key and reason.",
        Gauge,
    );
    for (cluster, key, reason, count) in drift_series(drift) {
        let labels = [("cluster", cluster.as_str()), ("key", &key), ("reason", reason)];
        family.sample(&labels, count as f64);
    }
}

#[cfg(test)]
#[path = "fleet_page_tests.rs"]
mod tests;
