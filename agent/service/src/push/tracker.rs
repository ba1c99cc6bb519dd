//! Who pulled this agent last, and the state of the connection that it opens.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::watch, time::Instant};
use virtfleet_agent_core::push::record::{
    FORMAT, LastPull, PushFailure, PushFailureReason, PushState, WayRecord,
};
use virtfleet_agent_host::{Roots, clock, read_text};
use virtfleet_agent_state::WAY_RECORD;
use virtfleet_wire::settings::PushSettings;

use super::PushCounters;

/// Minimum time between two stored records that differ in the time of the last pull only, in
/// seconds.
const STORE_INTERVAL: u64 = 60;

/// How a collector reached the agent for a pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullWay {
    /// It dialled a listener.
    Direct,
    /// Over a connection that the agent opened.
    Push,
}

/// How a connection of the agent was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionUse {
    /// For at least one pull.
    Pulled,
    /// Only to issue the agent's certificate.
    Enrolled,
    /// The agent closed it, or gave up the attempt.
    Abandoned,
}

/// Who pulled last, and the state of the connection. Clones share it.
#[derive(Debug, Clone)]
pub struct WayTracker(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    roots: Roots,
    tracked: Mutex<Tracked>,
    /// Time of the last direct pull.
    direct: watch::Sender<Option<Instant>>,
}

#[derive(Debug)]
struct Tracked {
    record: WayRecord,
    counters: PushCounters,
    /// How the connection that is open was used so far.
    used: Option<ConnectionUse>,
    /// When the record was stored last, in seconds since the guest booted.
    stored_at: u64,
    not_stored: bool,
}

impl WayTracker {
    /// For an agent that starts now, with these settings. Stores a first record for the doctor.
    pub fn new(roots: &Roots, push: &PushSettings) -> Self {
        let boot_id = read_text(&roots.proc("sys/kernel/random/boot_id"), 64).unwrap_or_default();
        let tracker = Self(Arc::new(Shared {
            roots: roots.clone(),
            tracked: Mutex::new(Tracked {
                record: WayRecord {
                    v: FORMAT,
                    boot_id: boot_id.trim().to_owned(),
                    started_at: now(),
                    collector: push.collector.as_ref().map(ToString::to_string),
                    after_seconds: push.after.0.as_secs(),
                    ..WayRecord::default()
                },
                counters: PushCounters::default(),
                used: None,
                stored_at: 0,
                not_stored: false,
            }),
            direct: watch::Sender::new(None),
        }));
        tracker.change(|_| ());
        tracker
    }

    /// The state, for the report.
    pub fn record(&self) -> WayRecord {
        self.lock().record.clone()
    }

    /// The counters; none if the agent never connects.
    pub fn counters(&self) -> Option<PushCounters> {
        let tracked = self.lock();
        let is_on = tracked.record.collector.is_some();
        is_on.then(|| tracked.counters.clone())
    }

    /// A collector at `peer` pulled.
    pub fn pulled(&self, way: PullWay, peer: IpAddr) {
        self.contacted(way);
        let mut tracked = self.lock();
        let is_first_use = way == PullWay::Push && tracked.used != Some(ConnectionUse::Pulled);
        if way == PullWay::Push {
            tracked.used = Some(ConnectionUse::Pulled);
        }
        let pull = request_of(peer);
        let last = match way {
            PullWay::Direct => &mut tracked.record.direct,
            PullWay::Push => &mut tracked.record.pushed,
        };
        let before = last.replace(pull);
        if way == PullWay::Direct && matches!(tracked.record.push, PushState::Waiting { .. }) {
            tracked.record.push = PushState::Idle;
        }
        // A pull over the connection follows the record of the connection.
        let is_first = before.is_none() || is_first_use;
        let is_news = tracked.record.failure.take().is_some() || is_first;
        if is_news || now().saturating_sub(tracked.stored_at) >= STORE_INTERVAL {
            self.store(&mut tracked);
        }
    }

    /// A collector pulled, or issued the agent's certificate.
    pub fn contacted(&self, way: PullWay) {
        match way {
            PullWay::Direct => drop(self.0.direct.send_replace(Some(Instant::now()))),
            PullWay::Push => drop(self.lock().used.get_or_insert(ConnectionUse::Enrolled)),
        }
        let mut tracked = self.lock();
        if tracked.record.asked.take().is_some() {
            self.store(&mut tracked);
        }
    }

    /// A collector at `peer` began to enrol this agent.
    pub fn asked(&self, peer: IpAddr) {
        let mut tracked = self.lock();
        let is_first = tracked.record.asked.replace(request_of(peer)).is_none();
        if is_first || now().saturating_sub(tracked.stored_at) >= STORE_INTERVAL {
            self.store(&mut tracked);
        }
    }

    /// The join token could be read, or why not.
    pub fn token_read(&self, problem: Option<String>) {
        if self.lock().record.token_problem != problem {
            if let Some(problem) = &problem {
                tracing::warn!(problem, "the join token cannot be read");
            }
            self.change(|tracked| tracked.record.token_problem = problem);
        }
    }

    pub(super) fn direct_pulls(&self) -> watch::Receiver<Option<Instant>> {
        self.0.direct.subscribe()
    }

    pub(super) fn state(&self, state: PushState) {
        if self.lock().record.push == state {
            return;
        }
        self.change(|tracked| {
            match state {
                PushState::Connecting => tracked.counters.attempts += 1,
                PushState::Connected { .. } => {
                    tracked.counters.connections += 1;
                    tracked.used = None;
                }
                PushState::Idle | PushState::Waiting { .. } => {}
            }
            tracked.record.push = state;
        });
    }

    /// How the last connection was used; none if it was not.
    pub(super) fn used(&self) -> Option<ConnectionUse> {
        self.lock().used
    }

    pub(super) fn failed(&self, reason: PushFailureReason, message: &str) {
        let mut tracked = self.lock();
        let failure = PushFailure::new(now(), reason, message);
        let is_known = tracked
            .record
            .failure
            .as_ref()
            .is_some_and(|last| last.reason == reason);
        if is_known {
            tracing::debug!(reason = reason.word(), "not connected: {}", failure.message);
        } else {
            tracing::warn!(reason = reason.word(), "not connected: {}", failure.message);
        }
        *tracked.counters.failures.entry(reason).or_default() += 1;
        // Stored with the state that follows.
        tracked.record.failure = Some(failure);
    }

    fn change(&self, change: impl FnOnce(&mut Tracked)) {
        let mut tracked = self.lock();
        change(&mut tracked);
        self.store(&mut tracked);
    }

    /// Stores the record for the doctor. `/run` is in memory, so this does not wait for a disk.
    fn store(&self, tracked: &mut Tracked) {
        tracked.stored_at = now();
        match WAY_RECORD.write_own(&self.0.roots, &tracked.record) {
            Ok(()) => tracked.not_stored = false,
            Err(error) if !tracked.not_stored => {
                tracked.not_stored = true;
                let error = &error as &dyn std::error::Error;
                tracing::info!(error, "doctor cannot say how collectors reach this agent");
            }
            Err(_) => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, Tracked> {
        self.0.tracked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request of a collector at `peer`, now.
fn request_of(peer: IpAddr) -> LastPull {
    LastPull {
        at: now(),
        peer: peer.to_canonical().to_string(),
    }
}

/// Seconds since the guest booted.
pub(super) fn now() -> u64 {
    clock().boottime_ns / 1_000_000_000
}
