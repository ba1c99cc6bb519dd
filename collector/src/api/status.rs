//! `GET /api/v1/status`.

use virtfleet_collector_core::fleet_status::FleetStatus;

use super::{error::ApiError, reply::Reply, router::ApiRequest};

pub(super) fn status(request: &ApiRequest) -> Result<Reply, ApiError> {
    Reply::json(&FleetStatus::of(&request.snapshot))
}
