//! `Migratable`: the VM can leave its infra node, and its last migration did not fail.

use super::{evaluation::Evaluation, facts::HealthFacts, verdict::HealthCause};
use crate::{
    facts::{Migration, Vmi},
    reported::{ReportedCondition, ReportedStatus},
    scheduling::EvictionStrategy,
    story::REPEAT_MIGRATIONS,
    view::VmState,
};

pub(super) fn evaluate(facts: &HealthFacts<'_>) -> Evaluation {
    let Some(vmi) = facts.vmi.filter(|_| facts.state.can_answer()) else {
        return Evaluation::not_required("NotRunning", "the VM does not run");
    };
    let is_slow = facts.state == VmState::Migrating && facts.is_stuck();
    if is_slow && facts.dead_migration.is_unsure() {
        // A collector that has just started does not know yet whether it has ended long ago.
        return of_present(facts, vmi).undecided();
    }
    if is_slow {
        let message = "a live migration takes more than 10 minutes";
        return Evaluation::degraded(HealthCause::Migration, "MigrationSlow", message).next(facts.describe());
    }
    of_present(facts, vmi)
}

/// The condition, however long a migration takes.
fn of_present(facts: &HealthFacts<'_>, vmi: &Vmi) -> Evaluation {
    let next = facts.describe();
    let evacuated = vmi.leaves();
    let is_external = vmi.scheduling.eviction == EvictionStrategy::External;
    if let Some(node) = evacuated.filter(|_| is_external && facts.state != VmState::Migrating) {
        let message = format!(
            "the VM must leave {node}, and its controller (Cluster API, KKP) has not moved it: with evictionStrategy External, KubeVirt does not migrate it"
        );
        return Evaluation::degraded(HealthCause::Migration, "EvacuationAwaited", message).next(next);
    }
    let migratable = vmi.conditions.get("LiveMigratable");
    let why = migratable.map_or("no reason is given", ReportedCondition::text);
    let is_cordoned = facts.infra_node.is_some_and(|node| node.unschedulable);
    let repeated = facts.failed_migrations.count >= REPEAT_MIGRATIONS;
    match (migratable.map(|one| one.status), evacuated) {
        (Some(ReportedStatus::False), Some(node)) => {
            let message = format!("the VM must leave {node} and cannot be live-migrated: {why}");
            Evaluation::degraded(HealthCause::Migration, "EvacuationBlocked", message).next(next)
        }
        (_, evacuated) if repeated && (is_cordoned || evacuated.is_some()) => {
            let leaves = if evacuated.is_some() {
                "the VM must leave its infra node"
            } else {
                "the infra node is cordoned"
            };
            let message = format!("{leaves}, and {}", failures(facts));
            Evaluation::degraded(HealthCause::Migration, "MigrationsFail", message).next(list(facts))
        }
        (_, evacuated) if facts.dead_migration.is_abandoned() => {
            let reason = "MigrationAbandoned";
            let found = if let Some(node) = evacuated {
                let message =
                    format!("the VM must leave {node}, and KubeVirt has forgotten its last live migration");
                Evaluation::degraded(HealthCause::Migration, reason, message)
            } else {
                let message = "the VMI still names a live migration that KubeVirt has forgotten";
                Evaluation::notice(HealthCause::Migration, reason, message)
            };
            found.next(next)
        }
        (_, Some(node)) if has_failed(vmi.migration.as_ref()) => {
            let why = last_failure(vmi.migration.as_ref());
            let message = format!("the VM must leave {node}, and its last live migration failed: {why}");
            Evaluation::degraded(HealthCause::Migration, "EvacuationFailed", message).next(next)
        }
        (Some(ReportedStatus::False), None) => {
            let message = format!("the VM cannot be live-migrated: {why}");
            Evaluation::notice(HealthCause::Migration, "NotMigratable", message).next(next)
        }
        (Some(ReportedStatus::True), _) if facts.failed_migrations.count > 1 => {
            Evaluation::notice(HealthCause::Migration, "MigrationFailed", failures(facts)).next(list(facts))
        }
        (Some(ReportedStatus::True), _) if has_failed(vmi.migration.as_ref()) => {
            let why = last_failure(vmi.migration.as_ref());
            let message = format!("the last live migration failed: {why}");
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

/// How many migrations have failed, and why the last one.
fn failures(facts: &HealthFacts<'_>) -> String {
    let failed = facts.failed_migrations;
    let why = failed.why.as_deref().unwrap_or("no reason is given");
    format!(
        "{} live migrations have failed within an hour, one after the other; the last one: {why}",
        failed.count
    )
}

/// A command that lists the migration objects of the VM.
fn list(facts: &HealthFacts<'_>) -> String {
    let (namespace, name) = (&facts.key.namespace, &facts.key.name);
    format!(
        "kubectl -n {namespace} get vmim -l kubevirt.io/vmi-name={name} --sort-by=.metadata.creationTimestamp"
    )
}

fn last_failure(migration: Option<&Migration>) -> &str {
    let why = migration.and_then(|one| one.failure_reason.as_deref());
    why.unwrap_or("no reason is given")
}

fn has_failed(migration: Option<&Migration>) -> bool {
    migration.is_some_and(|one| one.failed)
}
