//! The words of the domain as the object's status, with what was said before in mind.

use virtfleet_collector_core::{
    health::{self, Labelled, Truth, Verdict},
    view::VmDetail,
};

use crate::{
    labels::LabelStatus,
    objects::{Condition, ConditionStatus, GuestHealthFinding, GuestHealthStatus, LastMigration, Placement},
};

/// The status of one VM's GuestHealth; what did not change is as in `before`, to the letter.
pub(super) fn status(
    vm: &VmDetail,
    labels: Option<&LabelStatus>,
    silent_ms: u64,
    before: &GuestHealthStatus,
    now: &str,
) -> GuestHealthStatus {
    let labelled = labels.map(|labels| Labelled {
        plan: &labels.plan,
        error: labels.error.as_deref(),
    });
    let verdicts = health::verdicts(vm, labelled, silent_ms);
    let text = |id: Option<&str>| id.map(str::to_owned);
    let view = &vm.vm;
    GuestHealthStatus {
        conditions: verdicts
            .into_iter()
            .map(|one| condition(one, &before.conditions, now))
            .collect(),
        placement: Some(Placement {
            cluster: view.cluster.as_ref().map(ToString::to_string),
            user_node: view.user_node.as_ref().map(ToString::to_string),
            infra_node: view.infra_node.as_ref().map(ToString::to_string),
            region: text(view.region.as_deref()),
            zone: text(view.zone.as_deref()),
        }),
        last_migration: vm.migration.as_ref().map(|one| LastMigration {
            source: one.source.as_ref().map(ToString::to_string),
            target: one.target.as_ref().map(ToString::to_string),
            completed: one.completed,
            failed: one.failed,
            start: one.start.clone(),
            end: one.end.clone(),
        }),
        findings: findings(vm, &before.findings),
    }
}

fn condition(verdict: Verdict, before: &[Condition], now: &str) -> Condition {
    let known = before.iter().find(|known| known.kind == verdict.kind);
    let status = match (verdict.truth, known) {
        (Truth::True, _) => ConditionStatus::True,
        (Truth::False, _) => ConditionStatus::False,
        (Truth::AsBefore, Some(known)) => return known.clone(),
        (Truth::Unknown | Truth::AsBefore, _) => ConditionStatus::Unknown,
    };
    Condition::new(verdict.kind, status, verdict.reason, verdict.message).at(before, now)
}

/// The same findings keep the words that they had: those may hold numbers that change with every report.
fn findings(vm: &VmDetail, before: &[GuestHealthFinding]) -> Vec<GuestHealthFinding> {
    let worst = health::worst(&vm.findings_list).into_iter();
    let keep = |(id, severity, message): (String, _, String)| {
        let known = before
            .iter()
            .find(|known| known.id == id && known.severity == severity);
        let message = known.map_or(message, |known| known.message.clone());
        GuestHealthFinding {
            id,
            severity,
            message,
        }
    };
    worst.map(keep).collect()
}
