//! `GET /api/v1/status`.

use virtfleet_collector_core::{fleet_status::FleetStatus, mla::status::MlaSummary};

use super::{error::ApiError, queues, reply::Reply, router::ApiRequest};

pub(super) fn status(request: &ApiRequest) -> Result<Reply, ApiError> {
    Reply::json(&FleetStatus {
        mla: MlaSummary::of(&queues::visible(request)),
        ..FleetStatus::of(&request.snapshot)
    })
}
