//! Main loop of the scraper: starts due pulls as tasks and records their results in the fleet.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::mpsc,
    task::{self, JoinError, JoinSet},
};
use tokio_util::sync::CancellationToken;
use virtfleet_collector_core::{
    budget::BudgetOwner,
    dial::DialTarget,
    pull_result::{Failure, PullResult, UnixMs},
};
use virtfleet_wire::ids::{Uid, VmKey};

use super::{
    PullMetrics, Puller, Schedule,
    concurrency::{PullHealth, PullLimiter},
    eager::StartingVms,
    job::{JobEnd, PullJob, PushedPull},
    pull::KeptConnection,
    pushed::{PushEvent, PushedAgents},
};
use crate::{clock::unix_ms, enrolment::Enroller, fleet::Fleet, leader::WriteAccess};

#[derive(Debug, Clone, Copy)]
pub struct ScrapeSettings {
    /// Interval between two pulls of one VM.
    pub interval: Duration,
    /// Maximum concurrent pulls. VMs whose last pulls failed or were slow share a second pool of
    /// the same size, so that healthy VMs never wait for them.
    pub concurrency: usize,
    /// A pull that takes longer counts as slow.
    pub slow: Duration,
}

/// For so long the reason why an agent that connects gets no certificate is shown in place of the
/// reason why its VM cannot be dialled. Longer than an agent waits between two connections.
const REFUSAL_SHOWN_FOR: Duration = Duration::from_mins(3);

pub(crate) struct ScraperParts {
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) puller: Puller,
    /// Enrols agents without a certificate.
    pub(crate) enroller: Option<Arc<Enroller>>,
    pub(crate) settings: ScrapeSettings,
    pub(crate) metrics: PullMetrics,
    /// Connections that agents opened.
    pub(crate) pushed: Arc<PushedAgents>,
    /// Whether this process leads; none if no agents connect. They connect to the leader only, so
    /// another process does not know whether an agent that it cannot reach is silent.
    pub(crate) push_leadership: Option<WriteAccess>,
}

pub(crate) struct ScraperInputs {
    /// VMs whose state or address may have changed.
    pub(crate) changes: mpsc::Receiver<Vec<VmKey>>,
    /// Agents that connect.
    pub(crate) connects: mpsc::Receiver<PushEvent>,
}

/// Pulls every running VM of the fleet until `stop`.
pub(crate) async fn run(parts: ScraperParts, mut inputs: ScraperInputs, stop: CancellationToken) {
    let ScraperParts {
        fleet,
        puller,
        enroller,
        settings,
        metrics,
        pushed,
        push_leadership,
    } = parts;
    let mut scraper = Scraper {
        schedule: Schedule::new(settings.interval, Instant::now()),
        limiter: PullLimiter::new(settings.concurrency),
        starting: StartingVms::default(),
        slow: settings.slow,
        interval: settings.interval,
        enroller,
        pushed,
        push_leadership,
        states: HashMap::new(),
        running: JoinSet::new(),
        running_vms: HashMap::new(),
        fleet,
        puller,
        metrics,
    };
    loop {
        let due = scraper.schedule.next();
        tokio::select! {
            () = stop.cancelled() => return,
            batch = inputs.changes.recv() => match batch {
                Some(keys) => keys.iter().for_each(|key| scraper.update_target(key)),
                None => return,
            },
            Some(event) = inputs.connects.recv() => scraper.agent_connected(event),
            Some(ended) = scraper.running.join_next_with_id() => scraper.joined(ended),
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now).into()), if due.is_some() => {
                while let Some((key, due)) = scraper.schedule.take(Instant::now()) {
                    scraper.start_pull(key, due);
                }
            }
        }
    }
}

struct Scraper {
    fleet: Arc<Fleet>,
    puller: Puller,
    enroller: Option<Arc<Enroller>>,
    metrics: PullMetrics,
    schedule: Schedule,
    limiter: PullLimiter,
    starting: StartingVms,
    slow: Duration,
    interval: Duration,
    pushed: Arc<PushedAgents>,
    push_leadership: Option<WriteAccess>,
    states: HashMap<VmKey, VmPullState>,
    running: JoinSet<FinishedPull>,
    /// VM of each running pull.
    running_vms: HashMap<task::Id, VmKey>,
}

