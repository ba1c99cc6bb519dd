//! Asks many mounts for their space without ever hanging on one.
//!
//! ```text
//! owner ── targets ──▶ queue ──▶ worker threads ── statfs ──▶ answers ──▶ owner, at the latest at its deadline
//!                                   └─ a call that does not return keeps its thread, and its mount is stuck
//! ```
//! - One thread asks all mounts while they answer, and wakes the owner once, at the end: a scrape of many mounts costs two
//!   switches of threads, not two for each mount.
//! - A mount that does not answer by the deadline is *stuck*: until its call returns, it is not asked again, and later
//!   probes say so at once. A mount that was mounted anew at the same place is another mount, and is asked.
//! - Healthy mounts do not wait behind slow ones: when nothing has been answered for [`PATIENCE`] and mounts still wait
//!   for a thread, another thread takes them, up to [`MAX_WORKERS`]. Surplus threads end when they find nothing to do.
//! - When every thread is stuck, the mounts that are left are given up at once instead of at the deadline.

use std::{
    collections::VecDeque,
    io,
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use nix::errno::Errno;

use crate::{FsSpace, Statfs};

/// Threads that are kept.
const KEPT_WORKERS: usize = 4;
/// Threads there are at the most, those in a call that does not return included.
const MAX_WORKERS: usize = 16;
/// How long nothing may be answered before another thread is started for the mounts that wait.
const PATIENCE: Duration = Duration::from_millis(50);
/// A worker only makes a system call.
const STACK: usize = 128 << 10;

/// A mount to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The mount's number in mountinfo: tells a mount from an earlier one at the same place.
    pub mount_id: u32,
    /// Where it is to be asked.
    pub path: Arc<Path>,
}

/// What a mount said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Its space.
    Space(FsSpace),
    /// An error.
    Failed(Errno),
    /// Nothing, in time.
    TimedOut,
}

/// The threads and what they know. Dropping it lets idle threads end; threads in a call end when it returns.
#[derive(Debug)]
pub struct MountProbe {
    shared: Arc<Shared>,
    timeout: Duration,
    /// The number of the latest probe.
    batch: u64,
}

struct Shared {
    statfs: Arc<dyn Statfs>,
    state: Mutex<State>,
    /// Something was put into the queue, or all is over.
    work: Condvar,
    /// Something was answered.
    answered: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Job>,
    /// What is in a call now.
    running: Vec<Job>,
    /// The latest batch: answers to earlier ones come too late.
    batch: u64,
    /// Answers to the latest batch.
    answers: Vec<(usize, Outcome)>,
    /// How many answers to the latest batch are still to come.
    missing: usize,
    workers: usize,
    closed: bool,
}

#[derive(Debug, Clone)]
struct Job {
    batch: u64,
    index: usize,
    target: Target,
}

impl MountProbe {
    /// No thread is started before the first probe. `timeout` is how long one probe of all mounts may take.
    pub fn new(statfs: Arc<dyn Statfs>, timeout: Duration) -> Self {
        Self {
            shared: Arc::new(Shared {
                statfs,
                state: Mutex::default(),
                work: Condvar::new(),
                answered: Condvar::new(),
            }),
            timeout,
            batch: 0,
        }
    }

