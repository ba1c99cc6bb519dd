//! `GET /api/v1/status`.

use virtfleet_collector_core::{fleet_status::FleetStatus, mla::status::MlaSummary};
use virtfleet_wire::ids::VmKey;

use super::{error::ApiError, queues, reply::Reply, router::ApiRequest};
use crate::labels::summary;

pub(super) fn status(request: &ApiRequest) -> Result<Reply, ApiError> {
    let labels = request.api.labels.all();
    // What a standby has compared as the leader is outdated, also while the Lease is free.
    let is_standby = request.api.write_access.standby().is_some();
    let is_visible = |key: &VmKey| !is_standby && request.snapshot.vms.contains_key(key);
    let visible = labels.iter().filter(|(key, _)| is_visible(key));
    Reply::json(&FleetStatus {
        labels: summary(visible.map(|(_, status)| &**status), request.tenant.is_none()),
        mla: MlaSummary::of(&queues::visible(request)),
        ..FleetStatus::of(&request.snapshot)
    })
}
