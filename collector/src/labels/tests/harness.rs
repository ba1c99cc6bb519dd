//! Test harness: fake clusters of Nodes with versions, and faults on demand.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use virtfleet_collector_core::{
    dial::DialRules,
    facts::{Fact, InfraNode, InventoryEvent, Labels, Phase, Selector, UserCluster, UserNode, Vmi},
    labels::{
        evidence::Evidence,
        plan::{Action, Decision, LabelInput, NodePatch, NodePlan, Reason},
    },
    node_conditions::NodeConditionKind,
    reported::{ReportedCondition, ReportedConditions, ReportedStatus},
};
use virtfleet_wire::ids::{NodeName, Uuid};

use super::super::*;
use crate::{
    events::{EventRecorder, NewEvent},
    fleet::Fleet,
    leader::WriteAccess,
};

/// The UUID of the machine of a VM and its Node, by their name: of version 4, i.e. a random one.
pub(super) fn machine(name: &str) -> Uuid {
    let hash = name.bytes().fold(1_u128, |hash, byte| {
        hash.wrapping_mul(131).wrapping_add(u128::from(byte))
    });
    Uuid::from_u128(hash & !(0xf << 76) | 4 << 76)
}

/// How requests to a cluster fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Silent,
    Status(u16),
}

/// Status, reason and message by type.
type FakeConditions = BTreeMap<String, (String, String, String)>;

#[derive(Debug, Default)]
pub(super) struct FakeClusters {
    pub(super) nodes: BTreeMap<(ClusterName, NodeName), NodeMetadata>,
    pub(super) faults: BTreeMap<ClusterName, Fault>,
    pub(super) unreachable: BTreeSet<ClusterName>,
    pub(super) version: u64,
    /// Value of `rack` after each accepted patch.
    pub(super) accepted: Vec<String>,
    pub(super) requests: usize,
    /// Reads of Nodes.
    pub(super) reads: usize,
    pub(super) evidence: usize,
    pub(super) in_flight: BTreeSet<(ClusterName, NodeName)>,
    pub(super) safe: bool,
    /// Conditions of each Node.
    pub(super) conditions: BTreeMap<(ClusterName, NodeName), FakeConditions>,
    /// Requests to change conditions.
    pub(super) condition_requests: usize,
    /// An admission policy refuses each patch of labels.
    pub(super) labels_refused: bool,
    /// The account may not change conditions.
    pub(super) conditions_denied: bool,
}

#[derive(Clone, Default)]
pub(super) struct FakeNodeWriter {
    pub(super) clusters: Arc<Mutex<FakeClusters>>,
    pub(super) max_concurrent: Arc<AtomicUsize>,
    /// Duration of each request.
    pub(super) takes: Duration,
}

impl FakeNodeWriter {
    pub(super) fn clusters(&self) -> std::sync::MutexGuard<'_, FakeClusters> {
        self.clusters.lock().unwrap()
    }
    async fn fault(&self, cluster: &ClusterName) -> Result<(), SendError> {
        let fault = self.clusters().faults.get(cluster).copied();
        tokio::time::sleep(self.takes).await;
        match fault {
            None => Ok(()),
            Some(Fault::Silent) => {
                tokio::time::sleep(Duration::from_secs(10)).await;
                Err(SendError::Unreachable("silent".into()))
            }
            Some(Fault::Status(403)) => Err(SendError::Denied("no".into())),
            Some(Fault::Status(code)) => Err(SendError::Unreachable(code.to_string())),
        }
    }
}

impl NodeWriter for FakeNodeWriter {
    fn can_reach(&self, cluster: &ClusterName) -> bool {
        !self.clusters().unreachable.contains(cluster)
    }

