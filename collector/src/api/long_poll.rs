//! Long polls: returns a snapshot at once, or when the fleet changes.

use std::{sync::Arc, time::Duration};

use virtfleet_collector_core::view::FleetSnapshot;

use super::{ApiState, error::ApiError, query::Query};

/// Default of `timeout`.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// The snapshot for a response: at once without `wait`, else when the revision differs from it, at
/// `timeout`, or at a shutdown. A lower revision differs as well: the collector was restarted.
///
/// # Errors
/// Too many long polls: they would block other requests, among them those of Prometheus.
pub(super) async fn snapshot(api: &ApiState, query: &Query) -> Result<Arc<FleetSnapshot>, ApiError> {
    // Subscribe before the first comparison, so that no change is missed.
    let mut revisions = api.fleet.revisions();
    let now = api.fleet.snapshot();
    let Some(known) = query.number("wait") else {
        return Ok(now);
    };
    if now.revision != known {
        return Ok(now);
    }
    let _place = api.waiting.try_acquire().map_err(|_| ApiError::busy())?;
    let timeout = query.span("timeout").unwrap_or(DEFAULT_TIMEOUT);
    tokio::select! {
        () = api.shutdown.cancelled() => {}
        _ = tokio::time::timeout(timeout, revisions.wait_for(|revision| *revision != known)) => {}
    }
    Ok(api.fleet.snapshot())
}
