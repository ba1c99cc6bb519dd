//! Converts health and findings of the domain into the status of a `GuestHealth`, starting from the
//! status published before.

use virtfleet_collector_core::{
    findings::{is_of_agent, is_of_node, is_of_report},
    health::{
        self, HealthCondition, HealthConditionStatus, HealthConditionView, HealthVerdict, HealthView,
        LabelPlanStatus, MAX_FINDINGS, bounded_message,
    },
    view::VmDetail,
};
use virtfleet_wire::finding::Severity;

use crate::{
    labels::LabelStatus,
    objects::{Condition, ConditionStatus, GuestHealthFinding, GuestHealthStatus, LastMigration, Placement},
};

/// The status of one VM's GuestHealth. What is undecided, and what did not change, is copied from
/// `before`.
pub(super) fn status(
    vm: &VmDetail,
    labels: Option<&LabelStatus>,
    before: &GuestHealthStatus,
    now: &str,
) -> GuestHealthStatus {
    let planned = labels.map(|labels| LabelPlanStatus {
        plan: &labels.plan,
        error: labels.error.as_deref(),
        contested: &labels.contested,
    });
    let text = |id: Option<&str>| id.map(str::to_owned);
    let (view, unknown) = (&vm.vm, UnknownParts::of(vm));
    let labelled = health::labels_in_sync(view.user_node.is_some() || unknown.node, planned);
    // Tenants read GuestHealth.
    let evaluated = vm.conditions.iter().filter(|one| one.is_for_tenants());
    let evaluated = evaluated.chain([&labelled]);
    let conditions: Vec<_> = evaluated
        .map(|one| condition(one, &before.conditions, now))
        .collect();
    let ready = ready(&conditions).at(&before.conditions, now);
    let kept = Some(before).filter(|before| is_kept(&view.health, &vm.conditions, before));
    let known = before.conditions.iter().find(|one| one.kind == HEALTHY);
    let healthy = kept
        .and(known)
        .cloned()
        .unwrap_or_else(|| healthy(&view.health).at(&before.conditions, now));
    let cluster = view.cluster.as_ref().map(ToString::to_string);
    let placed_before = before.placement.as_ref();
    let placed_before = placed_before.filter(|placed| unknown.node && placed.cluster == cluster);
    let node_before = placed_before.and_then(|placed| placed.user_node.clone());
    let status = GuestHealthStatus {
        conditions: [healthy, ready].into_iter().chain(conditions).collect(),
        placement: Some(Placement {
            cluster,
            user_node: view.user_node.as_ref().map(ToString::to_string).or(node_before),
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
        findings: findings(vm, &before.findings, unknown),
        ..GuestHealthStatus::default()
    };
    match kept {
        Some(before) => GuestHealthStatus {
            verdict: before.verdict.clone(),
            cause: before.cause.clone(),
            reason: before.reason.clone(),
            message: before.message.clone(),
            next: before.next.clone(),
            ..status
        },
        None => with_verdict(status, &view.health, before, is_measured(vm)),
    }
}

/// What a collector that has just started has not found out yet about a VM.
#[derive(Debug, Clone, Copy)]
struct UnknownParts {
    /// Whether the agent answers.
    agent: bool,
    /// What the guest reports.
    report: bool,
    /// Whether the VM has a Node.
    node: bool,
}

impl UnknownParts {
    fn of(vm: &VmDetail) -> Self {
        let is_undecided = |condition: HealthCondition| {
            let mut all = vm.conditions.iter();
            all.any(|one| one.kind == condition.as_str() && one.is_undecided)
        };
        let agent = is_undecided(HealthCondition::AgentReporting);
        Self {
            agent,
            // Without a report each condition of the guest is undecided, this one included.
            report: agent && is_undecided(HealthCondition::TimeSynced),
            node: vm.vm.user_node.is_none() && is_undecided(HealthCondition::NodeReady),
        }
    }

    /// Whether a finding of this id may be there and cannot be seen yet.
    fn hides(self, id: &str) -> bool {
        (self.agent && is_of_agent(id)) || (self.report && is_of_report(id)) || (self.node && is_of_node(id))
    }
}

/// Whether the verdict of `before` still stands: what it came from is not decided yet, e.g. because
/// the collector has just started. Of a VM that was healthy, what is wrong now is not decided yet.
fn is_kept(health: &HealthView, conditions: &[HealthConditionView], before: &GuestHealthStatus) -> bool {
    let (true, Some(verdict)) = (health.is_undecided, &before.verdict) else {
        return false;
    };
    let mut undecided = conditions.iter().filter(|one| one.is_undecided);
    if verdict == HealthVerdict::Healthy.as_str() {
        return undecided.any(|one| one.reason == health.reason);
    }
    undecided.any(|now| {
        let mut known = before.conditions.iter();
        known.any(|one| one.kind == now.kind && Some(&one.reason) == before.reason.as_ref())
    })
}

/// The condition that repeats the verdict, for `kubectl wait`.
const HEALTHY: &str = "Healthy";

fn healthy(health: &HealthView) -> Condition {
    let status = match health.verdict {
        HealthVerdict::Healthy => ConditionStatus::True,
        HealthVerdict::Unknown => ConditionStatus::Unknown,
        HealthVerdict::Degraded | HealthVerdict::Critical => ConditionStatus::False,
    };
    // Its message is that of `status.message`.
    Condition::new(HEALTHY, status, &health.reason, String::new())
}

fn with_verdict(
    status: GuestHealthStatus,
    health: &HealthView,
    before: &GuestHealthStatus,
    is_measured: bool,
) -> GuestHealthStatus {
    let some = |text: &str| Some(bounded_message(text)).filter(|text| !text.is_empty());
    let is_same = before.reason.as_deref() == Some(&health.reason);
    GuestHealthStatus {
        verdict: Some(health.verdict.as_str().to_owned()),
        cause: health.cause.map(|cause| cause.as_str().to_owned()),
        reason: some(&health.reason),
        message: before
            .message
            .clone()
            .filter(|_| is_same && is_measured)
            .or_else(|| some(health.tenant_text())),
        next: some(&health.next),
        ..status
    }
}

/// Whether the message of the verdict may contain numbers that change.
fn is_measured(vm: &VmDetail) -> bool {
    let health = &vm.vm.health;
    let worst = vm
        .conditions
        .iter()
        .find(|one| one.reason == health.reason && one.severity == health.verdict);
    worst.is_some_and(|one| one.is_measured)
}

/// A valid time, or none: the API server rejects the whole status for one malformed time.
fn time(text: Option<&str>) -> Option<String> {
    let is_time = |text: &&str| text.parse::<jiff::Timestamp>().is_ok();
    text.filter(is_time).map(str::to_owned)
}

const PARTS_OF_READY: [HealthCondition; 3] = [
    HealthCondition::Placed,
    HealthCondition::AgentReporting,
    HealthCondition::LabelsInSync,
];

/// The `Ready` condition: `True` if its parts are, else like the first `False` one, else like the
/// first `Unknown` one.
fn ready(conditions: &[Condition]) -> Condition {
    let is_part = |one: &&Condition| PARTS_OF_READY.iter().any(|part| part.as_str() == one.kind);
    let parts: Vec<&Condition> = conditions.iter().filter(is_part).collect();
    let first = |status| {
        let mut considered = parts.iter().filter(|one| one.reason != health::NOT_PULLED);
        considered.find(|one| one.status == status)
    };
    let decisive = first(ConditionStatus::False).or_else(|| first(ConditionStatus::Unknown));
    let Some(one) = decisive else {
        let pulled = parts.iter().all(|one| one.reason != health::NOT_PULLED);
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

fn condition(new: &HealthConditionView, before: &[Condition], now: &str) -> Condition {
    let known = before.iter().find(|known| known.kind == new.kind);
    let status = match new.status {
        HealthConditionStatus::True => ConditionStatus::True,
        HealthConditionStatus::False => ConditionStatus::False,
        HealthConditionStatus::Unknown => ConditionStatus::Unknown,
    };
    let is_same = |known: &&Condition| known.status == status && known.reason == new.reason;
    let kept = if new.is_undecided {
        known
    } else {
        known.filter(|_| new.is_measured).filter(is_same)
    };
    kept.cloned().unwrap_or_else(|| {
        let message = bounded_message(new.tenant_text());
        Condition::new(&new.kind, status, &new.reason, message).at(before, now)
    })
}

/// Findings for the status. A finding that was in `before` keeps its message, because messages may
/// hold numbers that change with every report.
///
/// What a collector that has just started cannot see yet is kept. While it is undecided whether the
/// agent answers, the collector has not pulled it often enough to report it as failing, or the VM
/// has just started, which is no problem yet: until then there is no new finding about it. A
/// critical one needs no further pull.
fn findings(vm: &VmDetail, before: &[GuestHealthFinding], unknown: UnknownParts) -> Vec<GuestHealthFinding> {
    let is_early =
        |one: &GuestHealthFinding| unknown.agent && is_of_agent(&one.id) && one.severity < Severity::Critical;
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
    let mut found: Vec<_> = worst.map(keep).filter(|one| !is_early(one)).collect();
    let has_agent = found.iter().any(|one| is_of_agent(&one.id));
    let is_found = |known: &GuestHealthFinding| {
        // An agent that fails has one finding, whose id may change.
        (has_agent && is_of_agent(&known.id)) || found.iter().any(|one| one.id == known.id)
    };
    let hidden = before.iter().filter(|known| unknown.hides(&known.id));
    let hidden: Vec<_> = hidden.filter(|known| !is_found(known)).cloned().collect();
    found.extend(hidden);
    found.sort_by(|a, b| (b.severity, &a.id).cmp(&(a.severity, &b.id)));
    found.truncate(MAX_FINDINGS);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_follows_the_first_part_that_is_not_true() {
        let one = |kind: &str, status, reason: &str| Condition::new(kind, status, reason, "m".to_owned());
        let good = one("Placed", ConditionStatus::True, "Placed");
        let silent = one("AgentReporting", ConditionStatus::False, "AgentStopped");
        let unknown = one("LabelsInSync", ConditionStatus::Unknown, "NoNode");
        let other = one("NodeReady", ConditionStatus::False, "NodeNotReady");
        let summarize = |all: &[&Condition]| {
            let all: Vec<_> = all.iter().map(|one| (*one).clone()).collect();
            let ready = ready(&all);
            (ready.status, ready.reason, ready.message)
        };
        assert_eq!(summarize(&[&good, &other]).0, ConditionStatus::True);
        assert_eq!(
            summarize(&[&good, &unknown, &silent]),
            (
                ConditionStatus::False,
                "AgentStopped".into(),
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

    /// Tenants read GuestHealth, and Events are made of it.
    #[test]
    fn names_of_neighbours_are_left_out() {
        let view = HealthConditionView {
            kind: "ComputeReady".to_owned(),
            status: HealthConditionStatus::False,
            reason: "CpuStolen".to_owned(),
            cause: None,
            severity: HealthVerdict::Degraded,
            message: "12 % is stolen; most is used by other/batch".to_owned(),
            tenant_message: Some("12 % is stolen".into()),
            next: String::new(),
            since_ms: 0,
            is_undecided: false,
            is_measured: true,
        };
        assert_eq!(condition(&view, &[], "now").message, "12 % is stolen");
        let health = HealthView {
            message: view.message,
            tenant_message: view.tenant_message,
            ..HealthView::default()
        };
        let (status, before) = (GuestHealthStatus::default(), GuestHealthStatus::default());
        let status = with_verdict(status, &health, &before, true);
        assert_eq!(status.message.as_deref(), Some("12 % is stolen"));
    }

    #[test]
    fn a_verdict_is_kept_while_what_decided_it_is_undecided() {
        let now = |kind: &str, reason: &str, is_undecided| HealthConditionView {
            kind: kind.to_owned(),
            status: HealthConditionStatus::Unknown,
            reason: reason.to_owned(),
            cause: None,
            severity: HealthVerdict::Unknown,
            message: String::new(),
            tenant_message: None,
            next: String::new(),
            since_ms: 0,
            is_undecided,
            is_measured: false,
        };
        let then = |verdict: &str, kind: &str, reason: &str| GuestHealthStatus {
            verdict: Some(verdict.to_owned()),
            reason: Some(reason.to_owned()),
            conditions: vec![
                Condition::new(HEALTHY, ConditionStatus::Unknown, reason, String::new()),
                Condition::new(kind, ConditionStatus::False, reason, String::new()),
            ],
            ..GuestHealthStatus::default()
        };
        let waiting = || now("AgentReporting", "Waiting", true);
        let up = || now("AgentReporting", "Up", false);
        let dns = || now("DNSReady", "DNSNotReported", false);
        let settling = || now("VirtioTuned", "Settling", true);
        let silent = then("Degraded", "AgentReporting", "AgentStopped");
        let early = then("Unknown", "AgentReporting", "NoAnswerYet");
        let healthy = then("Healthy", "AgentReporting", "Healthy");
        let new = GuestHealthStatus::default();
        for (reason, conditions, before, expected) in [
            ("Waiting", vec![waiting(), settling()], &silent, true),
            ("Waiting", vec![waiting()], &healthy, true),
            ("Waiting", vec![waiting()], &new, false),
            // Another condition settles, and what decided is known.
            ("DNSNotReported", vec![up(), dns(), settling()], &early, false),
            ("DNSNotReported", vec![up(), dns(), settling()], &healthy, false),
            ("Healthy", vec![up(), settling()], &early, false),
        ] {
            let health = HealthView {
                reason: reason.to_owned(),
                is_undecided: true,
                ..HealthView::default()
            };
            assert_eq!(
                is_kept(&health, &conditions, before),
                expected,
                "{reason} after {:?}",
                before.reason
            );
            let decided = HealthView {
                is_undecided: false,
                ..health
            };
            assert!(!is_kept(&decided, &conditions, before));
        }
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
