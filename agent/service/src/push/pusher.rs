//! The connection to the collector: opens it when no collector pulls, and serves on it.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, time::Instant};
use virtfleet_agent_core::push::{
    record::{PushFailureReason, PushState},
    scheduler::{PushAction, PushScheduler},
};
use virtfleet_agent_host::{DialError, Roots, dial, dns::random_bytes};
use virtfleet_runtime::{
    http::{ConnectionEnd, Limits, Server, ServerMetrics},
    shutdown::Shutdown,
    tls::TlsAcceptor,
};
use virtfleet_wire::{host_port::HostPort, settings::PushSettings};

use super::{
    WayTracker,
    tracker::{ConnectionUse, now},
};
use crate::server::Routes;

/// Maximum time until the collector's first byte: it may have to handle many agents.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(30);
/// Minimum time without a request until the agent closes the connection and opens another.
const MIN_IDLE_TIMEOUT: Duration = Duration::from_mins(3);

/// Opens the connection to the collector when no collector pulls.
#[derive(Debug)]
pub struct Pusher {
    roots: Roots,
    collector: HostPort,
    after: Duration,
    server: Server<Routes>,
    tls: Arc<TlsAcceptor>,
    tracker: WayTracker,
}

impl Pusher {
    /// With the routes and limits of the listeners, for one connection. None if the settings name
    /// no collector.
    pub fn new(
        roots: &Roots,
        push: &PushSettings,
        routes: Routes,
        limits: Limits,
        metrics: ServerMetrics,
        tls: Arc<TlsAcceptor>,
        tracker: WayTracker,
    ) -> Option<Self> {
        let limits = Limits {
            connections: 1,
            new_connections: 1,
            connections_per_peer: 1,
            first_byte_timeout: FIRST_BYTE_TIMEOUT,
            idle_timeout: idle_timeout(push.after.0),
            ..limits
        };
        Some(Self {
            roots: roots.clone(),
            collector: push.collector.clone()?,
            after: push.after.0,
            server: Server::new(routes.over_push(), limits, metrics),
            tls,
            tracker,
        })
    }

    /// Runs until `shutdown.graceful`, and then until the last request has ended.
    pub async fn run(self, shutdown: Shutdown) {
        let start = Instant::now();
        let mut scheduler = PushScheduler::new(self.after, Duration::ZERO);
        let mut pulls = self.tracker.direct_pulls();
        while !shutdown.graceful.is_cancelled() {
            note(&mut scheduler, &mut pulls, start);
            match scheduler.next(start.elapsed()) {
                PushAction::WaitUntil(due) => {
                    let wait = due.saturating_sub(start.elapsed());
                    self.show_wait(scheduler.is_retrying(), wait);
                    // A pull only moves the time. It is noted after the wait, so that no pull
                    // wakes this task.
                    tokio::select! {
                        () = shutdown.graceful.cancelled() => break,
                        () = tokio::time::sleep(wait) => {}
                    }
                }
                PushAction::Connect => {
                    let result = self.connect(&mut scheduler, &mut pulls, start, &shutdown).await;
                    match result {
                        Ok(ConnectionUse::Pulled) => scheduler.ended(start.elapsed(), random()),
                        Ok(ConnectionUse::Enrolled) => scheduler.enrolled(start.elapsed(), random()),
                        Ok(ConnectionUse::Abandoned) => scheduler.closed(start.elapsed()),
                        Err(failure) => {
                            self.tracker.failed(failure.reason, &failure.message);
                            scheduler.failed(start.elapsed(), random());
                        }
                    }
                }
                // Only while `connect` runs.
                PushAction::Keep | PushAction::Close => scheduler.closed(start.elapsed()),
            }
        }
    }

    fn show_wait(&self, is_retrying: bool, wait: Duration) {
        self.tracker.state(if is_retrying {
            let next = now().saturating_add(wait.as_secs());
            PushState::Waiting { next }
        } else {
            PushState::Idle
        });
    }

