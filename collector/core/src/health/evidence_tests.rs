//! Property: a VM is healthy only by positive evidence for every required condition.
#![expect(
    clippy::option_option,
    clippy::struct_excessive_bools,
    reason = "that a value is missing is a flaw, too"
)]

use proptest::prelude::*;
use virtfleet_wire::{
    finding::{Finding, Severity},
    report::{Clock, GuestReport, REPORT_API_VERSION, REPORT_KIND, Section, SectionStatus},
};

use super::{AgentFacts, HealthFacts, HealthTrack, HealthVerdict, LauncherState, SeenSince};
use crate::{
    facts::{Phase, Vmi},
    heartbeats::HeartbeatLimits,
    pull_result::{Answer, Failure, FailureClass, MetricsSummary},
    report::KeptReport,
    reported::{ReportedCondition, ReportedConditions, ReportedStatus},
    scheduling::{Taint, TaintEffect},
    state::vm_state,
    store::tests::{infra_node, key, user_node, vm, vmi},
    tenant::Tenant,
    view::{AgentStatus, ClusterState, VmState},
    volumes::{PluggingVolume, SeenPlugging},
};

const NOW_MS: u64 = 1_800_000_000_000;
/// How long a heartbeat is evidence.
const HEARTBEAT_MS: u64 = 120_000;

