//! `GET /api/v1/watch`: changes of the fleet as server-sent events (HTML standard, section 9.2).
//!
//! ```text
//! revision ─▶ pause ─▶ rights again ─▶ snapshot of what the caller may see ─▶ differences ─▶ event
//! ```
//! An event is made only when the client has taken the one before, so a slow client costs one
//! snapshot and gets fewer, larger events. No event has a revision: it would show a tenant how busy
//! the others are.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::response::{
    IntoResponse as _, Response,
    sse::{Event, Sse},
};
use futures_util::stream;
use serde::Serialize;
use tokio::{sync::watch, time::Instant};
use virtfleet_collector_core::{
    fleet_changes::FleetChanges,
    view::{FleetSnapshot, VmView},
};
use virtfleet_wire::ids::VmKey;

use super::{
    ApiState,
    error::{ApiError, ErrorDetail},
    watch_slots::WatchSlot,
};
use crate::access::TenantView;

/// Pause after a change, so that changes that belong together are one event.
const COALESCE: Duration = Duration::from_millis(100);
/// Minimum interval between two comparisons.
const MIN_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum interval between two comparisons of a large fleet.
const MAX_INTERVAL: Duration = Duration::from_secs(5);
/// The interval is at least so many times as long as a comparison takes.
const COMPARE_SHARE: u32 = 20;
/// Interval of comments in a silent stream, so that both ends notice a lost connection.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Maximum age of the review of the caller's rights when an event is sent.
const RIGHTS_TTL: Duration = Duration::from_secs(5);
/// Maximum VMs of an event. Of more, the client reads the lists again.
const MAX_EVENT_VMS: usize = 200;

/// Reviews the rights of the caller again. Returns what it may see; none: everything.
pub(super) trait Rights: Send + 'static {
    /// The rights at present.
    ///
    /// # Errors
    /// The caller has lost them.
    fn review(&self) -> impl Future<Output = Result<Option<Arc<TenantView>>, ApiError>> + Send;
}

/// The data of an event `change`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct WatchedChange<'a> {
    /// VMs that are new or differ.
    vms: Vec<&'a VmView>,
    /// VMs that are gone.
    removed: &'a [VmKey],
    /// Other lists that differ: `hosts`, `clusters`, `findings`; `vms` if they must be read again.
    lists: Vec<&'static str>,
}

/// One open stream.
pub(super) struct FleetWatch<R> {
    api: ApiState,
    rights: R,
    tenant: Option<Arc<TenantView>>,
    reviewed_at: Instant,
    revisions: watch::Receiver<u64>,
    /// The snapshot that the client knows.
    shown: Arc<FleetSnapshot>,
    next_compare: Instant,
    /// Duration of the last comparison.
    compared_in: Duration,
    phase: Phase,
    _slot: WatchSlot,
}

/// Where a stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Starting,
    Running,
    Ended,
}

impl<R: Rights> FleetWatch<R> {
    /// A stream for a caller that may see `tenant`. Changes after this call are in it.
    pub(super) fn new(api: ApiState, rights: R, tenant: Option<Arc<TenantView>>, slot: WatchSlot) -> Self {
        let mut revisions = api.fleet.revisions();
        revisions.mark_unchanged();
        let shown = visible(&api, tenant.as_ref());
        let now = Instant::now();
        Self {
            api,
            rights,
            tenant,
            reviewed_at: now,
            revisions,
            shown,
            next_compare: now,
            compared_in: Duration::ZERO,
            phase: Phase::Starting,
            _slot: slot,
        }
    }

    pub(super) fn into_response(self) -> Response {
        let events = stream::unfold(self, |mut watch| async {
            let event = watch.next().await?;
            Some((Ok::<_, Infallible>(event), watch))
        });
        Sse::new(events).into_response()
    }

    /// The next event; none after the last one.
    async fn next(&mut self) -> Option<Event> {
        match self.phase {
            Phase::Ended => return None,
            Phase::Starting => {
                self.phase = Phase::Running;
                return Some(Event::default().event("ready").data("{}"));
            }
            Phase::Running => {}
        }
        let heartbeat = Instant::now() + HEARTBEAT;
        loop {
            let is_due = tokio::select! {
                () = self.api.shutdown.cancelled() => {
                    self.phase = Phase::Ended;
                    return None;
                }
                () = tokio::time::sleep_until(heartbeat) => true,
                () = changed(&mut self.revisions, self.next_compare) => false,
            };
            if (is_due || self.reviewed_at.elapsed() >= RIGHTS_TTL)
                && let Err(error) = self.review().await
            {
                self.phase = Phase::Ended;
                return Some(end(error));
            }
            if is_due {
                return Some(Event::default().comment(""));
            }
            if let Some(event) = self.compare() {
                return Some(event);
            }
        }
    }

    async fn review(&mut self) -> Result<(), ApiError> {
        self.tenant = self.rights.review().await?;
        self.reviewed_at = Instant::now();
        Ok(())
    }

    /// The event with what has changed since the last one.
    fn compare(&mut self) -> Option<Event> {
        let begun = Instant::now();
        self.revisions.mark_unchanged();
        let now = visible(&self.api, self.tenant.as_ref());
        let changes = FleetChanges::between(&self.shown, &now);
        self.shown = now;
        let took = begun.elapsed();
        self.next_compare = begun + pause(self.compared_in, took);
        self.compared_in = took;
        if changes.is_empty() {
            return None;
        }
        Event::default()
            .event("change")
            .json_data(described(&changes))
            .ok()
    }
}

/// The pause after a comparison that took so long, and one before. The shorter one counts: on a
/// busy machine a single one may take a hundred times as long.
fn pause(before: Duration, now: Duration) -> Duration {
    (before.min(now) * COMPARE_SHARE).clamp(MIN_INTERVAL, MAX_INTERVAL)
}

/// Waits for a change, and then until it may be compared.
async fn changed(revisions: &mut watch::Receiver<u64>, not_before: Instant) {
    // The fleet outlives its streams; without it there is no change.
    if revisions.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
    // Dropped during the pause, the change would be lost.
    revisions.mark_changed();
    tokio::time::sleep_until(not_before.max(Instant::now() + COALESCE)).await;
}

/// What a caller sees now.
fn visible(api: &ApiState, tenant: Option<&Arc<TenantView>>) -> Arc<FleetSnapshot> {
    use crate::fleet::FleetRead as _;
    tenant.map_or_else(|| api.fleet.snapshot(), |tenant| tenant.snapshot())
}

fn described(changes: &FleetChanges) -> WatchedChange<'_> {
    let reload = changes.completeness || changes.vms.len() + changes.removed.len() > MAX_EVENT_VMS;
    let lists = [
        ("vms", reload),
        ("hosts", changes.hosts || changes.completeness),
        ("clusters", changes.clusters || changes.completeness),
        ("findings", changes.findings || changes.completeness),
    ];
    let different = lists.into_iter().filter(|(_, differs)| *differs);
    WatchedChange {
        vms: if reload {
            Vec::new()
        } else {
            changes.vms.iter().map(AsRef::as_ref).collect()
        },
        removed: if reload { &[] } else { &changes.removed },
        lists: different.map(|(name, _)| name).collect(),
    }
}

/// The last event of a caller that has lost its rights.
fn end(error: ApiError) -> Event {
    let detail = ErrorDetail {
        code: error.code.to_owned(),
        message: error.message,
        remedy: error.remedy,
    };
    let event = Event::default().event("end");
    event
        .json_data(detail)
        .unwrap_or_else(|_| Event::default().event("end").data("{}"))
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
