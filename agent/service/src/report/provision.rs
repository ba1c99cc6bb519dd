//! `provision`: results of the reconcile runs of `virtfleet-agent apply` in this boot, one item per
//! stage; and their findings.

use serde_json::{Value, json};
use virtfleet_agent_core::pass::{GuestRecord, RunOutcome, Stage, StageRecord, StepRecord};
use virtfleet_agent_host::{ReadError, Roots};
use virtfleet_agent_state::{GUEST_RECORD, StateError};
use virtfleet_wire::{
    finding::{Finding, Severity},
    report::{Clock, Section, SectionStatus},
};

/// Section and findings of the reconcile runs.
pub(super) struct Passes {
    pub(super) section: Section,
    pub(super) findings: Vec<Finding>,
}

pub(super) fn read(roots: &Roots, boot_id: &str, now: &Clock) -> Passes {
    let (record, reason, broken) = match GUEST_RECORD.read(roots, boot_id) {
        Ok(record) => (record, "has not run in this boot".to_owned(), false),
        Err(error) => {
            // Without provisioning there is no record. That is not an error.
            let absent = matches!(
                error,
                StateError::Read(ReadError::Missing) | StateError::OtherBoot
            );
            let reason = format!("{GUEST_RECORD}: {error}");
            (GuestRecord::default(), reason, !absent)
        }
    };
    let item = |stage: Stage| match record.stages.get(&stage) {
        Some(done) => known(stage, done, record.age_ms(stage, now.boottime_ns)),
        None => json!({"stage": stage.word(), "outcome": "unknown", "reason": reason}),
    };
    let failed = record
        .stages
        .values()
        .any(|stage| stage.outcome == RunOutcome::Failed);
    let status = if broken {
        SectionStatus::Failed
    } else if record.stages.is_empty() {
        SectionStatus::Unknown
    } else if failed || record.stages.len() < Stage::ALL.len() {
        SectionStatus::Partial
    } else {
        SectionStatus::Ok
    };
    Passes {
        section: Section {
            status,
            items: Stage::ALL.map(item).to_vec(),
            ..Section::default()
        },
        findings: findings(&record),
    }
}

fn known(stage: Stage, done: &StageRecord, age_ms: Option<u64>) -> Value {
    let step = |step: &StepRecord| json!({"name": step.name, "outcome": step.outcome.word(), "message": step.message});
    json!({
        "stage": stage.word(),
        "outcome": done.outcome.word(),
        "ageMs": age_ms,
        "durationMs": done.duration_ms,
        "triggers": done.triggers,
        "version": done.version,
        "steps": done.steps.iter().map(step).collect::<Vec<_>>(),
    })
}

/// One finding per problem of settings that are not applied, and one per other failed step.
fn findings(record: &GuestRecord) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (stage, done) in &record.stages {
        for step in done
            .steps
            .iter()
            .filter(|step| step.outcome == RunOutcome::Failed)
        {
            if step.problems.is_empty() {
                let name = format!("{}/{}", stage.word(), step.name);
                let remedy = format!(
                    "journalctl -b -u {}; systemctl restart {}",
                    stage.unit(),
                    stage.unit()
                );
                findings.push(
                    Finding::new(
                        "pass-step-failed",
                        Severity::Warning,
                        ("Step", &name),
                        "StepFailed",
                        format!("step {name} failed: {}", step.message),
                    )
                    .with("message", &step.message)
                    .remedy(remedy),
                );
            }
            for problem in &step.problems {
                let name = if problem.path.is_empty() {
                    problem.file.clone()
                } else {
                    format!("{}#{}", problem.file, problem.path)
                };
                let message = format!(
                    "the settings on disk are not applied, the agent keeps its earlier settings: {}",
                    problem.message
                );
                let finding = Finding::new(
                    "settings-on-disk-not-applied",
                    Severity::Warning,
                    ("Settings", &name),
                    "ChangeNotApplied",
                    message,
                )
                .with("file", &problem.file)
                .remedy("virtfleet-agent check-config");
                findings.push(if problem.line > 0 {
                    finding.with("line", problem.line)
                } else {
                    finding
                });
            }
        }
    }
    findings
}