    /// One connection, from its name to its end.
    async fn connect(
        &self,
        scheduler: &mut PushScheduler,
        pulls: &mut DirectPulls,
        start: Instant,
        shutdown: &Shutdown,
    ) -> Result<ConnectionUse, Failure> {
        self.tracker.state(PushState::Connecting);
        let (roots, collector) = (self.roots.clone(), self.collector.clone());
        // Resolving blocks. The attempt is awaited even if a collector pulls meanwhile, so that
        // there are never two.
        let dialling = tokio::task::spawn_blocking(move || dial(&roots, &collector));
        let dialled = tokio::select! {
            () = shutdown.graceful.cancelled() => return Ok(ConnectionUse::Abandoned),
            dialled = dialling => dialled,
        };
        let stream = dialled.map_err(|_| Failure {
            reason: PushFailureReason::Unreachable,
            message: "the agent panicked; its log names the place".to_owned(),
        })??;
        let failed = |error: std::io::Error| Failure {
            reason: PushFailureReason::Unreachable,
            message: format!("the connection to {}: {error}", self.collector),
        };
        let peer = stream.peer_addr().map_err(failed)?;
        note(scheduler, pulls, start);
        if scheduler.next(start.elapsed()) == PushAction::Close {
            return Ok(ConnectionUse::Abandoned);
        }
        self.tracker.state(PushState::Connected {
            since: now(),
            peer: peer.to_string(),
        });
        tracing::info!(%peer, collector = %self.collector, "connected, because no collector pulls");
        let close = Shutdown {
            graceful: shutdown.graceful.child_token(),
            hard: shutdown.hard.clone(),
        };
        let served = self.server.serve_opened(stream, Arc::clone(&self.tls), &close);
        tokio::pin!(served);
        let end = loop {
            tokio::select! {
                end = served.as_mut() => break end.map_err(failed)?,
                _ = pulls.changed() => {
                    note(scheduler, pulls, start);
                    if scheduler.next(start.elapsed()) == PushAction::Close {
                        tracing::info!(%peer, "disconnecting, because a collector pulls directly");
                        close.graceful.cancel();
                    }
                }
            }
        };
        if close.graceful.is_cancelled() {
            return Ok(ConnectionUse::Abandoned);
        }
        match end {
            ConnectionEnd::Served | ConnectionEnd::Aborted => self.tracker.used().ok_or_else(|| Failure {
                reason: PushFailureReason::Unused,
                message: format!(
                    "{peer} closed the connection without a pull; the collector's log has the reason"
                ),
            }),
            ConnectionEnd::NoClient(reason) => Err(Failure {
                reason: PushFailureReason::Tls,
                message: format!("no collector of this fleet at {peer}: {reason}"),
            }),
            ConnectionEnd::Unauthorised(reason) => Err(Failure {
                reason: PushFailureReason::Unauthorized,
                message: format!("no collector at {peer}: {reason}"),
            }),
        }
    }
}

/// Time without a request until the agent closes the connection.
fn idle_timeout(after: Duration) -> Duration {
    after.saturating_mul(3).max(MIN_IDLE_TIMEOUT)
}

type DirectPulls = watch::Receiver<Option<Instant>>;

/// Why a connection led to no pull.
struct Failure {
    reason: PushFailureReason,
    message: String,
}

impl From<DialError> for Failure {
    fn from(error: DialError) -> Self {
        let reason = match &error {
            DialError::Lookup(_) => PushFailureReason::Resolve,
            DialError::Refused(_) => PushFailureReason::Refused,
            DialError::Timeout(_) => PushFailureReason::Timeout,
            DialError::Unreachable { .. } => PushFailureReason::Unreachable,
        };
        Self {
            reason,
            message: error.to_string(),
        }
    }
}

/// Tells the scheduler of the last direct pull.
fn note(scheduler: &mut PushScheduler, pulls: &mut DirectPulls, start: Instant) {
    if let Some(at) = *pulls.borrow_and_update() {
        scheduler.pulled_directly(at.saturating_duration_since(start));
    }
}

fn random() -> u32 {
    let [a, b, c, d, ..] = random_bytes();
    u32::from_ne_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_kept_for_three_minutes_or_three_times_after() {
        for (after, idle) in [(1, 180), (60, 180), (90, 270), (3600, 10_800)] {
            assert_eq!(
                idle_timeout(Duration::from_secs(after)),
                Duration::from_secs(idle)
            );
        }
        assert_eq!(idle_timeout(Duration::MAX), Duration::MAX);
    }
}