/// What is wrong or missing; `None` everywhere is a healthy VM.
#[derive(Debug, Clone, Default)]
struct Flaws {
    no_vmi: bool,
    no_launcher: bool,
    phase: Option<Phase>,
    vmi_conditions: Option<Option<(&'static str, ReportedStatus, Option<&'static str>)>>,
    no_host: bool,
    host_conditions: Option<Option<(&'static str, ReportedStatus)>>,
    no_tenant: bool,
    cluster: Option<Option<ClusterState>>,
    no_node: bool,
    node_conditions: Option<Option<(&'static str, ReportedStatus)>>,
    /// Whether it says that the Node is not ready.
    node_taint: Option<(&'static str, TaintEffect, bool)>,
    /// Ages of the last heartbeats of host and Node.
    heartbeat_ages_ms: [u64; 2],
    is_after_outage: bool,
    agent: Option<AgentStatus>,
    answer_age_ms: u64,
    storage: Option<Option<SectionStatus>>,
    dns: Option<Option<SectionStatus>>,
    finding: Option<(&'static str, Severity)>,
    clock_offset_ms: i64,
    stale: bool,
    /// For how long a hot-plugged volume has not become ready.
    plugging_ms: Option<u64>,
}

fn status() -> impl Strategy<Value = ReportedStatus> {
    prop::sample::select(vec![
        ReportedStatus::True,
        ReportedStatus::False,
        ReportedStatus::Unknown,
    ])
}

fn section() -> impl Strategy<Value = Option<Option<SectionStatus>>> {
    let statuses = vec![
        None,
        Some(SectionStatus::Ok),
        Some(SectionStatus::Partial),
        Some(SectionStatus::Failed),
        Some(SectionStatus::Unknown),
    ];
    rarely(prop::sample::select(statuses))
}

/// None in most cases, so that healthy VMs are common.
fn rarely<T: std::fmt::Debug + Clone>(one: impl Strategy<Value = T>) -> impl Strategy<Value = Option<T>> {
    prop::option::weighted(0.08, one)
}

fn flag() -> impl Strategy<Value = bool> {
    prop_oneof![20 => Just(false), 1 => Just(true)]
}

/// The age of a heartbeat.
fn heartbeat() -> impl Strategy<Value = u64> {
    prop_oneof![10 => Just(1000_u64), 1 => 0..3 * HEARTBEAT_MS, 1 => HEARTBEAT_MS - 1..HEARTBEAT_MS + 2]
}

fn flaws() -> impl Strategy<Value = Flaws> {
    let pressures = || prop::sample::select(vec!["Ready", "MemoryPressure", "DiskPressure", "Other"]);
    let of_node = move || rarely(prop::option::of((pressures(), status())));
    let phases = vec![
        Phase::Pending,
        Phase::Running,
        Phase::Succeeded,
        Phase::Failed,
        Phase::Unset,
        Phase::WaitingForSync,
        Phase::Unknown,
        Phase::Other,
    ];
    let taints = vec![
        ("node.cilium.io/agent-not-ready", TaintEffect::NoExecute, true),
        (
            "node.cloudprovider.kubernetes.io/uninitialized",
            TaintEffect::NoSchedule,
            true,
        ),
        (
            "node.cloudprovider.kubernetes.io/uninitialized",
            TaintEffect::PreferNoSchedule,
            false,
        ),
        ("node.kubernetes.io/network-unavailable", TaintEffect::Other, true),
        ("readiness.k8s.io/virtfleet-disks", TaintEffect::NoSchedule, true),
        ("node.kubernetes.io/unschedulable", TaintEffect::NoSchedule, false),
        ("dedicated", TaintEffect::NoSchedule, false),
    ];
    let of_vmi = prop::option::of((
        prop::sample::select(vec!["Ready", "Paused", "DataVolumesReady", "Synchronized"]),
        status(),
        prop::option::of(prop::sample::select(vec!["PausedIOError", "PausedByUser"])),
    ));
    let clusters = vec![
        None,
        Some(ClusterState::Pending),
        Some(ClusterState::Connecting),
        Some(ClusterState::Unreachable),
        Some(ClusterState::Failed),
    ];
    let agents = vec![AgentStatus::Silent, AgentStatus::Waiting, AgentStatus::Disabled];
    let findings = prop::sample::select(vec!["guest/disk-x", "guest/dns-x", "guest/virtio-x", "guest/x"]);
    let severities = prop::sample::select(vec![Severity::Info, Severity::Warning, Severity::Critical]);
    let platform = (
        flag(),
        rarely(prop::sample::select(phases)),
        rarely(of_vmi),
        flag(),
        of_node(),
        flag(),
        rarely(prop::sample::select(clusters)),
        flag(),
        of_node(),
        rarely(prop::sample::select(taints)),
        ([heartbeat(), heartbeat()], any::<bool>()),
        flag(),
    );
    let guest = (
        rarely(prop::sample::select(agents)),
        prop_oneof![10 => Just(1000_u64), 1 => 0..1_000_000_u64],
        section(),
        section(),
        rarely((findings, severities)),
        prop_oneof![10 => Just(0_i64), 1 => -400_000..400_000_i64],
        flag(),
        rarely(0..1_200_000_u64),
    );
    (platform, guest).prop_map(|(platform, guest)| Flaws {
        no_vmi: platform.0,
        phase: platform.1,
        vmi_conditions: platform.2,
        no_host: platform.3,
        host_conditions: platform.4,
        no_tenant: platform.5,
        cluster: platform.6,
        no_node: platform.7,
        node_conditions: platform.8,
        node_taint: platform.9,
        heartbeat_ages_ms: platform.10.0,
        is_after_outage: platform.10.1,
        no_launcher: platform.11,
        agent: guest.0,
        answer_age_ms: guest.1,
        storage: guest.2,
        dns: guest.3,
        finding: guest.4,
        clock_offset_ms: guest.5,
        stale: guest.6,
        plugging_ms: guest.7,
    })
}

fn conditions(all: &[(&str, ReportedStatus, Option<&str>)]) -> ReportedConditions {
    let all = all.iter();
    ReportedConditions::new(
        all.map(|(kind, status, reason)| ReportedCondition::new(kind, *status, *reason, None)),
    )
}

/// `Ready` and the flaw, which replaces it if it is about `Ready`; nothing if it is none.
fn node_conditions(flaw: Option<Option<(&'static str, ReportedStatus)>>) -> ReportedConditions {
    match flaw {
        None => conditions(&[("Ready", ReportedStatus::True, None)]),
        Some(None) => ReportedConditions::default(),
        Some(Some(("Ready", status))) => conditions(&[("Ready", status, None)]),
        Some(Some((kind, status))) => {
            conditions(&[("Ready", ReportedStatus::True, None), (kind, status, None)])
        }
    }
}

fn vmi_of(flaws: &Flaws) -> Vmi {
    let mut made = vmi("ns", "a");
    made.phase = flaws.phase.unwrap_or(Phase::Running);
    made.node = Some("h".parse().unwrap());
    let plugging = flaws.plugging_ms.map(|_| PluggingVolume {
        name: "data".into(),
        phase: "AttachedToNode".into(),
        said: None,
        claim: None,
    });
    made.plugging = plugging.into_iter().collect();
    made.conditions = match flaws.vmi_conditions {
        None => conditions(&[("Ready", ReportedStatus::True, None)]),
        Some(None) => ReportedConditions::default(),
        Some(Some((kind, status, reason))) => {
            made.paused = kind == "Paused" && status == ReportedStatus::True;
            conditions(&[(kind, status, reason)])
        }
    };
    made
}

fn answer(flaws: &Flaws) -> Answer {
    let section = |status: Option<Option<SectionStatus>>| {
        status.unwrap_or(Some(SectionStatus::Ok)).map(|status| Section {
            status,
            ..Section::default()
        })
    };
    let at = NOW_MS - flaws.answer_age_ms;
    let mut report = GuestReport {
        api_version: REPORT_API_VERSION.into(),
        kind: REPORT_KIND.into(),
        clock: Clock {
            realtime_ns: at.saturating_add_signed(flaws.clock_offset_ms) * 1_000_000,
            ..Clock::default()
        },
        ..GuestReport::default()
    };
    for (name, status) in [("storage", flaws.storage), ("dns", flaws.dns)] {
        report
            .sections
            .extend(section(status).map(|one| (name.to_owned(), one)));
    }
    let finding = flaws.finding.map(|(id, severity)| {
        let id = id.trim_start_matches("guest/");
        Finding::new(id, severity, ("Thing", "x"), "R", "m")
    });
    report.findings.extend(finding);
    Answer {
        report: Box::new(KeptReport::of(&report)),
        metrics: MetricsSummary::default(),
        counters: crate::usage::UsageCounters::default(),
        queues: Box::default(),
        took_ms: 10,
        slow: false,
        certificate: None,
    }
}

/// Of the host, or the Node.
fn heartbeat_limits(flaws: &Flaws, which: usize) -> HeartbeatLimits {
    HeartbeatLimits {
        ends_ms: NOW_MS - flaws.heartbeat_ages_ms[which] + HEARTBEAT_MS,
        // That one is awaited is no evidence.
        awaited_ms: if flaws.is_after_outage { NOW_MS + 1 } else { 0 },
    }
}

fn verdict(flaws: &Flaws) -> HealthVerdict {
    let (key, of_vm, made, answer) = (key("ns", "a"), vm("ns", "a"), vmi_of(flaws), answer(flaws));
    let mut host = infra_node("h", "z");
    host.conditions = node_conditions(flaws.host_conditions);
    let mut node = user_node("c", "a", None);
    node.conditions = node_conditions(flaws.node_conditions);
    let taints = flaws.node_taint.map(|(key, effect, _)| Taint {
        key: key.into(),
        value: "".into(),
        effect,
    });
    node.taints = taints.into_iter().collect();
    let plugging: Vec<_> = (flaws.plugging_ms.into_iter())
        .map(|age_ms| SeenPlugging {
            name: "data".into(),
            since_ms: NOW_MS - age_ms,
            is_older: false,
        })
        .collect();
    let tenant = if flaws.no_tenant {
        Tenant::None
    } else {
        Tenant::One("c".parse().unwrap())
    };
    let present = (!flaws.no_vmi).then_some(&made);
    let state = vm_state(present, Some(&of_vm));
    let failure = Failure::new(FailureClass::Timeout, "m");
    let agent_status = if state.can_answer() {
        flaws.agent.unwrap_or(AgentStatus::Up)
    } else {
        AgentStatus::Off
    };
    let host_name = "h".parse().unwrap();
    let facts = HealthFacts {
        key: &key,
        now_ms: NOW_MS,
        vmi: present,
        vm: Some(&of_vm),
        state,
        seen: SeenSince::first(state, present.is_some(), NOW_MS - 3_600_000),
        started_ms: None,
        launcher: if flaws.no_launcher {
            LauncherState::Gone
        } else {
            LauncherState::Carries
        },
        host: present.map(|_| &host_name),
        infra_node: (!flaws.no_host).then_some(&host),
        tenant: &tenant,
        is_tenant_pending: false,
        cluster_state: flaws.cluster.unwrap_or(Some(ClusterState::Ready)),
        node_match: &crate::keys::NodeMatch::None,
        other_node_created_ms: None,
        user_node: (!flaws.no_node && !flaws.no_tenant).then_some(&node),
        host_heartbeat: Some(heartbeat_limits(flaws, 0)),
        node_heartbeat: Some(heartbeat_limits(flaws, 1)),
        agent: AgentFacts {
            status: agent_status,
            excluded_by: None,
            is_expected: true,
            failure: (agent_status == AgentStatus::Silent).then_some(&failure),
            last_try_ms: (agent_status != AgentStatus::Waiting).then_some(NOW_MS - flaws.answer_age_ms),
            answer: Some((NOW_MS - flaws.answer_age_ms, &answer)),
        },
        delivery: None,
        usage: None,
        is_usage_pending: false,
        contention: None,
        failed_migrations: &crate::story::FailedMigrations::default(),
        dead_migration: &crate::abandoned::DeadMigration::default(),
        findings: &[],
        is_inventory_stale: flaws.stale,
        volumes: None,
        plugging: &plugging,
    };
    HealthTrack::new(&facts).view().verdict
}

/// Whether there is positive evidence for everything that is required; written independently of the
/// conditions.
fn has_evidence(flaws: &Flaws) -> bool {
    let ready_only = |flaw: &Option<Option<(&str, ReportedStatus)>>| match flaw {
        None => true,
        Some(None) => false,
        Some(Some(("Ready", status))) => *status == ReportedStatus::True,
        Some(Some(("Other", _))) => true,
        Some(Some((_, status))) => *status != ReportedStatus::True,
    };
    let vmi = match &flaws.vmi_conditions {
        None | Some(None) => true,
        Some(Some(("Paused", status, _))) => *status != ReportedStatus::True,
        Some(Some((_, status, _))) => *status != ReportedStatus::False,
    };
    let section =
        |flaw: Option<Option<SectionStatus>>| flaw.is_none_or(|status| status == Some(SectionStatus::Ok));
    let finding = flaws.finding.is_none_or(|(id, severity)| match id {
        "guest/disk-x" | "guest/dns-x" => severity == Severity::Info,
        _ => severity != Severity::Critical,
    });
    let state = vm_state((!flaws.no_vmi).then(|| vmi_of(flaws)).as_ref(), None);
    state == VmState::Running
        && vmi
        && !flaws.no_launcher
        && !flaws.no_host
        && ready_only(&flaws.host_conditions)
        && (flaws.no_tenant
            || flaws.cluster.is_none()
                && !flaws.no_node
                && ready_only(&flaws.node_conditions)
                && flaws.node_taint.is_none_or(|(_, _, is_bad)| !is_bad)
                && flaws.heartbeat_ages_ms[1] <= HEARTBEAT_MS)
        && flaws.heartbeat_ages_ms[0] <= HEARTBEAT_MS
        && flaws.agent.is_none()
        && flaws.answer_age_ms <= 300_000
        && section(flaws.storage)
        && section(flaws.dns)
        && finding
        && flaws.clock_offset_ms.abs() < 4_000
        && !flaws.stale
        && flaws.plugging_ms.is_none_or(|age| age < 600_000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn healthy_needs_positive_evidence(flaws in flaws()) {
        let verdict = verdict(&flaws);
        if verdict == HealthVerdict::Healthy {
            let near = flaws.clock_offset_ms.abs() < 5_100;
            let clock = Flaws { clock_offset_ms: 0, ..flaws.clone() };
            prop_assert!(near && has_evidence(&clock), "healthy without evidence");
        } else {
            prop_assert!(!has_evidence(&flaws), "{verdict:?} in spite of all evidence");
        }
    }
}

#[test]
fn without_flaws_a_vm_is_healthy() {
    assert_eq!(verdict(&Flaws::default()), HealthVerdict::Healthy);
}
