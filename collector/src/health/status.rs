//! Converts the conditions and findings of the domain into the status of a `GuestHealth`, starting
//! from the status published before.

use virtfleet_collector_core::{
    findings::is_of_agent,
    health::{self, ConditionState, LabelPlanStatus, VmCondition},
    view::{AgentStatus, VmDetail},
};

use crate::{
    labels::LabelStatus,
    objects::{Condition, ConditionStatus, GuestHealthFinding, GuestHealthStatus, LastMigration, Placement},
};

/// The status of one VM's GuestHealth. Conditions and findings that did not change are copied from
/// `before`.
pub(super) fn status(
    vm: &VmDetail,
    labels: Option<&LabelStatus>,
    silent_ms: u64,
    before: &GuestHealthStatus,
    now: &str,
) -> GuestHealthStatus {
    let labelled = labels.map(|labels| LabelPlanStatus {
        plan: &labels.plan,
        error: labels.error.as_deref(),
    });
    let conditions = health::conditions(vm, labelled, silent_ms);
    let text = |id: Option<&str>| id.map(str::to_owned);
    let view = &vm.vm;
    let conditions: Vec<_> = conditions
        .into_iter()
        .map(|one| condition(one, &before.conditions, now))
        .collect();
    let ready = ready(&conditions).at(&before.conditions, now);
    GuestHealthStatus {
        conditions: [ready].into_iter().chain(conditions).collect(),
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
            start: time(one.start.as_deref()),
            end: time(one.end.as_deref()),
        }),
        findings: findings(vm, silent_ms, &before.findings),
    }
}

/// A valid time, or none: the API server rejects the whole status for one malformed time.
fn time(text: Option<&str>) -> Option<String> {
    let is_time = |text: &&str| text.parse::<jiff::Timestamp>().is_ok();
    text.filter(is_time).map(str::to_owned)
}

/// The `Ready` condition: `True` if all conditions are, else like the first `False` one, else like
/// the first `Unknown` one.
fn ready(conditions: &[Condition]) -> Condition {
    let first = |status| {
        let mut considered = conditions.iter().filter(|one| one.reason != health::NOT_PULLED);
        considered.find(|one| one.status == status)
    };
    let decisive = first(ConditionStatus::False).or_else(|| first(ConditionStatus::Unknown));
    let Some(one) = decisive else {
        let pulled = conditions.iter().all(|one| one.reason != health::NOT_PULLED);
        let agent = if pulled {
            "its agent answers"
        } else {
            "its agent is not pulled"
        };
        let message = format!("the VM is placed, {agent}, and its Node has its labels");
        return Condition::new("Ready", ConditionStatus::True, "Ready", message);
    };
    let message = format!("{}: {}", one.kind, one.message);
    Condition::new("Ready", one.status, &one.reason, message)
}

fn condition(new: VmCondition, before: &[Condition], now: &str) -> Condition {
    let known = before.iter().find(|known| known.kind == new.kind);
    let status = match (new.state, known) {
        (ConditionState::True, _) => ConditionStatus::True,
        (ConditionState::False, _) => ConditionStatus::False,
        (ConditionState::Unchanged, Some(known)) => return known.clone(),
        (ConditionState::Unknown | ConditionState::Unchanged, _) => ConditionStatus::Unknown,
    };
    Condition::new(new.kind, status, new.reason, new.message).at(before, now)
}

/// Findings for the status. A finding that was in `before` keeps its message, because messages may
/// hold numbers that change with every report. A collector that has just started has not pulled the
/// agent often enough to report it as failing: until then findings about the agent in `before` are
/// kept.
fn findings(vm: &VmDetail, silent_ms: u64, before: &[GuestHealthFinding]) -> Vec<GuestHealthFinding> {
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
    let mut found: Vec<_> = worst.map(keep).collect();
    let is_undecided = match vm.vm.agent.status {
        AgentStatus::Waiting => true,
        AgentStatus::Silent => silent_ms < health::SILENCE_THRESHOLD_MS,
        AgentStatus::Up | AgentStatus::Off | AgentStatus::Disabled => false,
    };
    if is_undecided && !found.iter().any(|one| is_of_agent(&one.id)) {
        found.extend(before.iter().filter(|one| is_of_agent(&one.id)).cloned());
        found.sort_by(|a, b| (b.severity, &a.id).cmp(&(a.severity, &b.id)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_follows_the_first_condition_that_is_not_true() {
        let one = |kind: &str, status, reason: &str| Condition::new(kind, status, reason, "m".to_owned());
        let good = one("Placed", ConditionStatus::True, "Placed");
        let silent = one("AgentReporting", ConditionStatus::False, "Silent");
        let unknown = one("LabelsTrue", ConditionStatus::Unknown, "NoNode");
        let summarize = |all: &[&Condition]| {
            let all: Vec<_> = all.iter().map(|one| (*one).clone()).collect();
            let ready = ready(&all);
            (ready.status, ready.reason, ready.message)
        };
        assert_eq!(summarize(&[&good]).0, ConditionStatus::True);
        assert_eq!(
            summarize(&[&good, &unknown, &silent]),
            (
                ConditionStatus::False,
                "Silent".into(),
                "AgentReporting: m".into()
            )
        );
        assert_eq!(summarize(&[&good, &unknown]).0, ConditionStatus::Unknown);
        let unpulled = one("AgentReporting", ConditionStatus::Unknown, health::NOT_PULLED);
        let (status, _, message) = summarize(&[&good, &unpulled]);
        assert_eq!(
            status,
            ConditionStatus::True,
            "NotPulled does not make a VM unready"
        );
        assert!(message.contains("its agent is not pulled"), "{message}");
    }

    #[test]
    fn malformed_times_are_omitted() {
        assert_eq!(
            time(Some("2026-01-01T00:00:00Z")).as_deref(),
            Some("2026-01-01T00:00:00Z")
        );
        assert_eq!(time(Some("yesterday")), None);
    }
}