    async fn patch(
        &self,
        cluster: &ClusterName,
        targeted: &TargetedPatch,
    ) -> Result<NodeMetadata, SendError> {
        let id = (cluster.clone(), targeted.node.clone());
        {
            let mut clusters = self.clusters();
            clusters.requests += 1;
            assert!(
                clusters.in_flight.insert(id.clone()),
                "two concurrent patches for {id:?}"
            );
            let in_flight = clusters.in_flight.len();
            self.max_concurrent.fetch_max(in_flight, Ordering::Relaxed);
        }
        let fault = self.fault(cluster).await;
        let mut clusters = self.clusters();
        clusters.in_flight.remove(&id);
        fault?;
        if clusters.labels_refused {
            return Err(SendError::Refused("no".into()));
        }
        clusters.version += 1;
        let version = clusters.version.to_string();
        let node = clusters.nodes.get_mut(&id).ok_or(SendError::Gone)?;
        let (uid, known) = (
            Some(targeted.uid.clone()),
            Some(targeted.resource_version.clone()),
        );
        if (uid, known) != (node.uid.clone(), node.resource_version.clone()) {
            return Err(SendError::Conflict);
        }
        for (key, value) in &targeted.patch.labels {
            match value {
                Some(value) => node.labels.insert(key.clone(), value.clone()),
                None => node.labels.remove(key),
            };
        }
        node.owned.clone_from(&targeted.patch.owned);
        node.resource_version = Some(version);
        let (patched, rack) = (
            node.clone(),
            node.labels.get("rack").unwrap_or_default().to_owned(),
        );
        clusters.accepted.push(rack);
        Ok(patched)
    }

    async fn patch_conditions(
        &self,
        cluster: &ClusterName,
        targeted: &TargetedConditions,
    ) -> Result<(NodeMetadata, ReportedConditions), SendError> {
        self.clusters().condition_requests += 1;
        self.fault(cluster).await?;
        self.clusters().patch_conditions(cluster, targeted)
    }

    async fn get(&self, cluster: &ClusterName, node: &NodeName) -> Result<NodeMetadata, SendError> {
        self.clusters().reads += 1;
        self.fault(cluster).await?;
        let id = (cluster.clone(), node.clone());
        self.clusters().nodes.get(&id).cloned().ok_or(SendError::Gone)
    }

    async fn evidence(&self, cluster: &ClusterName, _node: &NodeName) -> Result<Evidence, SendError> {
        self.clusters().evidence += 1;
        self.fault(cluster).await?;
        let safe = self.clusters().safe;
        Ok(Evidence {
            csi: if safe {
                Vec::new()
            } else {
                vec![("driver".into(), Vec::new())]
            },
            ..Evidence::default()
        })
    }
}

/// Test planner: `rack` follows the infra node; `zone` only if the Node has no CSI driver.
pub(super) fn plan(input: &LabelInput, evidence: Option<&Evidence>) -> NodePlan {
    let mut plan = NodePlan::default();
    let mut patch = NodePatch::default();
    let Some(host) = &input.host else { return plan };
    for (key, careful) in [("rack", false), ("zone", true)] {
        let (current, desired) = (
            input.labels.get(key).map(str::to_owned),
            host.labels.get(key).map(str::to_owned),
        );
        let (action, reason) = match (careful, evidence) {
            _ if current == desired => (Action::Keep, Reason::InLine),
            _ if current.is_some() && desired.is_some() && input.unconfirmed.contains(key) => {
                (Action::Keep, Reason::Moved)
            }
            _ if desired.is_none() && input.unconfirmed.contains(key) => (Action::Keep, Reason::SourceGone),
            _ if desired.is_none() => (Action::Set, Reason::SourceGone),
            (true, None) => (Action::Report, Reason::SafetyUnknown),
            (true, Some(evidence)) if !evidence.csi.is_empty() => (Action::Report, Reason::Unsafe),
            _ => (
                Action::Set,
                if current.is_some() {
                    Reason::Moved
                } else {
                    Reason::Missing
                },
            ),
        };
        plan.needs_evidence |= reason == Reason::SafetyUnknown;
        if action == Action::Set {
            patch.labels.insert(key.to_owned(), desired.clone());
        }
        plan.decisions.push(Decision {
            key: key.to_owned(),
            source: Some(key.to_owned()),
            policy: None,
            mode: None,
            current,
            desired,
            action,
            reason,
            message: "m".into(),
            dry_run: false,
        });
    }
    plan.patch = (!patch.labels.is_empty()).then_some(patch);
    plan
}

