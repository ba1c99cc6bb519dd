//! Long polls: a request with `wait` is answered when the revision of its answer differs, at
//! `timeout`, or at a shutdown. A lower revision differs as well: the collector was restarted.

use std::time::Duration;

use tokio::{sync::watch, time::Instant};

use super::{ApiState, error::ApiError, query::Query, watch_slots::WatchSlot};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// A request that may wait for a change.
pub(super) struct LongPoll<'a> {
    api: &'a ApiState,
    known: Option<u64>,
    timeout: Duration,
    revisions: watch::Receiver<u64>,
    /// With the end of the wait; none before the first wait.
    waiting: Option<(Instant, WatchSlot)>,
    ended: bool,
}

impl<'a> LongPoll<'a> {
    /// Reads `wait` and `timeout`. Subscribes to changes, so that none is missed.
    pub(super) fn new(api: &'a ApiState, query: &Query) -> Self {
        Self {
            api,
            known: query.number("wait"),
            timeout: query.span("timeout").unwrap_or(DEFAULT_TIMEOUT),
            revisions: api.fleet.revisions(),
            waiting: None,
            ended: false,
        }
    }

    /// Changes up to now are those of the snapshot that is taken next.
    pub(super) fn mark(&mut self) {
        self.revisions.mark_unchanged();
    }

    /// Whether an answer of this revision is not sent yet.
    pub(super) fn is_known(&self, revision: u64) -> bool {
        !self.ended && self.known == Some(revision)
    }

    /// Waits for a change of the fleet since [`LongPoll::mark`], at least for `pause` if answers
    /// are compared. Or for the end.
    ///
    /// # Errors
    /// Too many long polls, of this client or of all: they would block other requests, among them
    /// those of Prometheus.
    pub(super) async fn wait(
        &mut self,
        pause: Option<Duration>,
        client: &str,
        is_tenant: bool,
    ) -> Result<(), ApiError> {
        if self.waiting.is_none() {
            let slot = self.api.waiting.take(client, is_tenant)?;
            self.waiting = Some((Instant::now() + self.timeout, slot));
        }
        let end = self.waiting.as_ref().map_or_else(Instant::now, |(end, _)| *end);
        let changed = async {
            tokio::time::sleep(pause.unwrap_or_default()).await;
            // The fleet outlives its requests.
            self.revisions.changed().await.ok();
        };
        let ended = tokio::select! {
            () = self.api.shutdown.cancelled() => true,
            () = tokio::time::sleep_until(end) => true,
            () = changed => false,
        };
        self.ended |= ended;
        Ok(())
    }
}
