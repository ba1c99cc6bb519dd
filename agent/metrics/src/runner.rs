//! Plays collectors on a thread of its own, so that one that hangs in the kernel costs its own series and nothing else.
//!
//! ```text
//! Runner::play ── jobs ──▶ thread: one after the other ── page, done ──▶ Runner::play returns
//!                              │ a job takes longer than the deadline
//!                              └▶ left alone with its collector; a new thread goes on with the rest
//! ```
//! Both sides meet in one `State` behind a lock. A round wakes each side once, however many collectors it has. A thread
//! that was left alone gives its collector back when the kernel lets it go, and ends.

use std::{
    collections::VecDeque,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use virtfleet_wire::exposition::Page;

use super::{CollectError, Collector};

/// What a round may take beyond the deadline of one collector: a page comes even when several hang at once.
const BEYOND: Duration = Duration::from_millis(1500);
/// The stack of a thread that collects: parsers are flat.
const STACK: usize = 512 << 10;

/// A collector to be played once.
pub(super) struct Job {
    /// Its place in the registry.
    pub(super) index: usize,
    pub(super) collector: Box<dyn Collector>,
    /// Series that it may write.
    pub(super) limit: usize,
}

/// How it went.
pub(super) enum Outcome {
    /// Its families are on the page.
    Written,
    /// Those of [`CollectError::Partly`] are as well.
    Failed(CollectError),
}

/// A collector that was played.
pub(super) struct Played {
    pub(super) index: usize,
    /// None after a panic.
    pub(super) collector: Option<Box<dyn Collector>>,
    pub(super) outcome: Outcome,
    /// Series of its families that are not on the page.
    pub(super) dropped: usize,
    pub(super) took: Duration,
}

/// A round of all jobs.
#[derive(Default)]
pub(super) struct Round {
    /// What was played, in order.
    pub(super) played: Vec<Played>,
    /// Those that took too long, and how long they were waited for. Their collectors come back with [`Runner::late`].
    pub(super) hung: Vec<(usize, Duration)>,
}

#[derive(Default)]
struct State {
    /// Counts the threads; only the newest one works.
    thread: u64,
    jobs: VecDeque<Job>,
    /// The job under way, and since when.
    current: Option<(usize, Instant)>,
    page: Page,
    played: Vec<Played>,
    late: Vec<(usize, Option<Box<dyn Collector>>)>,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// There are jobs, or nothing will come any more.
    work: Condvar,
    /// All jobs are done.
    done: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Whatever can panic under the lock is caught there.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module. The thread starts with the first round and ends with this value.
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

    /// Collectors that were left alone in an earlier round and have come back since; none for one that panicked.
    pub(super) fn late(&self) -> Vec<(usize, Option<Box<dyn Collector>>)> {
        std::mem::take(&mut self.shared.lock().late)
    }

    /// Plays all jobs and appends what they write to `page`, in their order. None may take longer than `deadline`.
    pub(super) fn play(&mut self, jobs: VecDeque<Job>, deadline: Duration, page: &mut Page) -> Round {
        let mut round = Round::default();
        if jobs.is_empty() {
            return round;
        }
        self.shared.lock().jobs = jobs;
        let end = Instant::now() + deadline + BEYOND;
        loop {
            if !self.running
                && let Err(error) = self.start()
            {
                self.give_back(&mut round, &format!("no thread can be started: {error}"));
                break;
            }
            self.shared.work.notify_one();
            if !self.wait(deadline, end, &mut round) {
                break;
            }
            if Instant::now() >= end {
                self.give_back(&mut round, "no time was left for it in this scrape");
                break;
            }
        }
        let mut state = self.shared.lock();
        round.played.append(&mut state.played);
        page.append(&state.page);
        state.page.clear();
        round
    }

    /// Waits until all jobs are done, or one takes longer than `deadline`, or than what is left until `end`, and is left
    /// alone: then there is more to wait for.
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
            .stack_size(STACK)
            .spawn(move || work(&shared, number))?;
        self.running = true;
        Ok(())
    }

    /// What is still to be played is not, and each collector says why.
    fn give_back(&mut self, round: &mut Round, why: &str) {
        let jobs = std::mem::take(&mut self.shared.lock().jobs);
        round.played.extend(jobs.into_iter().map(|job| Played {
            index: job.index,
            collector: Some(job.collector),
            outcome: Outcome::Failed(CollectError::failed(why)),
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

/// What the thread with this number does until it is no longer the newest.
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
        let told = catch_unwind(AssertUnwindSafe(|| job.collector.behind(&state.page)));
        drop(state);
        let mut played = match told {
            Ok(()) => play(job, &mut scratch),
            Err(_) => panicked(job.index, &mut scratch),
        };
        played.took = begun.elapsed();
        state = shared.lock();
        if state.thread != number {
            state.late.push((played.index, played.collector));
            return;
        }
        state.current = None;
        state.page.append(&scratch);
        state.played.push(played);
    }
}

/// Plays a collector onto an empty page, which stays empty when it fails as a whole.
fn play(job: Job, page: &mut Page) -> Played {
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
    Played {
        index,
        collector: Some(collector),
        outcome: done.map_or_else(Outcome::Failed, |()| Outcome::Written),
        dropped,
        took: Duration::ZERO,
    }
}

fn panicked(index: usize, page: &mut Page) -> Played {
    page.clear();
    Played {
        index,
        collector: None,
        outcome: Outcome::Failed(CollectError::failed("it panicked")),
        dropped: 0,
        took: Duration::ZERO,
    }
}