pub(super) struct Harness {
    pub(super) fake: FakeNodeWriter,
    pub(super) fleet: Arc<Fleet>,
    pub(super) statuses: Arc<LabelStatusStore>,
    pub(super) changes: mpsc::Sender<Vec<VmKey>>,
    pub(super) stop: CancellationToken,
    pub(super) events: mpsc::Receiver<NewEvent>,
}

pub(super) fn settings() -> ReconcilerSettings {
    ReconcilerSettings {
        write: true,
        per_second: 50,
        parallel: 8,
        recheck: Duration::from_mins(1),
        confirm: ConfirmationDelays {
            removal: Duration::from_secs(30),
            change: Duration::from_secs(30),
        },
    }
}

impl Harness {
    pub(super) fn new(write_access: WriteAccess, settings: ReconcilerSettings) -> Self {
        Self::with(FakeNodeWriter::default(), write_access, settings)
    }

    /// A writer with an empty inventory that is not synced.
    pub(super) fn with(
        fake: FakeNodeWriter,
        write_access: WriteAccess,
        settings: ReconcilerSettings,
    ) -> Self {
        let fleet = Arc::new(Fleet::new(DialRules::default(), || Timestamp::UNIX_EPOCH));
        let statuses = Arc::<LabelStatusStore>::default();
        let (sender, events) = EventRecorder::channel(None);
        let (changes, incoming) = mpsc::channel(64);
        let stop = CancellationToken::new();
        let mut registry = prometheus_client::registry::Registry::default();
        let reconciler = LabelReconciler::new(ReconcilerParts {
            fleet: Arc::clone(&fleet),
            writer: fake.clone(),
            write_access,
            statuses: Arc::clone(&statuses),
            events: sender,
            metrics: LabelMetrics::register(&mut registry),
            settings,
            plan,
        });
        tokio::spawn(run(reconciler, incoming, stop.clone()));
        Self {
            fake,
            fleet,
            statuses,
            changes,
            stop,
            events,
        }
    }

    pub(super) async fn event(&self, event: InventoryEvent) {
        let keys = self.fleet.apply(event);
        if !keys.is_empty() {
            self.changes.send(keys).await.unwrap();
        }
    }
    pub(super) async fn apply(&self, fact: Fact) {
        self.event(InventoryEvent::Apply(fact)).await;
    }

    pub(super) async fn host(&self, name: &str, rack: &str) {
        self.host_in(name, rack, None).await;
    }

    pub(super) async fn host_in(&self, name: &str, rack: &str, zone: Option<&str>) {
        let zone = zone.map(|zone| ("zone".to_owned(), zone.to_owned()));
        let labels = [("rack".to_owned(), rack.to_owned())].into_iter().chain(zone);
        self.apply(Fact::InfraNode(InfraNode {
            name: name.parse().unwrap(),
            uid: None,
            labels: labels.collect(),
            ready: Some(true),
            conditions: ReportedConditions::default(),
            reported_ms: None,
            unschedulable: false,
            taints: Vec::new(),
            allocatable: None,
        }))
        .await;
    }

    pub(super) async fn host_without(&self, name: &str) {
        self.apply(Fact::InfraNode(InfraNode {
            name: name.parse().unwrap(),
            uid: None,
            labels: Labels::new(),
            ready: Some(true),
            conditions: ReportedConditions::default(),
            reported_ms: None,
            unschedulable: false,
            taints: Vec::new(),
            allocatable: None,
        }))
        .await;
    }

    pub(super) async fn cluster(&self, name: &str) {
        self.cluster_with(name, &[], false).await;
    }

    /// A cluster that requests these conditions on its Nodes.
    pub(super) async fn cluster_with(&self, name: &str, conditions: &[NodeConditionKind], suspend: bool) {
        self.apply(Fact::UserCluster(UserCluster {
            name: name.parse().unwrap(),
            namespace: name.parse().unwrap(),
            selector: Selector::default(),
            labels: Labels::new(),
            suspend,
            relay: None,
            node_authorities: None,
            node_conditions: conditions.iter().copied().collect(),
        }))
        .await;
    }

    pub(super) async fn vm(&self, cluster: &str, name: &str, host: &str) {
        self.vm_with(cluster, name, host, ReportedConditions::default())
            .await;
    }

