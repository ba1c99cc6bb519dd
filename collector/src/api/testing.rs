//! A fleet in memory for tests of the API and of the CLI.

mod mla;
mod placement;
mod spec_checks;
mod vm_detail;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, Mutex},
};

use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use virtfleet_collector_core::{
    access::redact::InfraTerms,
    facts::{InfraNode, Labels, Selector},
    health::{HealthCause, HealthVerdict, HealthView},
    join_token::JoinTokens,
    labels::{
        plan::LabelInput,
        policy::{LabelPolicy, Mode, Rule, Source},
    },
    placement::PlacementFleet,
    pull_result::{Failure, FailureClass, MetricsSummary},
    story::StoryView,
    view::{
        AgentStatus, AgentView, ClusterState, ClusterView, FleetSnapshot, Gaps, GuestView, HostView,
        SeverityCounts, VmDetail, VmState, VmView,
    },
    way::AgentWay,
};
use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::VmKey,
};

#[path = "testing_story.rs"]
mod story;

use super::{ApiState, WatchLimits, WatchSlots};
use crate::{
    ca::CaService, drain::DrainReader, enrolment, fleet::FleetRead, leader::WriteAccess,
    mla::status::MlaStatus, tokens::JoinTokenBook,
};

/// The present time in tests: 2024-05-01T12:00:00Z in milliseconds.
pub(crate) const NOW: u64 = 1_714_564_800_000;

pub(crate) fn id<T: std::str::FromStr>(text: &str) -> T
where
    T::Err: std::fmt::Debug,
{
    text.parse().unwrap()
}

pub(crate) fn key(namespace: &str, name: &str) -> VmKey {
    VmKey {
        namespace: id(namespace),
        name: id(name),
    }
}

/// A fleet whose snapshot is set by the test.
pub(crate) struct TestFleet {
    now: Mutex<(Arc<FleetSnapshot>, BTreeMap<VmKey, VmDetail>)>,
    revisions: watch::Sender<u64>,
}

impl TestFleet {
    pub(crate) fn new(snapshot: FleetSnapshot) -> Arc<Self> {
        let details = details(&snapshot);
        Arc::new(Self {
            revisions: watch::Sender::new(snapshot.revision),
            now: Mutex::new((Arc::new(snapshot), details)),
        })
    }

    /// Number of receivers of the revision.
    pub(crate) fn waiters(&self) -> usize {
        self.revisions.receiver_count()
    }

    /// Applies `change` and increments the revision.
    pub(crate) fn change(&self, change: impl FnOnce(&mut FleetSnapshot)) {
        let mut now = self.now.lock().unwrap();
        let mut next = FleetSnapshot::clone(&now.0);
        change(&mut next);
        next.revision += 1;
        let revision = next.revision;
        *now = (Arc::new(next.clone()), details(&next));
        drop(now);
        self.revisions.send_replace(revision);
    }
}

impl FleetRead for TestFleet {
    fn snapshot(&self) -> Arc<FleetSnapshot> {
        self.now.lock().unwrap().0.clone()
    }
    fn detail(&self, key: &VmKey) -> Option<VmDetail> {
        self.now.lock().unwrap().1.get(key).cloned()
    }
    fn findings(&self, key: &VmKey) -> Vec<Finding> {
        self.detail(key)
            .map(|detail| detail.findings_list)
            .unwrap_or_default()
    }
    fn stories(&self, keys: &[VmKey]) -> Vec<StoryView> {
        keys.iter().map(story::of).collect()
    }
    fn vm_labels(&self, keys: &[VmKey]) -> Vec<Labels> {
        let details = keys.iter().map(|key| self.detail(key));
        details
            .map(|one| one.map(|one| one.labels).unwrap_or_default())
            .collect()
    }
    fn label_inputs(&self) -> Vec<LabelInput> {
        label_inputs()
    }
    fn infra_terms(&self) -> Arc<InfraTerms> {
        let mut terms = InfraTerms::default();
        for host in &self.snapshot().hosts {
            terms.add_node(host.name.as_str());
            for place in [&host.zone, &host.region].into_iter().flatten() {
                terms.add_value("place", place);
            }
        }
        Arc::new(terms)
    }
    fn placement_fleet(&self) -> PlacementFleet {
        placement::of(&self.snapshot())
    }
    fn revisions(&self) -> watch::Receiver<u64> {
        self.revisions.subscribe()
    }
}

/// Labels with these keys and values.
pub(crate) fn labels(pairs: &[(&str, &str)]) -> Labels {
    let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    pairs.iter().map(own).collect()
}

