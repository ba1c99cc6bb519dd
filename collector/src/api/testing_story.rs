//! Stories and conditions of the VMs of the fleet for tests.

use virtfleet_collector_core::{
    health::{HealthConditionStatus, HealthConditionView, HealthVerdict},
    story::{
        AddressFate, MigrationFelt, MigrationPhase, MigrationView, StoryView, TimelineEntry, TimelineKind,
    },
    view::VmView,
};
use virtfleet_wire::ids::VmKey;

use super::{NOW, id};

fn entry(before_seconds: u64, kind: TimelineKind, text: &str) -> TimelineEntry {
    TimelineEntry {
        at_ms: NOW - before_seconds * 1000,
        kind,
        text: text.to_owned(),
        hosts: Box::default(),
        finding: (kind == TimelineKind::Finding).then(|| "duplicate-address".to_owned()),
    }
}

/// worker-1 was moved, paused and is silent now; worker-2 moves.
pub(super) fn of(key: &VmKey) -> StoryView {
    let migration = MigrationView {
        object: Some("kubevirt-evacuation-x7k2p".to_owned()),
        source: Some(id("infra-2")),
        target: Some(id("infra-1")),
        uid: None,
        phase: MigrationPhase::Succeeded,
        mode: Some("PreCopy".to_owned()),
        failure_reason: None,
        created_ms: Some(NOW - 610_000),
        start_ms: Some(NOW - 600_000),
        end_ms: Some(NOW - 558_000),
        duration_ms: Some(42_000),
        felt: Some(MigrationFelt {
            is_reported: true,
            detects_pauses: true,
            pause_ms: Some(7_000),
            resolution_ms: Some(2_000),
            clock_step_ms: None,
            is_restarted: false,
            address: AddressFate::Changed,
            addresses_before: vec!["10.0.0.6".to_owned()],
            addresses_after: vec!["10.0.0.7".to_owned()],
        }),
    };
    match (key.namespace.as_str(), key.name.as_str()) {
        ("cluster-a", "worker-1") => StoryView {
            timeline: vec![
                entry(
                    600,
                    TimelineKind::Migration,
                    "a live migration from infra-2 to infra-1 begins",
                ),
                entry(
                    558,
                    TimelineKind::Migration,
                    "the live migration from infra-2 to infra-1 ended after 42 s, PreCopy",
                ),
                entry(540, TimelineKind::Pause, "the guest was paused for 7 s (± 2 s)"),
                entry(
                    300,
                    TimelineKind::Finding,
                    "duplicate-address: cluster-b/other has it, too",
                ),
                entry(
                    60,
                    TimelineKind::Verdict,
                    "Degraded (agent, AgentStopped), was Healthy: the guest refuses the connection",
                ),
            ],
            migrations: vec![migration],
        },
        ("cluster-a", "worker-2") => StoryView {
            timeline: vec![entry(
                30,
                TimelineKind::Migration,
                "a live migration from infra-1 to infra-2 begins",
            )],
            migrations: vec![MigrationView {
                object: None,
                source: Some(id("infra-1")),
                target: Some(id("infra-2")),
                uid: None,
                phase: MigrationPhase::Running,
                mode: None,
                created_ms: None,
                start_ms: Some(NOW - 30_000),
                end_ms: None,
                duration_ms: None,
                felt: None,
                ..migration
            }],
        },
        _ => StoryView::default(),
    }
}

/// A condition that fits the health of the VM.
pub(super) fn condition(vm: &VmView) -> HealthConditionView {
    let health = vm.health.clone();
    HealthConditionView {
        kind: "AgentReporting".to_owned(),
        status: match health.verdict {
            HealthVerdict::Healthy => HealthConditionStatus::True,
            _ => HealthConditionStatus::False,
        },
        reason: health.reason,
        cause: health.cause,
        severity: health.verdict,
        message: health.message,
        tenant_message: health.tenant_message,
        next: health.next,
        since_ms: health.since_ms,
        is_undecided: false,
        is_measured: false,
    }
}