/// State of a VM between two pulls.
#[derive(Default)]
struct VmPullState {
    connection: KeptConnection,
    /// Whether the VM was dialled, and the UID of its VMI then.
    dialled: bool,
    vmi: Option<Uid>,
    /// Whether the last pull failed.
    silent: bool,
    /// Whether the agent answered the last pull, which dialled it. Then a connection that came from
    /// there, maybe opened by a neighbour, is used only if the dial fails.
    answered_dial: bool,
    /// Whether the last pulls that dialled took long.
    health: PullHealth,
    /// Why the agent, which connected then, got no certificate.
    refused: Option<(Instant, Failure)>,
}

impl VmPullState {
    /// The failure to show for a VM that could not be reached: an agent that connects and gets no
    /// certificate says more than an address that does not answer.
    fn shown(&self, failure: &Failure, now: Instant) -> Option<Failure> {
        let (at, refused) = self.refused.as_ref().filter(|_| failure.is_unreachable())?;
        (now.saturating_duration_since(*at) < REFUSAL_SHOWN_FOR).then(|| refused.clone())
    }
}

struct FinishedPull {
    result: PullResult,
    /// Begin of the pull, and its duration.
    began: (UnixMs, Duration),
    /// The dialled target; none if the VM could not be dialled.
    dialled: Option<DialTarget>,
    connection: KeptConnection,
    /// The next pull, if it is not to wait for the next interval.
    retry_in: Option<Duration>,
}

impl Scraper {
    /// Updates the schedule for a VM that may have been added, removed or migrated, or has another
    /// address.
    fn update_target(&mut self, key: &VmKey) {
        if self.fleet.read(|index| index.can_answer(key)) {
            self.schedule.soon(key, Instant::now());
        } else {
            self.schedule.remove(key);
            self.states.remove(key);
            self.pushed.remove_vm(key);
            self.starting.remove(key);
            if let Some(feed) = &self.puller.feed {
                feed.gone(key);
            }
        }
        self.metrics
            .targets
            .set(i64::try_from(self.schedule.len()).unwrap_or(i64::MAX));
    }

    fn agent_connected(&mut self, event: PushEvent) {
        match event {
            PushEvent::Connected(key) => {
                if self.fleet.read(|index| index.can_answer(&key)) {
                    self.schedule.at_once(&key, Instant::now());
                }
            }
            PushEvent::Refused(refused) => {
                let (target, failure) = *refused;
                if self.fleet.read(|index| index.can_answer(&target.key)) {
                    let states = self.states.entry(target.key).or_default();
                    states.refused = Some((Instant::now(), failure));
                }
            }
        }
    }

    fn start_pull(&mut self, key: VmKey, due: Instant) {
        let now = Instant::now();
        // Inserted at the first attempt, so that failures of a VM that could never be dialled are
        // logged, too.
        let states = self.states.entry(key.clone()).or_default();
        let pushed = self
            .pushed
            .current(&key, &self.fleet, now)
            .map(|agent| PushedPull {
                is_last: !self.pushed.is_fresh(&agent, now + self.interval),
                agent,
                agents: Arc::clone(&self.pushed),
            });
        let dial = self.fleet.read(|index| index.dial(&key));
        let dials_first = states.answered_dial && dial.is_ok();
        let kept = match (&pushed, &dial) {
            (Some(_), _) if !dials_first => {
                states.connection = None;
                None
            }
            (_, Ok(target)) => {
                if !states.dialled || states.vmi != target.uid {
                    self.starting.add(&key, now);
                }
                (states.vmi, states.dialled) = (target.uid.clone(), true);
                let kept = states.connection.take();
                kept.filter(|connection| connection.is_for(target, now))
            }
            (_, Err(failure)) => {
                let result = PullResult {
                    vm: key,
                    at: unix_ms(),
                    address: None,
                    pushed: false,
                    outcome: Err(failure.clone()),
                };
                return self.ended(FinishedPull {
                    began: (result.at, Duration::ZERO),
                    result,
                    dialled: None,
                    connection: None,
                    retry_in: None,
                });
            }
        };
        let owner = self.fleet.read(|index| index.budget_owner(&key));
        let is_slow = states.health.is_slow();
        let job = PullJob {
            connect_timeout: self.starting.connect_timeout(&key).unwrap_or(Duration::MAX),
            first: self.limiter.permits(owner.clone(), is_slow),
            second: self.limiter.permits(owner, true),
            puller: self.puller.clone(),
            enroller: self.enroller.clone(),
            dial,
            pushed,
            dials_first,
        };
        let metrics = self.metrics.clone();
        let running_vms = key.clone();
        let pull = self.running.spawn(async move {
            let mut began = (unix_ms(), Instant::now());
            let started = || {
                began = (unix_ms(), Instant::now());
                metrics.started(due.elapsed().as_secs_f64());
            };
            let JobEnd {
                ended,
                retry_in,
                target,
            } = job.run(kept, started).await;
            let result = PullResult {
                vm: key,
                at: unix_ms(),
                address: target.as_ref().map(|target| target.address),
                pushed: target.as_ref().is_some_and(|target| target.way.is_push()),
                outcome: ended.outcome,
            };
            FinishedPull {
                result,
                began: (began.0, began.1.elapsed()),
                dialled: target,
                connection: ended.connection,
                retry_in,
            }
        });
        self.running_vms.insert(pull.id(), running_vms);
    }