/// Two Nodes and one policy: the first follows its host's rack, the second is not scheduled.
pub(crate) fn label_inputs() -> Vec<LabelInput> {
    let policy = LabelPolicy {
        name: "racks".into(),
        uid: None,
        generation: 1,
        clusters: Selector::default(),
        dry_run: false,
        rules: vec![Rule {
            source: Source::Key("example.com/rack".into()),
            target: None,
            mode: Some(Mode::Follow),
            takeover: None,
        }],
    };
    let input = |name: &str, rack: Option<&str>| LabelInput {
        vm: key("team-a", name),
        vmi_uid: Some(id(&format!("uid-team-a-{name}"))),
        cluster: id("alpha"),
        cluster_labels: Labels::new(),
        suspended: false,
        node: id(name),
        node_uid: None,
        labels: labels(&[("example.com/rack", "r1")]),
        owned: Some(r#"{"v":1,"labels":{"example.com/rack":{"value":"r1","policy":"racks"}}}"#.into()),
        kubelet_labels: BTreeSet::new(),
        resource_version: None,
        host: rack.map(|rack| InfraNode {
            name: id("host-1"),
            uid: None,
            labels: labels(&[("example.com/rack", rack)]),
            ready: Some(true),
            conditions: virtfleet_collector_core::reported::ReportedConditions::default(),
            reported_ms: None,
            unschedulable: false,
            taints: Vec::new(),
            allocatable: None,
        }),
        unconfirmed: BTreeSet::new(),
        stood_on: Vec::new(),
        policies: vec![policy.clone()],
    };
    vec![input("worker-0", Some("r2")), input("worker-1", None)]
}

/// Two streams and the pages of two VMs.
pub(crate) fn mla_status() -> Arc<MlaStatus> {
    mla::status(NOW)
}

/// A stream and a page of each of two tenants.
pub(crate) fn mla_of_tenants() -> Arc<MlaStatus> {
    mla::of_tenants(NOW)
}

pub(crate) fn state(fleet: Arc<TestFleet>) -> ApiState {
    state_of(fleet)
}

pub(crate) fn state_of(fleet: Arc<dyn FleetRead>) -> ApiState {
    let mut registry = Registry::default();
    let pulls = prometheus_client::metrics::counter::Counter::<u64>::default();
    pulls.inc_by(3);
    registry.register("virtfleet_collector_pulls", "Finished pulls by result", pulls);
    ApiState {
        access: Arc::default(),
        fleet,
        labels: Arc::default(),
        mla: mla_status(),
        write_access: WriteAccess::fixed(true),
        pages: None,
        enrolment: Some(Arc::new(enrolment::testing::admin(
            &[key("cluster-a", "worker-2")],
            WriteAccess::fixed(true),
        ))),
        tokens: Some(Arc::new(JoinTokenBook::fixed(join_tokens()))),
        ca: Some(CaService::in_memory()),
        registry: Arc::new(registry),
        procfs: Path::new("/proc").into(),
        instance: 7,
        drains: Arc::new(DrainReader::new(Arc::default())),
        histories: None,
        waiting: WatchSlots::new(WatchLimits::LONG_POLLS),
        watching: WatchSlots::new(WatchLimits::STREAMS),
        shutdown: CancellationToken::new(),
    }
}

fn join_tokens() -> JoinTokens {
    let stored = format!(
        r#"[{{"id":"3f9c1a7be204","secretSha256":"{}","cluster":"cluster-a","created":1,"expires":2,"networks":["10.0.0.0/8"]}}]"#,
        "a5".repeat(32)
    );
    JoinTokens::read(&stored).unwrap()
}

/// A health that fits state and agent.
fn health(state: VmState, agent: AgentStatus) -> HealthView {
    let (verdict, cause, reason, message, next) = match (state, agent) {
        (VmState::Running, AgentStatus::Up) => (HealthVerdict::Healthy, None, "Healthy", "all is well", ""),
        (VmState::Running, _) => (
            HealthVerdict::Degraded,
            Some(HealthCause::Agent),
            "AgentStopped",
            "the guest refuses the connection: it runs, and its agent does not",
            "in the guest: systemctl status virtfleet-agent, then virtfleet-agent doctor",
        ),
        _ => (
            HealthVerdict::Unknown,
            Some(HealthCause::Vm),
            "NotRunning",
            "the VM does not run",
            "",
        ),
    };
    HealthView {
        verdict,
        cause,
        reason: reason.to_owned(),
        message: message.to_owned(),
        next: next.to_owned(),
        since_ms: NOW - 60_000,
        ..HealthView::default()
    }
}

pub(crate) fn vm(namespace: &str, name: &str, state: VmState, agent: AgentStatus) -> VmView {
    let placed = !matches!(state, VmState::Stopped | VmState::Starting);
    VmView {
        namespace: id(namespace),
        name: id(name),
        uid: placed.then(|| id(&format!("uid-{namespace}-{name}"))),
        cluster: (namespace != "stray").then(|| id("prod")),
        user_node: placed.then(|| id(&format!("{name}.prod"))),
        infra_node: placed.then(|| id("infra-1")),
        region: placed.then(|| "eu".to_owned()),
        zone: placed.then(|| "eu-a".to_owned()),
        state,
        agent: AgentView {
            status: agent,
            address: placed.then(|| id("10.0.0.7:10911")),
            way: placed.then_some(AgentWay::Direct),
            verified_ms: (agent == AgentStatus::Up).then_some(NOW - 5_000),
            version: (agent == AgentStatus::Up).then(|| "0.1.0".to_owned()),
            last_seen_ms: (agent == AgentStatus::Up).then_some(NOW - 5_000),
            last_try_ms: placed.then_some(NOW - 2_000),
            took_ms: (agent == AgentStatus::Up).then_some(12),
            failure: (agent == AgentStatus::Silent).then(|| {
                Failure::new(
                    FailureClass::Connect,
                    "10.0.0.7:10911 refused the connection; is virtfleet-agent.service running in the guest?",
                )
            }),
        },
        guest: (agent == AgentStatus::Up).then(|| GuestView {
            os: Some("Debian GNU/Linux 12 (bookworm)".to_owned()),
            kernel: Some("6.1.0-18-cloud-amd64".to_owned()),
            hostname: Some(name.to_owned()),
            boot_id: Some("b0".to_owned()),
            disks: Some(2),
            nics: Some(1),
            metrics: MetricsSummary {
                samples: 400,
                memory_total_bytes: Some(4.0 * 1024.0 * 1024.0 * 1024.0),
                memory_available_bytes: Some(3.0 * 1024.0 * 1024.0 * 1024.0),
                load1: Some(0.25),
                boot_time_seconds: Some((NOW / 1000) as f64 - 200_000.0),
                cpus: 2,
                failed_collectors: 0,
                clock_synchronised: Some(true),
                reserved_samples: 0,
            },
            usage: None,
        }),
        health: health(state, agent),
        findings: usize::from(agent == AgentStatus::Silent),
        severities: SeverityCounts {
            warning: usize::from(agent == AgentStatus::Silent),
            ..SeverityCounts::default()
        },
        findings_key: 0,
        cluster_label: None,
    }
}

/// Six VMs with different states, three hosts, two clusters of which only labels name one, and one
/// finding about the inventory.
pub(crate) fn fleet() -> FleetSnapshot {
    use AgentStatus::{Off, Silent, Up, Waiting};
    let mut moved = vm("cluster-a", "worker-2", VmState::Migrating, Waiting);
    moved.infra_node = Some(id("infra-2"));
    moved.zone = Some("zone \"b\"\\\n".to_owned());
    let mut odd = vm("stray", "odd", VmState::Unknown, Off);
    odd.user_node = None;
    odd.agent.address = None;
    let vms = [
        vm("cluster-a", "worker-0", VmState::Running, Up),
        vm("cluster-a", "worker-1", VmState::Running, Silent),
        moved,
        vm("cluster-b", "worker-0", VmState::Stopped, Off),
        vm("cluster-b", "worker-9", VmState::Starting, Off),
        odd,
    ];
    let host = |name: &str, zone: &str, ready| HostView {
        name: id(name),
        known: true,
        ready,
        cordoned: false,
        region: Some("eu".to_owned()),
        zone: Some(zone.to_owned()),
        vms: 2,
        agents_up: 1,
        agents_silent: 1,
        clusters: vec![id("prod")],
    };
    FleetSnapshot {
        revision: 5,
        partial: false,
        gaps: Gaps::default(),
        synced: true,
        vms: vms
            .into_iter()
            .map(|vm| (key(vm.namespace.as_str(), vm.name.as_str()), Arc::new(vm)))
            .collect(),
        hosts: vec![
            host("infra-1", "eu-a", Some(true)),
            host("infra-2", "zone \"b\"\\\n", Some(false)),
            HostView {
                known: false,
                region: None,
                zone: None,
                clusters: Vec::new(),
                ..host("infra-3", "", None)
            },
        ],
        clusters: vec![
            ClusterView {
                name: id("prod"),
                known: true,
                namespace: id("cluster-a"),
                state: ClusterState::Ready,
                message: None,
                vms: 5,
                running: 2,
                agents_up: 1,
                zones: [("eu-a".to_owned(), 2), ("eu-b".to_owned(), 1)].into(),
                nodes: 4,
                nodes_without_vm: 1,
                partial: false,
                node_conditions: BTreeSet::new(),
                source: None,
            },
            ClusterView {
                name: id("staging"),
                known: false,
                namespace: id("stray"),
                state: ClusterState::Pending,
                message: Some(
                    "there is no UserCluster; VMs name this cluster in their labels kubermatic.k8c.io/cluster-id".to_owned(),
                ),
                vms: 1,
                running: 0,
                agents_up: 0,
                zones: BTreeMap::new(),
                nodes: 0,
                nodes_without_vm: 0,
                partial: false,
                node_conditions: BTreeSet::new(),
                source: None,
            },
        ],
        findings: vec![
            Finding::new(
                "inventory-broken-file",
                Severity::Critical,
                ("Manifest", "infra/nodes.yaml"),
                "BrokenFile",
                "infra/nodes.yaml, line 3: the key \"a\" occurs twice",
            )
            .remedy("fix the file; until then the last valid version is used"),
        ],
    }
}

fn details(snapshot: &FleetSnapshot) -> BTreeMap<VmKey, VmDetail> {
    snapshot
        .vms
        .iter()
        .map(|(key, vm)| {
            (
                key.clone(),
                vm_detail::detail(vm, story::of(key), story::condition(vm), NOW),
            )
        })
        .collect()
}
