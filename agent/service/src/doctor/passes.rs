//! Checks of root's reconcile runs, and of the drop-ins that make kubelet and containerd wait for
//! them.

use virtfleet_agent_core::pass::{RunOutcome, Stage, StageRecord};

use super::{CheckResult, CheckStatus, Seen};

/// Age of a reconcile run above which it is a warning, in milliseconds: a day. The slow timer
/// requests one more often.
const MAX_AGE_MS: u64 = 86_400_000;

pub(super) fn passes(seen: &Seen) -> Vec<CheckResult> {
    let mut lines: Vec<CheckResult> = match &seen.passes {
        Err(reason) => {
            let next = format!("sudo systemctl start {}", Stage::Provision.unit());
            vec![warn("passes", reason.clone(), next)]
        }
        Ok(record) => Stage::ALL
            .iter()
            .map(|stage| {
                let age_ms = record.age_ms(*stage, seen.clock.boottime_ns);
                one(*stage, record.stages.get(stage).zip(age_ms))
            })
            .collect(),
    };
    lines.extend(seen.drop_ins.iter().map(|(unit, there)| {
        let what = format!("drop-in {unit}");
        if *there {
            ok(what, "waits for provisioning".to_owned())
        } else {
            let detail = "not there: the service may start before its disks and DNS are ready";
            warn(what, detail.to_owned(), format!("systemctl cat {unit}"))
        }
    }));
    lines
}

fn one(stage: Stage, done: Option<(&StageRecord, u64)>) -> CheckResult {
    let what = stage.word().to_owned();
    let log = format!("journalctl -b -u {}", stage.unit());
    let start = format!("sudo systemctl start {}", stage.unit());
    let Some((done, age_ms)) = done else {
        return match stage {
            // It runs at the first event or timer.
            Stage::Reconcile => ok(
                what,
                "has not run in this boot; nothing has requested it".to_owned(),
            ),
            Stage::Provision | Stage::Dns => warn(what, "has not run in this boot".to_owned(), start),
        };
    };
    let ago = format!("{} min ago", age_ms / 60_000);
    let failed = done.steps.iter().find(|step| step.outcome == RunOutcome::Failed);
    match failed {
        Some(step) => CheckResult {
            status: CheckStatus::Fail,
            detail: format!("{ago}, step {} failed: {}", step.name, step.message),
            what,
            next: log,
        },
        None if stage == Stage::Reconcile && age_ms > MAX_AGE_MS => warn(
            what,
            ago,
            "systemctl list-timers virtfleet-reconcile.timer".to_owned(),
        ),
        None if done.outcome == RunOutcome::Skipped => ok(what, format!("{ago}, nothing to do")),
        None => {
            let names: Vec<_> = done.steps.iter().map(|step| step.name.as_str()).collect();
            ok(what, format!("{ago}: {}", names.join(", ")))
        }
    }
}

fn ok(what: String, detail: String) -> CheckResult {
    CheckResult {
        status: CheckStatus::Ok,
        what,
        detail,
        next: String::new(),
    }
}

fn warn(what: impl Into<String>, detail: String, next: String) -> CheckResult {
    CheckResult {
        status: CheckStatus::Warn,
        what: what.into(),
        detail,
        next,
    }
}