    /// Asks all targets; the outcomes are in their order.
    ///
    /// Errors: no thread can be started, and none idles.
    pub fn probe(&mut self, targets: &[Target]) -> io::Result<Vec<Outcome>> {
        self.batch += 1;
        let deadline = Instant::now() + self.timeout;
        let mut outcomes = vec![Outcome::TimedOut; targets.len()];
        let mut state = self.shared.lock();
        state.answers.clear();
        state.batch = self.batch;
        for (index, target) in targets.iter().enumerate() {
            if !state.running.iter().any(|stuck| stuck.target == *target) {
                state.queue.push_back(Job {
                    batch: self.batch,
                    index,
                    target: target.clone(),
                });
            }
        }
        state.missing = state.queue.len();
        if state.missing > 0
            && let Err(error) = self.wake_worker(&mut state)
        {
            state.queue.clear();
            return Err(error);
        }
        let (mut progress, mut answered) = (Instant::now(), 0);
        loop {
            let now = Instant::now();
            if state.answers.len() > answered {
                answered = state.answers.len();
                progress = now;
            }
            if state.missing == 0 || now >= deadline || self.hopeless(&state) {
                break;
            }
            let waits = !state.queue.is_empty();
            if waits && now.duration_since(progress) >= PATIENCE {
                progress = now;
                if let Err(error) = self.wake_worker(&mut state) {
                    tracing::debug!(%error, "cannot start another thread for mounts that wait");
                }
            }
            let until = if waits {
                deadline.min(progress + PATIENCE)
            } else {
                deadline
            };
            state = self
                .shared
                .answered
                .wait_timeout(state, until.saturating_duration_since(now))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        for (index, outcome) in state.answers.drain(..) {
            outcomes[index] = outcome;
        }
        state.queue.clear();
        Ok(outcomes)
    }

    /// Every thread that there may be hangs in a mount of an earlier probe.
    fn hopeless(&self, state: &State) -> bool {
        let stuck = state.running.iter().filter(|job| job.batch != self.batch).count();
        stuck >= MAX_WORKERS
    }

    /// One more thread for the queue: one that idles, else a new one, up to the most that there may be.
    fn wake_worker(&self, state: &mut State) -> io::Result<()> {
        if state.workers > state.running.len() {
            self.shared.work.notify_one();
            return Ok(());
        }
        if state.workers >= MAX_WORKERS {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        thread::Builder::new()
            .name("mount-probe".to_owned())
            .stack_size(STACK)
            .spawn(move || shared.work())?;
        state.workers += 1;
        Ok(())
    }
}

impl Drop for MountProbe {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_all();
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker's life.
    fn work(&self) {
        let mut state = self.lock();
        while !state.closed {
            let Some(job) = state.queue.pop_front() else {
                if state.workers - state.running.len() > KEPT_WORKERS {
                    break;
                }
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.running.push(job.clone());
            drop(state);
            let outcome = match self.statfs.statfs(&job.target.path) {
                Ok(space) => Outcome::Space(space),
                Err(errno) => Outcome::Failed(errno),
            };
            state = self.lock();
            state
                .running
                .retain(|other| (other.batch, other.index) != (job.batch, job.index));
            if job.batch == state.batch {
                state.answers.push((job.index, outcome));
                state.missing = state.missing.saturating_sub(1);
                // The owner looks in by itself meanwhile, now and then.
                if state.missing == 0 {
                    self.answered.notify_all();
                }
            }
        }
        state.workers -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::HashMap,
        path::PathBuf,
        sync::mpsc::{Receiver, Sender, channel},
    };

    use super::*;

    /// Answers at once, except where it has a gate: there it hangs until the gate's other end is dropped.
    #[derive(Default)]
    struct Gated(Mutex<HashMap<PathBuf, Receiver<()>>>);

    impl Gated {
        fn hang(&self, path: &str) -> Sender<()> {
            let (open, gate) = channel();
            self.0.lock().unwrap().insert(path.into(), gate);
            open
        }
    }

    impl Statfs for Gated {
        fn statfs(&self, path: &Path) -> Result<FsSpace, Errno> {
            let gate = self.0.lock().unwrap().remove(path);
            if let Some(gate) = gate {
                assert!(gate.recv().is_err(), "a gate opens by being dropped");
            }
            match path.to_str() {
                Some("/gone") => Err(Errno::ENOENT),
                _ => Ok(FsSpace::default()),
            }
        }
    }

    const SPACE: Outcome = Outcome::Space(FsSpace {
        size: 0,
        free: 0,
        available: 0,
        files: 0,
        files_free: 0,
    });
    /// A probe that would wait for a stuck mount runs into the test runner's limit instead.
    const FOREVER: Duration = Duration::from_hours(1);

    fn target(path: &str) -> Target {
        Target {
            mount_id: 1,
            path: Path::new(path).into(),
        }
    }

    fn probe(statfs: &Arc<Gated>, timeout: u64) -> MountProbe {
        MountProbe::new(
            Arc::clone(statfs) as Arc<dyn Statfs>,
            Duration::from_millis(timeout),
        )
    }

    #[test]
    fn outcomes_stand_in_the_targets_order() {
        let mut probe = probe(&Arc::default(), 3_600_000);
        assert!(probe.probe(&[]).unwrap().is_empty());
        let targets: Vec<_> = ["/", "/gone", "/a", "/b", "/c", "/d", "/gone"].map(target).into();
        let failed = Outcome::Failed(Errno::ENOENT);
        for _ in 0..50 {
            assert_eq!(
                probe.probe(&targets).unwrap(),
                [SPACE, failed, SPACE, SPACE, SPACE, SPACE, failed]
            );
        }
    }

    #[test]
    fn a_stuck_mount_delays_one_probe_and_no_other_until_it_answers() {
        let statfs = Arc::<Gated>::default();
        let open = statfs.hang("/nfs");
        let mut probe = probe(&statfs, 100);
        let targets = [target("/nfs"), target("/")];
        assert_eq!(probe.probe(&targets).unwrap(), [Outcome::TimedOut, SPACE]);
        probe.timeout = FOREVER;
        for _ in 0..10 {
            assert_eq!(probe.probe(&targets).unwrap(), [Outcome::TimedOut, SPACE]);
        }
        let anew = Target {
            mount_id: 2,
            ..target("/nfs")
        };
        assert_eq!(
            probe.probe(&[anew]).unwrap(),
            [SPACE],
            "another mount at the same place"
        );
        drop(open);
        let deadline = Instant::now() + Duration::from_secs(30);
        while probe.probe(&targets).unwrap() != [SPACE, SPACE] {
            assert!(Instant::now() < deadline, "the mount answers again");
            thread::yield_now();
        }
    }

    #[test]
    fn healthy_mounts_do_not_wait_behind_hung_ones() {
        let statfs = Arc::<Gated>::default();
        let paths: Vec<_> = (0..10).map(|n| format!("/hung/{n}")).collect();
        let gates: Vec<_> = paths.iter().map(|path| statfs.hang(path)).collect();
        let mut targets: Vec<_> = paths.iter().map(|path| target(path)).collect();
        targets.push(target("/"));
        let outcomes = probe(&statfs, 3_000).probe(&targets).unwrap();
        assert_eq!(outcomes[10], SPACE);
        assert!(outcomes[..10].iter().all(|o| *o == Outcome::TimedOut));
        drop(gates);
    }

    #[test]
    fn threads_are_bounded_and_when_all_hang_nothing_waits() {
        let statfs = Arc::<Gated>::default();
        let paths: Vec<_> = (0..MAX_WORKERS + 4).map(|n| format!("/hung/{n}")).collect();
        let gates: Vec<_> = paths.iter().map(|path| statfs.hang(path)).collect();
        let mut probe = probe(&statfs, 200);
        let targets: Vec<_> = paths.iter().map(|path| target(path)).collect();
        let deadline = Instant::now() + Duration::from_secs(30);
        while probe.shared.lock().running.len() < MAX_WORKERS {
            assert!(
                probe
                    .probe(&targets)
                    .unwrap()
                    .iter()
                    .all(|o| *o == Outcome::TimedOut)
            );
            assert!(Instant::now() < deadline, "every thread hangs in the end");
        }
        probe.timeout = FOREVER;
        assert_eq!(probe.probe(&[target("/")]).unwrap(), [Outcome::TimedOut]);
        assert_eq!(probe.shared.lock().workers, MAX_WORKERS);
        drop(gates);
        let deadline = Instant::now() + Duration::from_secs(30);
        while probe.probe(&[target("/")]).unwrap() != [SPACE] || probe.shared.lock().workers > KEPT_WORKERS {
            assert!(Instant::now() < deadline, "surplus threads end");
            thread::yield_now();
        }
    }

    #[test]
    fn threads_end_with_the_probe() {
        let mut probe = probe(&Arc::default(), 3_600_000);
        probe.probe(&[target("/"), target("/a")]).unwrap();
        let shared = Arc::downgrade(&probe.shared);
        drop(probe);
        let deadline = Instant::now() + Duration::from_secs(30);
        while shared.strong_count() > 0 {
            assert!(Instant::now() < deadline, "idle threads end");
            thread::yield_now();
        }
    }
}