    /// Whether the agent may be connected to another process, the leader. Then this failure means
    /// nothing.
    fn is_known_to_leader_only(&self, result: &PullResult) -> bool {
        let leader = self.push_leadership.as_ref();
        result.outcome.as_ref().is_err_and(Failure::is_unreachable)
            && leader.is_some_and(|access| access.standby().is_some())
    }

    /// Handles the end of a pull's task. A panic is a bug, and costs only this pull of its VM.
    fn joined(&mut self, joined: Result<(task::Id, FinishedPull), JoinError>) {
        match joined {
            Ok((id, ended)) => {
                self.running_vms.remove(&id);
                self.ended(ended);
            }
            Err(error) => {
                let Some(key) = self.running_vms.remove(&error.id()) else {
                    return;
                };
                tracing::error!(vm = %key, %error, "a pull panicked; the VM is pulled again at the next interval");
                self.schedule.done(&key, Instant::now(), None);
            }
        }
    }

    fn ended(&mut self, ended: FinishedPull) {
        let FinishedPull {
            mut result,
            began,
            dialled,
            connection,
            retry_in,
        } = ended;
        let key = result.vm.clone();
        let is_of_leader = self.is_known_to_leader_only(&result);
        if let (Err(failure), Some(states)) = (&mut result.outcome, self.states.get(&key))
            && let Some(shown) = states.shown(failure, Instant::now())
        {
            *failure = shown;
        }
        self.metrics.ended(match &result.outcome {
            Ok(answer) => Ok(Duration::from_millis(answer.took_ms).as_secs_f64()),
            Err(failure) => Err(failure.class),
        });
        if let Ok(answer) = &mut result.outcome {
            answer.slow = Duration::from_millis(answer.took_ms) > self.slow;
        }
        if is_of_leader {
            self.schedule.done(&key, Instant::now(), None);
            return;
        }
        if let (Err(failure), Some(feed)) = (&result.outcome, &self.puller.feed)
            && self.fleet.read(|index| index.can_answer(&key))
        {
            feed.failed(&key, began.0, began.1, failure);
        }
        if let Some(states) = self.states.get_mut(&key) {
            let silent = result.outcome.is_err();
            // Log only when an agent becomes silent and when it answers again, not at every pull.
            match (&result.outcome, states.silent) {
                (Err(failure), false) => {
                    tracing::warn!(vm = %key, class = failure.class.as_str(), "agent silent: {}", failure.message());
                }
                (Ok(_), true) => tracing::info!(vm = %key, "agent answers again"),
                _ => {}
            }
            // A VM that could not be dialled cost no time, so it is not slow.
            let slow = match &result.outcome {
                Ok(answer) => answer.slow,
                Err(_) => dialled.is_some(),
            };
            states.connection = connection;
            states.refused = states.refused.take().filter(|_| silent);
            states.silent = silent;
            states.answered_dial = !silent && !result.pushed;
            states.health = states.health.after(slow);
        }
        let pause = match &result.outcome {
            Ok(_) => {
                self.starting.remove(&key);
                None
            }
            Err(failure) => {
                let owner = self.fleet.read(|index| index.budget_owner(&key));
                let is_expected = matches!(owner, BudgetOwner::Cluster(_));
                let eager = self
                    .starting
                    .pause(&key, failure.class, is_expected, Instant::now());
                eager.into_iter().chain(retry_in).min()
            }
        };
        // A result from a replaced VMI does not apply to the present one.
        match dialled {
            Some(target) => self.fleet.record_pull_of(target.uid.as_ref(), result),
            None => self.fleet.record_pull(result),
        };
        self.schedule.done(&key, Instant::now(), pause);
    }
}

#[cfg(test)]
#[path = "scraper_tests.rs"]
mod tests;
