//! `Migratable`: the VM can leave its infra node, and its last migration did not fail.

use super::{evaluation::Evaluation, facts::HealthFacts, verdict::HealthCause};
use crate::{
    facts::Migration,
    reported::{ReportedCondition, ReportedStatus},
    view::VmState,
};

pub(super) fn evaluate(facts: &HealthFacts<'_>) -> Evaluation {
    let Some(vmi) = facts.vmi.filter(|_| facts.state.can_answer()) else {
        return Evaluation::not_required("NotRunning", "the VM does not run");
    };
    let next = facts.describe();
    if facts.state == VmState::Migrating && facts.is_stuck() {
        let message = "a live migration takes more than 10 minutes";
        return Evaluation::degraded(HealthCause::Migration, "MigrationSlow", message).next(next);
    }
    let evacuated = vmi
        .evacuation_node
        .as_ref()
        .filter(|node| Some(*node) == vmi.node.as_ref());
    let migratable = vmi.conditions.get("LiveMigratable");
    let why = migratable.map_or("no reason is given", ReportedCondition::text);
    match (migratable.map(|one| one.status), evacuated) {
        (Some(ReportedStatus::False), Some(node)) => {
            let message = format!("the VM must leave {node} and cannot be live-migrated: {why}");
            Evaluation::degraded(HealthCause::Migration, "EvacuationBlocked", message).next(next)
        }
        (_, Some(node)) if has_failed(vmi.migration.as_ref()) => {
            let why = vmi
                .migration
                .as_ref()
                .and_then(|one| one.failure_reason.as_deref());
            let why = why.unwrap_or("no reason is given");
            let message = format!("the VM must leave {node}, and its last live migration failed: {why}");
            Evaluation::degraded(HealthCause::Migration, "EvacuationFailed", message).next(next)
        }
        (Some(ReportedStatus::False), None) => {
            let message = format!("the VM cannot be live-migrated: {why}");
            Evaluation::notice(HealthCause::Migration, "NotMigratable", message).next(next)
        }
        (Some(ReportedStatus::True), _) if has_failed(vmi.migration.as_ref()) => {
            let why = vmi
                .migration
                .as_ref()
                .and_then(|one| one.failure_reason.as_deref());
            let message = format!(
                "the last live migration failed: {}",
                why.unwrap_or("no reason is given")
            );
            Evaluation::notice(HealthCause::Migration, "MigrationFailed", message).next(next)
        }
        (Some(ReportedStatus::True), Some(node)) => Evaluation::holds(
            "Evacuating",
            format!("the VM must leave {node} and can be live-migrated"),
        ),
        (Some(ReportedStatus::True), None) => Evaluation::holds("Migratable", "the VM can be live-migrated"),
        (Some(ReportedStatus::Unknown) | None, _) => Evaluation::not_required(
            "MigratableUnknown",
            "KubeVirt does not say whether the VM can be live-migrated",
        ),
    }
}

fn has_failed(migration: Option<&Migration>) -> bool {
    migration.is_some_and(|one| one.failed)
}
