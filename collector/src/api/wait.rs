//! The long poll: a snapshot at once, or as soon as the fleet has changed.

use std::{sync::Arc, time::Duration};

use virtfleet_collector_core::view::FleetSnapshot;

use super::{ApiState, error::ApiError, query::Query};

/// How long `wait` lasts when `timeout` is not given.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// The snapshot to answer with: at once without `wait`, else when the revision differs from it, at `timeout`, or when
/// the collector shuts down. A lower revision differs as well: the collector has been started anew.
///
/// Errors: too many wait already; they would take the places of those who ask for an answer at once, Prometheus among them.
pub(super) async fn snapshot(api: &ApiState, query: &Query) -> Result<Arc<FleetSnapshot>, ApiError> {
    // Subscribed before the first look, so that no change falls between the two.
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
