//! A world of Nodes with versions, faults on demand, and a stage to play on.

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
};
use virtfleet_wire::ids::NodeName;

use super::super::*;
use crate::events::Notice;
use crate::leader::Writing;

/// How the next requests of a cluster end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Silent,
    Status(u16),
}

#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) nodes: BTreeMap<(ClusterName, NodeName), Fresh>,
    pub(super) faults: BTreeMap<ClusterName, Fault>,
    pub(super) unreachable: BTreeSet<ClusterName>,
    pub(super) version: u64,
    /// What `rack` was after each patch that was accepted.
    pub(super) accepted: Vec<String>,
    pub(super) asked: usize,
    pub(super) evidence: usize,
    pub(super) flying: BTreeSet<(ClusterName, NodeName)>,
    pub(super) safe: bool,
}

#[derive(Clone, Default)]
pub(super) struct Fake {
    pub(super) world: Arc<Mutex<World>>,
    pub(super) most_at_once: Arc<AtomicUsize>,
    /// How long a request takes.
    pub(super) takes: Duration,
}

impl Fake {
    pub(super) fn world(&self) -> std::sync::MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }
    async fn fault(&self, cluster: &ClusterName) -> Result<(), SendError> {
        let fault = self.world().faults.get(cluster).copied();
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

impl NodeWriter for Fake {
    fn can_reach(&self, cluster: &ClusterName) -> bool {
        !self.world().unreachable.contains(cluster)
    }

    async fn patch(&self, cluster: &ClusterName, aimed: &Aimed) -> Result<Fresh, SendError> {
        let id = (cluster.clone(), aimed.node.clone());
        {
            let mut world = self.world();
            world.asked += 1;
            assert!(world.flying.insert(id.clone()), "two patches at once for {id:?}");
            let flying = world.flying.len();
            self.most_at_once.fetch_max(flying, Ordering::Relaxed);
        }
        let fault = self.fault(cluster).await;
        let mut world = self.world();
        world.flying.remove(&id);
        fault?;
        world.version += 1;
        let version = world.version.to_string();
        let node = world.nodes.get_mut(&id).ok_or(SendError::Gone)?;
        let (uid, known) = (Some(aimed.uid.clone()), Some(aimed.resource_version.clone()));
        if (uid, known) != (node.uid.clone(), node.resource_version.clone()) {
            return Err(SendError::Conflict);
        }
        for (key, value) in &aimed.patch.labels {
            match value {
                Some(value) => node.labels.insert(key.clone(), value.clone()),
                None => node.labels.remove(key),
            };
        }
        node.owned.clone_from(&aimed.patch.owned);
        node.resource_version = Some(version);
        let (told, rack) = (
            node.clone(),
            node.labels.get("rack").unwrap_or_default().to_owned(),
        );
        world.accepted.push(rack);
        Ok(told)
    }

    async fn get(&self, cluster: &ClusterName, node: &NodeName) -> Result<Fresh, SendError> {
        self.fault(cluster).await?;
        let id = (cluster.clone(), node.clone());
        self.world().nodes.get(&id).cloned().ok_or(SendError::Gone)
    }

    async fn evidence(&self, cluster: &ClusterName, _node: &NodeName) -> Result<Evidence, SendError> {
        self.world().evidence += 1;
        self.fault(cluster).await?;
        let safe = self.world().safe;
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

/// `rack` follows the infra node's; `zone` only when no CSI driver is there.
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

pub(super) struct Stage {
    pub(super) fake: Fake,
    pub(super) fleet: Arc<Fleet>,
    pub(super) book: Arc<LabelBook>,
    pub(super) changes: mpsc::Sender<Vec<VmKey>>,
    pub(super) stop: CancellationToken,
    pub(super) told: mpsc::Receiver<Notice>,
}

pub(super) fn settings() -> SenderSettings {
    SenderSettings {
        write: true,
        per_second: 50,
        parallel: 8,
        recheck: Duration::from_mins(1),
        confirm: Confirm {
            removal: Duration::from_secs(30),
            change: Duration::from_secs(30),
        },
    }
}

impl Stage {
    pub(super) fn new(writing: Writing, settings: SenderSettings) -> Self {
        Self::with(Fake::default(), writing, settings)
    }

    /// Nothing is known and the inventory is not synced.
    pub(super) fn with(fake: Fake, writing: Writing, settings: SenderSettings) -> Self {
        let fleet = Arc::new(Fleet::new(DialRules::default(), || Timestamp::UNIX_EPOCH));
        let book = Arc::<LabelBook>::default();
        let (events, told) = Events::channel(None);
        let (changes, incoming) = mpsc::channel(64);
        let stop = CancellationToken::new();
        let mut registry = prometheus_client::registry::Registry::default();
        let shared = Shared::new(
            Arc::clone(&fleet),
            fake.clone(),
            writing,
            Arc::clone(&book),
            events,
            LabelMetrics::register(&mut registry),
            settings,
            plan,
        );
        tokio::spawn(run(shared, incoming, stop.clone()));
        Self {
            fake,
            fleet,
            book,
            changes,
            stop,
            told,
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
        }))
        .await;
    }

    pub(super) async fn host_without(&self, name: &str) {
        self.apply(Fact::InfraNode(InfraNode {
            name: name.parse().unwrap(),
            uid: None,
            labels: Labels::new(),
            ready: Some(true),
        }))
        .await;
    }

    pub(super) async fn cluster(&self, name: &str) {
        self.apply(Fact::UserCluster(UserCluster {
            name: name.parse().unwrap(),
            namespace: name.parse().unwrap(),
            selector: Selector::default(),
            labels: Labels::new(),
            suspend: false,
        }))
        .await;
    }

    pub(super) async fn vm(&self, cluster: &str, name: &str, host: &str) {
        let key = vm_key(cluster, name);
        self.apply(Fact::Vmi(Box::new(Vmi {
            key,
            uid: Some(format!("vmi-{name}").parse().unwrap()),
            labels: Labels::new(),
            firmware_uuid: None,
            hostname: None,
            has_status: true,
            phase: Phase::Running,
            node: Some(host.parse().unwrap()),
            interfaces: Vec::new(),
            guest_os: None,
            paused: false,
            migration: None,
            deleting: false,
        })))
        .await;
    }

    /// The Node registers, and the watch tells so.
    pub(super) async fn node(&self, cluster: &str, name: &str) {
        let id = (cluster.parse().unwrap(), name.parse().unwrap());
        {
            let mut world = self.fake.world();
            world.version += 1;
            let fresh = Fresh {
                uid: Some(
                    format!("node-{cluster}-{name}-{}", world.version)
                        .parse()
                        .unwrap(),
                ),
                resource_version: Some(world.version.to_string()),
                ..Fresh::default()
            };
            world.nodes.insert(id, fresh);
        }
        self.echo(cluster, name).await;
    }

    /// What the watch tells of a Node now.
    pub(super) async fn echo(&self, cluster: &str, name: &str) {
        let (cluster, name): (ClusterName, NodeName) = (cluster.parse().unwrap(), name.parse().unwrap());
        let fresh = self.fake.world().nodes[&(cluster.clone(), name.clone())].clone();
        self.apply(Fact::UserNode(UserNode {
            cluster,
            provider_id: Some(format!("kubevirt://{name}")),
            system_uuid: None,
            name,
            uid: fresh.uid,
            labels: fresh.labels,
            ready: Some(true),
            owned: fresh.owned,
            kubelet_labels: BTreeSet::new(),
            resource_version: fresh.resource_version,
        }))
        .await;
    }

    /// Somebody else writes to a Node; `told` is whether the watch has it.
    pub(super) async fn meddle(&self, cluster: &str, name: &str, rack: &str, told: bool) {
        {
            let mut world = self.fake.world();
            world.version += 1;
            let version = world.version.to_string();
            let id = (cluster.parse().unwrap(), name.parse().unwrap());
            let node = world.nodes.get_mut(&id).unwrap();
            node.labels.insert("rack".into(), rack.into());
            node.resource_version = Some(version);
        }
        if told {
            self.echo(cluster, name).await;
        }
    }

    /// One cluster per name, each with one VM `a` on `h1` and its Node; synced.
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
        self.fake.world().accepted.clone()
    }
    pub(super) fn asked(&self) -> usize {
        self.fake.world().asked
    }
    pub(super) fn status(&self, vm: &str) -> LabelStatus {
        let (cluster, name) = vm.split_once('/').unwrap();
        self.book.get(&vm_key(cluster, name)).unwrap().as_ref().clone()
    }
}

impl Drop for Stage {
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
