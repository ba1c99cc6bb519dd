//! Filesystem usage (statfs) of many mounts, never blocked by a mount that hangs.
//!
//! ```text
//! owner ── targets ──▶ queue ──▶ worker threads ── statfs ──▶ results ──▶ owner (deadline)
//!                                  └─ a call that does not return keeps its thread; its mount is stuck
//! ```
//! - One thread probes all mounts while they respond, and wakes the owner once at the end: a scrape
//!   of many mounts costs two context switches, not two per mount.
//! - A mount that does not respond by the deadline is *stuck*: until its call returns it is not
//!   probed again, and later probes report the timeout at once. A new mount at the same place has
//!   another id and is probed.
//! - Healthy mounts do not wait behind slow ones: if no result has arrived for [`STALL_TIMEOUT`]
//!   and mounts are still queued, another thread is started, up to [`MAX_WORKERS`]. Surplus threads
//!   exit when the queue is empty.
//! - If every thread is stuck, the remaining mounts time out at once instead of at the deadline.

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

/// Number of idle threads that are kept.
const MAX_IDLE_WORKERS: usize = 4;
/// Maximum number of threads, including stuck ones.
const MAX_WORKERS: usize = 16;
/// Maximum time without a result before another thread is started for queued mounts.
const STALL_TIMEOUT: Duration = Duration::from_millis(50);
/// Stack size of a worker in bytes; it only makes a system call.
const STACK_BYTES: usize = 128 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountTarget {
    /// Mount id from mountinfo. It distinguishes a mount from an earlier one at the same place.
    pub mount_id: u32,
    pub path: Arc<Path>,
}

/// Result of probing a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatfsOutcome {
    Space(FsSpace),
    /// The error of statfs(2).
    Failed(Errno),
    /// No result by the deadline.
    TimedOut,
}

/// The worker threads and their queue. Dropping it ends idle threads; a thread in a call ends when
/// the call returns.
#[derive(Debug)]
pub struct MountProbe {
    shared: Arc<Shared>,
    timeout: Duration,
    /// Number of the latest probe.
    batch: u64,
}

struct Shared {
    statfs: Arc<dyn Statfs>,
    state: Mutex<State>,
    /// Signaled when the queue has work, or on shutdown.
    work: Condvar,
    /// Signaled when a result arrives.
    answered: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Job>,
    /// Mounts whose call is in progress.
    running: Vec<Job>,
    /// The latest batch. Results of earlier batches are dropped.
    batch: u64,
    /// Results of the latest batch.
    answers: Vec<(usize, StatfsOutcome)>,
    /// Number of outstanding results of the latest batch.
    missing: usize,
    workers: usize,
    closed: bool,
}

#[derive(Debug, Clone)]
struct Job {
    batch: u64,
    index: usize,
    target: MountTarget,
}

impl MountProbe {
    /// Starts no thread before the first probe. `timeout`: maximum time for one probe of all
    /// mounts.
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