    /// A VM with a volume that is not ready.
    pub(super) async fn sick_vm(&self, cluster: &str, name: &str, host: &str) {
        let volumes = ReportedCondition::new("DataVolumesReady", ReportedStatus::False, None, Some("m"));
        self.vm_with(cluster, name, host, ReportedConditions::new([volumes]))
            .await;
    }

    async fn vm_with(&self, cluster: &str, name: &str, host: &str, conditions: ReportedConditions) {
        let key = vm_key(cluster, name);
        self.apply(Fact::Vmi(Box::new(Vmi {
            uid: Some(format!("vmi-{name}").parse().unwrap()),
            firmware_uuid: Some(machine(name)),
            has_status: true,
            phase: Phase::Running,
            node: Some(host.parse().unwrap()),
            conditions,
            ..Vmi::new(key)
        })))
        .await;
    }

    /// The Node registers, and the watch reports it.
    pub(super) async fn node(&self, cluster: &str, name: &str) {
        let id = (cluster.parse().unwrap(), name.parse().unwrap());
        {
            let mut clusters = self.fake.clusters();
            clusters.version += 1;
            let fresh = NodeMetadata {
                uid: Some(
                    format!("node-{cluster}-{name}-{}", clusters.version)
                        .parse()
                        .unwrap(),
                ),
                resource_version: Some(clusters.version.to_string()),
                ..NodeMetadata::default()
            };
            clusters.nodes.insert(id, fresh);
        }
        self.echo(cluster, name).await;
    }

    /// The watch reports the Node as it is now.
    pub(super) async fn echo(&self, cluster: &str, name: &str) {
        let (cluster, name): (ClusterName, NodeName) = (cluster.parse().unwrap(), name.parse().unwrap());
        let id = (cluster.clone(), name.clone());
        let fresh = self.fake.clusters().nodes[&id].clone();
        let conditions = self.fake.clusters().reported(&id);
        self.apply(Fact::UserNode(UserNode {
            provider_id: Some(format!("kubevirt://{name}")),
            system_uuid: Some(machine(name.as_str())),
            uid: fresh.uid,
            labels: fresh.labels,
            ready: Some(true),
            conditions,
            owned: fresh.owned,
            resource_version: fresh.resource_version,
            ..UserNode::new(cluster, name)
        }))
        .await;
    }

    /// Another writer changes a Node; `watched` is whether the watch reports it.
    pub(super) async fn write_as_other(&self, cluster: &str, name: &str, rack: &str, watched: bool) {
        {
            let mut clusters = self.fake.clusters();
            clusters.version += 1;
            let version = clusters.version.to_string();
            let id = (cluster.parse().unwrap(), name.parse().unwrap());
            let node = clusters.nodes.get_mut(&id).unwrap();
            node.labels.insert("rack".into(), rack.into());
            node.resource_version = Some(version);
        }
        if watched {
            self.echo(cluster, name).await;
        }
    }

    /// A synced inventory with one cluster per name, each with one VM `a` on `h1` and its Node.
    pub(super) async fn ready(&self, clusters: &[&str]) {
        self.event(InventoryEvent::Init).await;
        self.host("h1", "r1").await;
        self.host("h2", "r2").await;
        for cluster in clusters {
            self.cluster(cluster).await;
            self.vm(cluster, "a", "h1").await;
            self.node(cluster, "a").await;
        }
        self.event(InventoryEvent::Synced).await;
    }

    pub(super) fn racks(&self) -> Vec<String> {
        self.fake.clusters().accepted.clone()
    }
    pub(super) fn requests(&self) -> usize {
        self.fake.clusters().requests
    }
    pub(super) fn status(&self, vm: &str) -> LabelStatus {
        let (cluster, name) = vm.split_once('/').unwrap();
        self.statuses
            .get(&vm_key(cluster, name))
            .unwrap()
            .as_ref()
            .clone()
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub(super) fn vm_key(namespace: &str, name: &str) -> VmKey {
    VmKey {
        namespace: namespace.parse().unwrap(),
        name: name.parse().unwrap(),
    }
}

pub(super) async fn ms(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
