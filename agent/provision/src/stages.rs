//! One pass: lock, take the wishes, run the steps, write the record.

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

/// Held for a whole pass: two would undo each other's work.
pub const LOCK_FILE: &str = "/run/virtfleet/apply.lock";
/// How long a person's pass waits for another one, which may copy files to a new disk, or read all of one.
pub const PATIENCE: Duration = Duration::from_mins(30);

/// How long a stage's pass waits for another one. Less than half of its unit's start timeout, so that it is not cut off in the middle of its own work.
pub(super) fn patience(stages: &[Stage]) -> Duration {
    match stages {
        [Stage::Provision] => Duration::from_mins(2),
        [Stage::Dns] => Duration::from_secs(40),
        [Stage::Reconcile] => Duration::from_mins(4),
        _ => PATIENCE,
    }
}

/// Why there was no pass, or no record of it.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// Steps change the machine.
    #[error(
        "only root can apply; run this as root, or ask a running system: systemctl start virtfleet-reconcile.service"
    )]
    NotRoot,
    /// There is no root filesystem to work on; directories are made only inside of one.
    #[error("--path.rootfs: {} is no directory; name the guest's root filesystem", .0.display())]
    NoRootfs(PathBuf),
    /// Another pass takes too long.
    #[error("another pass is under way")]
    Lock(#[from] LockError),
    /// The steps ran, and what came of them could not be written down.
    #[error("the passes were made and cannot be recorded")]
    Record(#[from] WriteStateError),
}

/// One stage's pass, as it is printed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Applied {
    /// The stage.
    pub stage: Stage,
    /// What came of it.
    #[serde(flatten)]
    pub record: StageRecord,
}

/// Makes one pass of each of `stages`, with the steps of `table`. Root only.
///
/// `wait` says how long another pass is waited for, and `tell` hears meanwhile whose. A stage that is not waited for any longer leaves a wish in
/// `/run/virtfleet/ask`, so that a reconcile does what it could not.
///
/// `settings` loads those on disk. A pass with the stage `reconcile` takes the wishes in `/run/virtfleet/ask`; the others leave them for it, because they do
/// not do all that may have been asked for.
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
    let patience = wait.unwrap_or_else(|| patience(stages));
    let applied = apply_within(roots, settings, services, table, stages, patience, tell);
    if let (Err(ApplyError::Lock(_)), [_]) = (&applied, stages)
        && let Err(error) = request_reconcile(roots, Requester::Agent)
    {
        tracing::warn!(%error, "nobody does later what this pass could not");
    }
    applied
}

pub(super) fn apply_within(
    roots: &Roots,
    settings: &dyn Fn() -> LoadedSettings,
    services: Option<&dyn Services>,
    table: &[Step],
    stages: &[Stage],
    patience: Duration,
    tell: &mut dyn FnMut(&str),
) -> Result<Vec<Applied>, ApplyError> {
    // A unit's time runs from here, also while another pass is waited for.
    let (mut start, mut began) = (clock(), Instant::now());
    let lock = lock_waiting(&roots.root(LOCK_FILE), patience, "apply", tell)?;
    // Under the lock, so that no other run is writing.
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
        // Read after the wishes were taken: a change that comes later leaves a wish of its own.
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
        // After each, so that a later stage that is killed does not take an earlier one's record with it.
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
                format!("left out: {needed} must succeed first"),
            ),
            // A panic is a failure of one step; what it may leave half done is the machine's state, which the next pass
            // observes anew.
            None => catch_unwind(AssertUnwindSafe(|| (step.run)(guest))).unwrap_or_else(|_| {
                Report::new(RunOutcome::Failed, "it panicked; the log of the unit says where")
            }),
        };
        steps.push(StepRecord {
            name: step.plan.name.to_owned(),
            outcome: report.outcome,
            // One line, whatever a file or a program had to say.
            message: report.message.replace(char::is_control, " "),
            blocked: blocked.is_some(),
            problems: report.problems,
        });
    }
    steps
}

/// The boot id; empty when it cannot be read.
fn boot_id(roots: &Roots) -> String {
    let text = read_text(&roots.proc("sys/kernel/random/boot_id"), 256).unwrap_or_default();
    plain(&text).unwrap_or_default()
}
