//! The scraper's loop: takes what is due, pulls it in a task of its own, and tells the fleet what it heard.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use tokio::{
    sync::mpsc,
    task::{self, JoinError, JoinSet},
};
use tokio_util::sync::CancellationToken;
use virtfleet_collector_core::{
    dial::DialTarget,
    pull_result::{PullResult, UnixMs},
};
use virtfleet_wire::ids::VmKey;

use super::{
    PullMetrics, Puller, Schedule,
    lanes::{Lanes, Pace},
    pull::Kept,
};
use crate::fleet::Fleet;

/// How the scraper works.
#[derive(Debug, Clone, Copy)]
pub struct ScrapeSettings {
    /// Between two pulls of one VM.
    pub interval: Duration,
    /// Pulls at once. VMs whose last pulls failed or were slow share as many again, so that the healthy never wait for the
    /// sick.
    pub concurrency: usize,
    /// A pull that took longer was slow.
    pub slow: Duration,
}

/// Pulls every VM of `fleet` that can answer until `stop`. `changes` names the VMs whose state or address may have changed.
pub async fn run(
    fleet: Arc<Fleet>,
    puller: Puller,
    settings: ScrapeSettings,
    metrics: PullMetrics,
    mut changes: mpsc::Receiver<Vec<VmKey>>,
    stop: CancellationToken,
) {
    let mut scraper = Scraper {
        schedule: Schedule::new(settings.interval, Instant::now()),
        lanes: Lanes::new(settings.concurrency),
        slow: settings.slow,
        known: HashMap::new(),
        running: JoinSet::new(),
        asked: HashMap::new(),
        fleet,
        puller,
        metrics,
    };
    loop {
        let due = scraper.schedule.next();
        tokio::select! {
            () = stop.cancelled() => return,
            batch = changes.recv() => match batch {
                Some(keys) => keys.iter().for_each(|key| scraper.look_at(key)),
                None => return,
            },
            Some(ended) = scraper.running.join_next_with_id() => scraper.joined(ended),
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now).into()), if due.is_some() => {
                while let Some((key, due)) = scraper.schedule.take(Instant::now()) {
                    scraper.begin(key, due);
                }
            }
        }
    }
}

struct Scraper {
    fleet: Arc<Fleet>,
    puller: Puller,
    metrics: PullMetrics,
    schedule: Schedule,
    lanes: Lanes,
    slow: Duration,
    known: HashMap<VmKey, Known>,
    running: JoinSet<Ended>,
    /// Whom each running pull asks.
    asked: HashMap<task::Id, VmKey>,
}

/// What the scraper remembers of a VM between two pulls.
#[derive(Default)]
struct Known {
    connection: Kept,
    /// The last pull failed.
    silent: bool,
    /// Whether the last pulls after somebody was dialled took long.
    pace: Pace,
}

struct Ended {
    heard: PullResult,
    /// Who was dialled; none when nobody could be.
    dialled: Option<DialTarget>,
    connection: Kept,
}

impl Scraper {
    /// A VM may have come, gone, moved or got another address.
    fn look_at(&mut self, key: &VmKey) {
        if self.fleet.can_answer(key) {
            self.schedule.soon(key, Instant::now());
        } else {
            self.schedule.remove(key);
            self.known.remove(key);
        }
        self.metrics
            .targets
            .set(i64::try_from(self.schedule.len()).unwrap_or(i64::MAX));
    }

    fn begin(&mut self, key: VmKey, due: Instant) {
        // Known from the first attempt on, so that the log tells also of a VM that could never be dialled.
        let known = self.known.entry(key.clone()).or_default();
        let target = match self.fleet.dial(&key) {
            Ok(target) => target,
            Err(failure) => {
                let heard = PullResult {
                    vm: key,
                    at: unix_ms(),
                    address: None,
                    outcome: Err(failure),
                };
                return self.ended(Ended {
                    heard,
                    dialled: None,
                    connection: None,
                });
            }
        };
        let kept = known
            .connection
            .take()
            .filter(|connection| connection.is_for(&target, Instant::now()));
        let place = self
            .lanes
            .place(self.fleet.budget_owner(&key), known.pace.is_sick());
        let (puller, metrics) = (self.puller.clone(), self.metrics.clone());
        let asked = key.clone();
        let pull = self.running.spawn(async move {
            let permits = place.take().await;
            metrics.begun(due.elapsed().as_secs_f64());
            let (outcome, connection) = puller.pull(&target, kept).await;
            drop(permits);
            let heard = PullResult {
                vm: key,
                at: unix_ms(),
                address: Some(target.address),
                outcome,
            };
            Ended {
                heard,
                dialled: Some(target),
                connection,
            }
        });
        self.asked.insert(pull.id(), asked);
    }

    /// A pull's task is over. One that panicked is a bug of ours, and costs its VM this pull and no other.
    fn joined(&mut self, joined: Result<(task::Id, Ended), JoinError>) {
        match joined {
            Ok((id, ended)) => {
                self.asked.remove(&id);
                self.ended(ended);
            }
            Err(error) => {
                let Some(key) = self.asked.remove(&error.id()) else {
                    return;
                };
                tracing::error!(vm = %key, %error, "a pull has panicked; the VM is asked again on its beat");
                self.schedule.done(&key, Instant::now());
            }
        }
    }

    fn ended(&mut self, ended: Ended) {
        let Ended {
            mut heard,
            dialled,
            connection,
        } = ended;
        let key = heard.vm.clone();
        self.metrics.ended(match &heard.outcome {
            Ok(answer) => Ok(Duration::from_millis(answer.took_ms).as_secs_f64()),
            Err(failure) => Err(failure.class),
        });
        if let Ok(answer) = &mut heard.outcome {
            answer.slow = Duration::from_millis(answer.took_ms) > self.slow;
        }
        if let Some(known) = self.known.get_mut(&key) {
            let silent = heard.outcome.is_err();
            // One line when an agent falls silent and one when it is back, not one a pull.
            match (&heard.outcome, known.silent) {
                (Err(failure), false) => {
                    tracing::warn!(vm = %key, class = failure.class.as_str(), "agent silent: {}", failure.message());
                }
                (Ok(_), true) => tracing::info!(vm = %key, "agent answers again"),
                _ => {}
            }
            // Who could not be dialled at all has cost nobody time, and is no sick one.
            let slow = match &heard.outcome {
                Ok(answer) => answer.slow,
                Err(_) => dialled.is_some(),
            };
            *known = Known {
                connection,
                silent,
                pace: known.pace.after(slow),
            };
        }
        // What was heard of an incarnation that has been replaced meanwhile says nothing about the one that is there now.
        match dialled {
            Some(target) => self.fleet.record_pull_of(target.uid.as_ref(), heard),
            None => self.fleet.record_pull(heard),
        };
        self.schedule.done(&key, Instant::now());
    }
}

/// The wall clock, for people and for `last seen`.
fn unix_ms() -> UnixMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMs::try_from(since.as_millis()).unwrap_or(UnixMs::MAX)
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
