//! Runs collectors in a separate thread, so that one that hangs in the kernel costs only its own
//! series.
//!
//! ```text
//! Runner::run ── jobs ──▶ thread: one after the other ── page, done ──▶ Runner::run returns
//!                           │ a job takes longer than the deadline
//!                           └▶ it is abandoned with its thread; a new thread continues
//! ```
//! Both sides share one `State` behind a lock. A round wakes each side once, independent of the
//! number of collectors. An abandoned thread returns its collector when the kernel call ends, and
//! exits.

use std::{
    collections::VecDeque,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use virtfleet_wire::exposition::Page;

use super::{CollectError, Collector};

/// Maximum duration of a round beyond the deadline of one collector: a page is sent even if several
/// hang.
const ROUND_MARGIN: Duration = Duration::from_millis(1500);
/// Stack size of the collector thread in bytes; parsers are not recursive.
const STACK_BYTES: usize = 512 << 10;

/// One run of a collector.
pub(super) struct Job {
    /// Index in the registry.
    pub(super) index: usize,
    pub(super) collector: Box<dyn Collector>,
    /// Maximum number of series.
    pub(super) limit: usize,
}

pub(super) enum RunOutcome {
    /// Its families are on the page.
    Written,
    /// The run failed. The families of [`CollectError::Partly`] are on the page.
    Failed(CollectError),
}

pub(super) struct FinishedRun {
    pub(super) index: usize,
    /// `None` after a panic.
    pub(super) collector: Option<Box<dyn Collector>>,
    pub(super) outcome: RunOutcome,
    /// Number of its series that were dropped.
    pub(super) dropped: usize,
    pub(super) took: Duration,
}

/// Result of running all jobs.
#[derive(Default)]
pub(super) struct Round {
    pub(super) finished: Vec<FinishedRun>,
    /// The collectors that exceeded the deadline, and how long each was waited for. They are
    /// returned later by [`Runner::late`].
    pub(super) hung: Vec<(usize, Duration)>,
}

#[derive(Default)]
struct State {
    /// Number of the current thread; older threads are abandoned.
    thread: u64,
    jobs: VecDeque<Job>,
    /// The job in progress and its start.
    current: Option<(usize, Instant)>,
    page: Page,
    finished: Vec<FinishedRun>,
    late: Vec<(usize, Option<Box<dyn Collector>>)>,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Signaled when there are jobs, or on shutdown.
    work: Condvar,
    /// Signaled when all jobs are done.
    done: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Code that can panic under the lock catches the panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs collectors. The thread starts with the first round and ends when this is dropped.
pub(super) struct Runner {
    shared: Arc<Shared>,
    running: bool,
}

impl Runner {
    pub(super) fn new() -> Self {
        Self {
            shared: Arc::default(),
            running: false,
        }
    }

    /// Collectors that were abandoned in an earlier round and have returned since; `None` for one
    /// that panicked.
    pub(super) fn late(&self) -> Vec<(usize, Option<Box<dyn Collector>>)> {
        std::mem::take(&mut self.shared.lock().late)
    }

    /// Runs all jobs and appends their families to `page` in order. Each may take at most
    /// `deadline`.
    pub(super) fn run(&mut self, jobs: VecDeque<Job>, deadline: Duration, page: &mut Page) -> Round {
        let mut round = Round::default();
        if jobs.is_empty() {
            return round;
        }
        self.shared.lock().jobs = jobs;
        let end = Instant::now() + deadline + ROUND_MARGIN;
        loop {
            if !self.running
                && let Err(error) = self.start()
            {
                self.fail_remaining(&mut round, &format!("cannot start a thread: {error}"));
                break;
            }
            self.shared.work.notify_one();
            if !self.wait(deadline, end, &mut round) {
                break;
            }
            if Instant::now() >= end {
                self.fail_remaining(&mut round, "no time left in this scrape");
                break;
            }
        }
        let mut state = self.shared.lock();
        round.finished.append(&mut state.finished);
        page.append(&state.page);
        state.page.clear();
        round
    }

    /// Waits until all jobs are done (false), or until one exceeds `deadline` or the remaining time
    /// until `end` and is abandoned (true).
    fn wait(&mut self, deadline: Duration, end: Instant, round: &mut Round) -> bool {
        let mut state = self.shared.lock();
        loop {
            let since = match state.current {
                None if state.jobs.is_empty() => return false,
                None => Instant::now(),
                Some((_, since)) => since,
            };
            let waited = since.elapsed();
            let allowed = deadline.min(end.saturating_duration_since(since));
            if waited >= allowed {
                if let Some((index, _)) = state.current.take() {
                    round.hung.push((index, waited));
                }
                state.thread += 1;
                self.running = false;
                return true;
            }
            let left = allowed.saturating_sub(waited);
            let (next, _) = self
                .shared
                .done
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner);
            state = next;
        }
    }

    fn start(&mut self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let number = shared.lock().thread;
        std::thread::Builder::new()
            .name("collector".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || work(&shared, number))?;
        self.running = true;
        Ok(())
    }

    /// Returns the remaining jobs as failed with this reason.
    fn fail_remaining(&mut self, round: &mut Round, why: &str) {
        let jobs = std::mem::take(&mut self.shared.lock().jobs);
        round.finished.extend(jobs.into_iter().map(|job| FinishedRun {
            index: job.index,
            collector: Some(job.collector),
            outcome: RunOutcome::Failed(CollectError::failed(why)),
            dropped: 0,
            took: Duration::ZERO,
        }));
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_all();
    }
}

/// Main loop of the thread with this number. Ends when the thread is no longer the current one.
fn work(shared: &Shared, number: u64) {
    let mut scratch = Page::new();
    let mut state = shared.lock();
    while !state.closed && state.thread == number {
        let Some(mut job) = state.jobs.pop_front() else {
            shared.done.notify_one();
            state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        let begun = Instant::now();
        state.current = Some((job.index, begun));
        let prepared = catch_unwind(AssertUnwindSafe(|| job.collector.before_collect(&state.page)));
        drop(state);
        let mut finished = match prepared {
            Ok(()) => run(job, &mut scratch),
            Err(_) => panicked(job.index, &mut scratch),
        };
        finished.took = begun.elapsed();
        state = shared.lock();
        if state.thread != number {
            state.late.push((finished.index, finished.collector));
            return;
        }
        state.current = None;
        state.page.append(&scratch);
        state.finished.push(finished);
    }
}

/// Runs a collector on an empty page, which stays empty if the collector fails completely.
fn run(job: Job, page: &mut Page) -> FinishedRun {
    page.clear();
    let Job {
        index,
        mut collector,
        limit,
    } = job;
    let result = catch_unwind(AssertUnwindSafe(|| {
        let done = collector.collect(page);
        if !matches!(done, Ok(()) | Err(CollectError::Partly(_))) {
            page.clear();
        }
        (page.keep(limit), done)
    }));
    let Ok((dropped, done)) = result else {
        return panicked(index, page);
    };
    FinishedRun {
        index,
        collector: Some(collector),
        outcome: done.map_or_else(RunOutcome::Failed, |()| RunOutcome::Written),
        dropped,
        took: Duration::ZERO,
    }
}

fn panicked(index: usize, page: &mut Page) -> FinishedRun {
    page.clear();
    FinishedRun {
        index,
        collector: None,
        outcome: RunOutcome::Failed(CollectError::failed("it panicked")),
        dropped: 0,
        took: Duration::ZERO,
    }
}