    /// Probes all targets. The results are in the order of the targets.
    ///
    /// # Errors
    /// No thread can be started and none is idle.
    pub fn probe(&mut self, targets: &[MountTarget]) -> io::Result<Vec<StatfsOutcome>> {
        self.batch += 1;
        let deadline = Instant::now() + self.timeout;
        let mut outcomes = vec![StatfsOutcome::TimedOut; targets.len()];
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
            if state.missing == 0 || now >= deadline || self.all_stuck(&state) {
                break;
            }
            let waits = !state.queue.is_empty();
            if waits && now.duration_since(progress) >= STALL_TIMEOUT {
                progress = now;
                if let Err(error) = self.wake_worker(&mut state) {
                    tracing::debug!(%error, "cannot start another thread for queued mounts");
                }
            }
            let until = if waits {
                deadline.min(progress + STALL_TIMEOUT)
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

    /// True if every permitted thread is stuck in a mount of an earlier probe.
    fn all_stuck(&self, state: &State) -> bool {
        let stuck = state.running.iter().filter(|job| job.batch != self.batch).count();
        stuck >= MAX_WORKERS
    }

    /// Provides one more thread for the queue: an idle one, or a new one up to the maximum.
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
            .stack_size(STACK_BYTES)
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

    /// Main loop of a worker.
    fn work(&self) {
        let mut state = self.lock();
        while !state.closed {
            let Some(job) = state.queue.pop_front() else {
                if state.workers - state.running.len() > MAX_IDLE_WORKERS {
                    break;
                }
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.running.push(job.clone());
            drop(state);
            let outcome = match self.statfs.statfs(&job.target.path) {
                Ok(space) => StatfsOutcome::Space(space),
                Err(errno) => StatfsOutcome::Failed(errno),
            };
            state = self.lock();
            state
                .running
                .retain(|other| (other.batch, other.index) != (job.batch, job.index));
            if job.batch == state.batch {
                state.answers.push((job.index, outcome));
                state.missing = state.missing.saturating_sub(1);
                // The owner also polls, so it is woken only at the end.
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

    /// Answers at once. A path with a gate hangs until the gate's other end is dropped.
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

    const SPACE: StatfsOutcome = StatfsOutcome::Space(FsSpace {
        size: 0,
        free: 0,
        available: 0,
        files: 0,
        files_free: 0,
    });
    /// Longer than the test runner's limit: a probe that waits for a stuck mount fails there.
    const FOREVER: Duration = Duration::from_hours(1);

    fn target(path: &str) -> MountTarget {
        MountTarget {
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
    fn results_are_in_the_order_of_the_targets() {
        let mut probe = probe(&Arc::default(), 3_600_000);
        assert!(probe.probe(&[]).unwrap().is_empty());
        let targets: Vec<_> = ["/", "/gone", "/a", "/b", "/c", "/d", "/gone"].map(target).into();
        let failed = StatfsOutcome::Failed(Errno::ENOENT);
        for _ in 0..50 {
            assert_eq!(
                probe.probe(&targets).unwrap(),
                [SPACE, failed, SPACE, SPACE, SPACE, SPACE, failed]
            );
        }
    }

    #[test]
    fn a_stuck_mount_delays_only_one_probe() {
        let statfs = Arc::<Gated>::default();
        let open = statfs.hang("/nfs");
        let mut probe = probe(&statfs, 100);
        let targets = [target("/nfs"), target("/")];
        assert_eq!(probe.probe(&targets).unwrap(), [StatfsOutcome::TimedOut, SPACE]);
        probe.timeout = FOREVER;
        for _ in 0..10 {
            assert_eq!(probe.probe(&targets).unwrap(), [StatfsOutcome::TimedOut, SPACE]);
        }
        let remounted = MountTarget {
            mount_id: 2,
            ..target("/nfs")
        };
        assert_eq!(
            probe.probe(&[remounted]).unwrap(),
            [SPACE],
            "another mount at the same place"
        );
        drop(open);
        let deadline = Instant::now() + Duration::from_secs(30);
        while probe.probe(&targets).unwrap() != [SPACE, SPACE] {
            assert!(Instant::now() < deadline, "the mount responds again");
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
        assert!(outcomes[..10].iter().all(|o| *o == StatfsOutcome::TimedOut));
        drop(gates);
    }

    #[test]
    fn threads_are_bounded_and_stuck_threads_cause_no_wait() {
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
                    .all(|o| *o == StatfsOutcome::TimedOut)
            );
            assert!(Instant::now() < deadline, "every thread is stuck in the end");
        }
        probe.timeout = FOREVER;
        assert_eq!(probe.probe(&[target("/")]).unwrap(), [StatfsOutcome::TimedOut]);
        assert_eq!(probe.shared.lock().workers, MAX_WORKERS);
        drop(gates);
        let deadline = Instant::now() + Duration::from_secs(30);
        while probe.probe(&[target("/")]).unwrap() != [SPACE]
            || probe.shared.lock().workers > MAX_IDLE_WORKERS
        {
            assert!(Instant::now() < deadline, "surplus threads exit");
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
            assert!(Instant::now() < deadline, "idle threads exit");
            thread::yield_now();
        }
    }
}
