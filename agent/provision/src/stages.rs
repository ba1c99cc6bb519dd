//! One run: takes the lock and the reconcile requests, runs the steps, and writes the record.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::Serialize;
use virtfleet_agent_core::{
    VERSION,
    identity::cloud::plain,
    pass::{GuestRecord, RunOutcome, Stage, StageRecord, StepRecord, blocked_by, sum_up},
};
use virtfleet_agent_host::{
    LockError, Requester, Roots, Services, TakenRequests, clock, is_directory, is_root, lock_waiting,
    read_text, request_reconcile, sweep_temporary_files, take_requests,
};
use virtfleet_agent_state::{GUEST_RECORD, WriteStateError, settings::LoadedSettings};

use super::{
    guest::{Guest, Report},
    steps::Step,
};

/// Lock of a whole run. Two runs at the same time would undo each other's changes.
pub const LOCK_FILE: &str = "/run/virtfleet/apply.lock";
/// Default time that an admin's run waits for another run, which may copy files to a new disk or
/// read all of a disk.
pub const ADMIN_LOCK_TIMEOUT: Duration = Duration::from_mins(30);

/// How long a stage's run waits for another run. It is less than half of its unit's start timeout,
/// so that systemd does not kill the run in the middle of its own work.
pub(super) fn lock_timeout(stages: &[Stage]) -> Duration {
    match stages {
        [Stage::Provision] => Duration::from_mins(2),
        [Stage::Dns] => Duration::from_secs(40),
        [Stage::Reconcile] => Duration::from_mins(4),
        _ => ADMIN_LOCK_TIMEOUT,
    }
}

/// Why there was no run, or no record of it.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// Not root: the steps change the machine.
    #[error(
        "only root can apply; run this as root, or ask a running system: systemctl start virtfleet-reconcile.service"
    )]
    NotRoot,
    /// There is no root filesystem to work on. The agent creates directories only inside of one.
    #[error("--path.rootfs: {} is no directory; name the guest's root filesystem", .0.display())]
    NoRootfs(PathBuf),
    /// Another run did not end in time.
    #[error("another reconcile run is in progress")]
    Lock(#[from] LockError),
    #[error("the steps ran, but their results cannot be recorded")]
    Record(#[from] WriteStateError),
}

/// Result of one stage's run, for output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Applied {
    pub stage: Stage,
    #[serde(flatten)]
    pub record: StageRecord,
}

/// Runs each of `stages` once, with the steps of `table`. Root only.
///
/// Waits at most `wait` for another run. While it waits, it calls `tell` with what holds the lock.
/// A stage whose wait ends leaves a reconcile request in `/run/virtfleet/ask`, so that a later run
/// does its work.
///
/// `settings` loads the settings on disk. A run of the stage `reconcile` takes the requests in
/// `/run/virtfleet/ask`. The other stages leave them, because they do not run all steps that may
/// have been requested.
///
/// # Errors
/// See [`ApplyError`].
pub fn apply(
    roots: &Roots,
    settings: &dyn Fn() -> LoadedSettings,
    services: &dyn Services,
    table: &[Step],
    stages: &[Stage],
    wait: Option<Duration>,
    tell: &mut dyn FnMut(&str),
) -> Result<Vec<Applied>, ApplyError> {
    if !is_directory(&roots.rootfs) {
        return Err(ApplyError::NoRootfs(roots.rootfs.clone()));
    }
    if !is_root() {
        return Err(ApplyError::NotRoot);
    }
    let services = (roots.rootfs == Path::new("/")).then_some(services);
    let lock_timeout = wait.unwrap_or_else(|| lock_timeout(stages));
    let applied = apply_within(roots, settings, services, table, stages, lock_timeout, tell);
    if let (Err(ApplyError::Lock(_)), [_]) = (&applied, stages)
        && let Err(error) = request_reconcile(roots, Requester::Agent)
    {
        tracing::warn!(%error, "the retry could not be queued");
    }
    applied
}

pub(super) fn apply_within(
    roots: &Roots,
    settings: &dyn Fn() -> LoadedSettings,
    services: Option<&dyn Services>,
    table: &[Step],
    stages: &[Stage],
    lock_timeout: Duration,
    tell: &mut dyn FnMut(&str),
) -> Result<Vec<Applied>, ApplyError> {
    // The unit's start timeout also runs during the wait for another run.
    let (mut start, mut began) = (clock(), Instant::now());
    let lock = lock_waiting(&roots.root(LOCK_FILE), lock_timeout, "apply", tell)?;
    // No other run writes while this one holds the lock.
    for path in sweep_temporary_files(roots) {
        tracing::info!(path, "removed a temporary file that a killed run left");
    }
    let boot_id = boot_id(roots);
    let mut record = GUEST_RECORD
        .read(roots, &boot_id)
        .unwrap_or_else(|_| GuestRecord::new(&boot_id));
    let mut applied = Vec::new();
    for &stage in stages {
        let taken = if stage == Stage::Reconcile {
            take_requests(roots)
        } else {
            TakenRequests::default()
        };
        // Read after the requests were taken: a later change leaves a request of its own.
        let settings = settings();
        let mut guest = Guest {
            roots,
            settings: &settings,
            services,
            stage,
            began,
            record: &mut record,
            lock: &lock,
        };
        let mut steps = run_steps(table, stage, &mut guest);
        steps.extend(taken.stuck.map(|message| StepRecord {
            name: "triggers".to_owned(),
            outcome: RunOutcome::Failed,
            message,
            ..StepRecord::default()
        }));
        let end = clock();
        let stage_record = StageRecord {
            outcome: sum_up(&steps),
            started_at: start.realtime_ns,
            ended_at_boottime_ns: end.boottime_ns,
            duration_ms: end.boottime_ns.saturating_sub(start.boottime_ns) / 1_000_000,
            triggers: taken.names,
            version: VERSION.to_owned(),
            steps,
        };
        record.stages.insert(stage, stage_record.clone());
        // Recorded after each stage, so that a kill in a later stage does not lose it.
        GUEST_RECORD.write(roots, &record)?;
        applied.push(Applied {
            stage,
            record: stage_record,
        });
        (start, began) = (end, Instant::now());
    }
    Ok(applied)
}

fn run_steps(table: &[Step], stage: Stage, guest: &mut Guest<'_>) -> Vec<StepRecord> {
    let mut steps: Vec<StepRecord> = Vec::new();
    for step in table.iter().filter(|step| step.plan.stages.contains(&stage)) {
        let blocked = blocked_by(&step.plan, &steps);
        guest
            .lock
            .say(&format!("stage {}, step {}", stage.word(), step.plan.name));
        let report = match blocked {
            Some(needed) => Report::new(
                RunOutcome::Skipped,
                format!("not run: {needed} must succeed first"),
            ),
            // A panic fails one step only. The next run observes what it may have left half done.
            None => catch_unwind(AssertUnwindSafe(|| (step.run)(guest))).unwrap_or_else(|_| {
                Report::new(RunOutcome::Failed, "it panicked; the log of the unit says where")
            }),
        };
        steps.push(StepRecord {
            name: step.plan.name.to_owned(),
            outcome: report.outcome,
            // One line, whatever text a file or a program contributed.
            message: report.message.replace(char::is_control, " "),
            blocked: blocked.is_some(),
            problems: report.problems,
        });
    }
    steps
}

/// The boot ID; empty if it cannot be read.
fn boot_id(roots: &Roots) -> String {
    let text = read_text(&roots.proc("sys/kernel/random/boot_id"), 256).unwrap_or_default();
    plain(&text).unwrap_or_default()
}
