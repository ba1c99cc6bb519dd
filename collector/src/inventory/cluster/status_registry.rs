//! Status of all watches: which have not listed yet, which fail, which objects cannot be read.
//! Reported as findings, metrics, and as the event that the inventory is complete.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;
use virtfleet_collector_core::findings;
use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::{ClusterName, Namespace},
};

use super::{failure::WatchFailure, kinds::Kind, metrics::WatchMetrics};

/// The namespace of the kubelets' Leases.
pub(super) const NODE_LEASES: &str = "kube-node-lease";

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WatchId {
    pub(super) kind: Kind,
    /// A user cluster; none: the infra cluster.
    pub(super) cluster: Option<ClusterName>,
    /// The namespace, if it watches a single one.
    pub(super) namespace: Option<Namespace>,
}

impl WatchId {
    fn cluster(&self) -> &str {
        self.cluster.as_ref().map_or("", ClusterName::as_str)
    }

    /// e.g. `virtualmachines.kubevirt.io in namespace vms`.
    fn what(&self) -> String {
        let what = self.kind.rbac();
        match (&self.namespace, &self.cluster) {
            (Some(namespace), _) if self.kind == Kind::Namespace => format!("{what}, {namespace} only"),
            (Some(namespace), _) => format!("{what} in namespace {namespace}"),
            (None, Some(cluster)) => format!("{what} of user cluster {cluster}"),
            (None, None) => what,
        }
    }
}

#[derive(Debug, Default)]
struct WatchStatus {
    /// It has listed completely at least once.
    listed: bool,
    failure: Option<WatchFailure>,
    objects: usize,
    unreadable: Vec<Finding>,
}

impl WatchStatus {
    /// Whether the inventory is complete with respect to this watch.
    fn is_settled(&self, kind: Kind) -> bool {
        let without = self.failure.as_ref().is_some_and(WatchFailure::is_definite);
        self.listed || (kind.is_optional() && without)
    }
}

#[derive(Debug, Default)]
struct RegistryState {
    statuses: BTreeMap<WatchId, WatchStatus>,
    /// Findings about user clusters.
    clusters: BTreeMap<ClusterName, Finding>,
    /// Further findings about user clusters, by their ids.
    notes: BTreeMap<(ClusterName, &'static str), Finding>,
    /// User clusters that hibernate.
    hibernating: BTreeSet<ClusterName>,
    /// That the API server of the infra cluster does not answer.
    server: Option<Finding>,
    /// That the Leases of a cluster cannot be read; without a name: of the infra cluster.
    leases: BTreeMap<Option<ClusterName>, Finding>,
    synced: bool,
}

/// Registry of the status of all watches.
#[derive(Debug)]
pub(super) struct StatusRegistry {
    state: Mutex<RegistryState>,
    problems: watch::Sender<Vec<Finding>>,
    metrics: WatchMetrics,
}

impl StatusRegistry {
    /// A registry with the infra cluster's watches, none of which has listed.
    pub(super) fn new(
        infra: &[WatchId],
        problems: watch::Sender<Vec<Finding>>,
        metrics: WatchMetrics,
    ) -> Self {
        let statuses = infra
            .iter()
            .map(|id| (id.clone(), WatchStatus::default()))
            .collect();
        let registry = Self {
            state: Mutex::new(RegistryState {
                statuses,
                ..RegistryState::default()
            }),
            problems,
            metrics,
        };
        registry.publish(&registry.lock());
        for id in infra {
            registry.update_metrics(&registry.lock(), id);
        }
        registry
    }

    fn lock(&self) -> MutexGuard<'_, RegistryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn list_started(&self, id: &WatchId) {
        self.metrics.list_started(id.kind.name(), id.cluster());
    }

    /// A list is complete. Returns true once, when it completes the inventory: the caller then
    /// emits `Synced` after all events of the list.
    pub(super) fn listed(&self, id: &WatchId) -> bool {
        self.change(id, |status| {
            status.listed = true;
            status.failure = None;
        })
    }

    pub(super) fn works(&self, id: &WatchId) {
        self.change(id, |status| status.failure = None);
    }

    /// The watch failed. A first failure after success is ignored, because every API server
    /// restarts now and then, unless retrying cannot help. Returns like [`StatusRegistry::listed`].
    pub(super) fn failed(&self, id: &WatchId, failure: &WatchFailure) -> bool {
        self.metrics.failed(id.kind.name(), id.cluster());
        self.change(id, |status| {
            if !status.listed || failure.is_definite() || failure.count > 1 {
                status.failure = Some(failure.clone());
            }
        })
    }

    /// Sets the number of objects and the unreadable ones.
    pub(super) fn set_objects(
        &self,
        id: &WatchId,
        objects: usize,
        unreadable: &BTreeMap<(String, String), String>,
    ) {
        {
            // Usually one of many objects changed, which needs no new findings.
            let mut state = self.lock();
            let status = state.statuses.entry(id.clone()).or_default();
            if status.unreadable.is_empty() && unreadable.is_empty() {
                if std::mem::replace(&mut status.objects, objects) != objects {
                    self.update_metrics(&state, id);
                }
                return;
            }
        }
        let found = unreadable.iter().take(MAX_NAMED);
        let found = found
            .map(|((namespace, name), problem)| object_finding(id, namespace, name, problem))
            .collect();
        self.change(id, |status| {
            status.objects = objects;
            status.unreadable = found;
        });
    }

    /// Removes a watch whose cluster is gone.
    pub(super) fn remove(&self, id: &WatchId) {
        let mut state = self.lock();
        state.statuses.remove(id);
        if let Some(cluster) = &id.cluster {
            state.clusters.remove(cluster);
            state.notes.retain(|(name, _), _| name != cluster);
            state.leases.remove(&id.cluster);
            state.hibernating.remove(cluster);
        }
        self.metrics.remove(id.kind.name(), id.cluster());
        self.publish(&state);
    }

    /// Sets or clears the finding about a user cluster.
    pub(super) fn cluster(&self, name: &ClusterName, finding: Option<Finding>) {
        let mut state = self.lock();
        match finding {
            Some(finding) => drop(state.clusters.insert(name.clone(), finding)),
            None => drop(state.clusters.remove(name)),
        }
        self.publish(&state);
    }

    /// Sets or clears the finding `id` about a user cluster, beside that about its connection.
    pub(super) fn note(&self, name: &ClusterName, id: &'static str, finding: Option<Finding>) {
        let mut state = self.lock();
        let key = (name.clone(), id);
        match finding {
            Some(finding) if state.notes.get(&key) == Some(&finding) => return,
            Some(finding) => drop(state.notes.insert(key, finding)),
            None if state.notes.remove(&key).is_none() => return,
            None => {}
        }
        self.publish(&state);
    }

    /// Sets whether a user cluster hibernates. While it does, it is no problem that its API server
    /// does not answer: there is no finding about it, and no metric that says so.
    pub(super) fn set_hibernates(&self, name: &ClusterName, hibernates: bool) {
        let mut state = self.lock();
        let changed = if hibernates {
            state.hibernating.insert(name.clone())
        } else {
            state.hibernating.remove(name)
        };
        if !changed {
            return;
        }
        for id in state
            .statuses
            .keys()
            .filter(|id| id.cluster.as_ref() == Some(name))
        {
            self.update_metrics(&state, id);
        }
        self.publish(&state);
    }

    /// Sets or clears that the API server of the infra cluster does not answer, whatever its
    /// watches do.
    pub(super) fn server(&self, failure: Option<&WatchFailure>) {
        let mut state = self.lock();
        state.server = failure.map(server_finding);
        self.publish(&state);
    }

    /// Sets or clears that the Leases of a cluster cannot be read: the HTTP status, and why.
    pub(super) fn leases(&self, cluster: Option<&ClusterName>, failed: Option<(Option<u16>, &str)>) {
        let mut state = self.lock();
        match failed {
            Some((code, why)) => {
                let finding = leases_finding(cluster, code, why);
                state.leases.insert(cluster.cloned(), finding);
            }
            None if state.leases.remove(&cluster.cloned()).is_none() => return,
            None => {}
        }
        self.publish(&state);
    }

    fn change(&self, id: &WatchId, change: impl FnOnce(&mut WatchStatus)) -> bool {
        let mut state = self.lock();
        change(state.statuses.entry(id.clone()).or_default());
        self.update_metrics(&state, id);
        let complete = state
            .statuses
            .iter()
            .filter(|(id, _)| id.cluster.is_none())
            .all(|(id, status)| status.is_settled(id.kind));
        let now = complete && !state.synced;
        state.synced |= complete;
        self.publish(&state);
        now
    }

    fn update_metrics(&self, state: &RegistryState, id: &WatchId) {
        let same = state
            .statuses
            .iter()
            .filter(|(other, _)| other.kind == id.kind && other.cluster == id.cluster);
        let (synced, objects) = same.fold((true, 0), |(synced, objects), (_, status)| {
            let works = status.listed && status.failure.is_none();
            (synced && works, objects + status.objects)
        });
        let cluster = id.cluster.as_ref();
        let hibernates = cluster.is_some_and(|name| state.hibernating.contains(name));
        let synced = (synced || !hibernates).then_some(synced);
        self.metrics.set(id.kind.name(), id.cluster(), synced, objects);
    }

    fn publish(&self, state: &RegistryState) {
        let is_expected = |name: &ClusterName, finding: &Finding| {
            state.hibernating.contains(name) && finding.id != findings::USER_CLUSTER_FAILED
        };
        let clusters = state
            .clusters
            .iter()
            .filter(|(name, found)| !is_expected(name, found));
        let about = clusters.map(|(_, found)| found).chain(state.notes.values());
        // The finding about a user cluster also covers its Leases.
        let leases = state.leases.iter().filter(|(cluster, _)| match cluster {
            Some(name) => !state.clusters.contains_key(name),
            None => true,
        });
        let about = about.chain(leases.map(|(_, finding)| finding));
        let mut found: Vec<_> = about.chain(&state.server).cloned().collect();
        for (id, status) in &state.statuses {
            // The finding about a user cluster also covers its watch.
            if id.cluster.is_none() {
                found.extend(watch_finding(id, status));
            }
            found.extend(status.unreadable.iter().cloned());
        }
        self.problems.send_if_modified(|known| {
            let changed = *known != found;
            if changed {
                crate::inventory::log_new(known, &found);
                *known = found;
            }
            changed
        });
    }
}

/// Maximum unreadable objects of a watch that are named.
const MAX_NAMED: usize = 50;

fn server_finding(failure: &WatchFailure) -> Finding {
    let message = format!("the API server of the infra cluster: {}", failure.message);
    let (reason, remedy) = match failure.code {
        Some(401) => (
            "Unauthorized",
            "configure a token or certificate that the API server accepts",
        ),
        _ => (
            "ServerSilent",
            "check the API server; the collector keeps the last known state",
        ),
    };
    let (id, subject) = (findings::INVENTORY_WATCH_FAILING, ("Watch", "API server"));
    Finding::new(id, Severity::Critical, subject, reason, message)
        .with("tries", failure.count)
        .remedy(remedy)
}

fn leases_finding(cluster: Option<&ClusterName>, code: Option<u16>, why: &str) -> Finding {
    let (of, manifest) = match cluster {
        Some(name) => (format!("user cluster {name}"), "user-cluster"),
        None => ("the infra cluster".to_owned(), "infra"),
    };
    let message = format!(
        "the Leases of the kubelets of {of} cannot be read: {why}; meanwhile a dead kubelet is noticed after ten minutes"
    );
    let remedy = if matches!(code, Some(403 | 404)) {
        format!(
            "grant list on the Leases of the namespace {NODE_LEASES}: kubectl apply -f packaging/collector/kubernetes/{manifest}/rbac.yaml"
        )
    } else {
        "check the API server; the collector tries again within ten minutes".to_owned()
    };
    let subject = ("Leases", of.as_str());
    let id = findings::NODE_LEASES_UNREADABLE;
    let found = Finding::new(id, Severity::Warning, subject, "LeasesUnreadable", message).remedy(remedy);
    match cluster {
        Some(name) => found.with("cluster", name),
        None => found,
    }
}

fn watch_finding(id: &WatchId, status: &WatchStatus) -> Option<Finding> {
    let what = id.what();
    let subject = ("Watch", what.as_str());
    let Some(failure) = &status.failure else {
        let message = format!("{what}: not listed completely yet");
        return (!status.listed).then(|| {
            Finding::new(
                findings::INVENTORY_WATCH_WAITING,
                Severity::Info,
                subject,
                "NotListedYet",
                message,
            )
            .remedy("wait; if it persists, check the API server and the collector's log")
        });
    };
    let scope = match id.namespace {
        Some(_) if id.kind != Kind::Namespace => "Role",
        _ => "ClusterRole",
    };
    let message = format!("{what}: {}", failure.message);
    if failure.code == Some(404)
        && let Some(without) = id.kind.without()
        && !status.listed
    {
        return Some(
            Finding::new(
                findings::INVENTORY_KIND_ABSENT,
                Severity::Info,
                subject,
                "KindAbsent",
                message,
            )
            .with("kind", id.kind.name())
            .remedy(format!("nothing, if the cluster has no such kind: {without}")),
        );
    }
    let (reason, remedy) = match failure.code {
        Some(403) => (
            "Forbidden",
            format!(
                "grant the collector the verbs list and watch on {} with a {scope}{}",
                id.kind.rbac(),
                id.kind
                    .without()
                    .map(|without| format!("; {without}"))
                    .unwrap_or_default()
            ),
        ),
        Some(401) => (
            "Unauthorized",
            "configure a token or certificate that the API server accepts".to_owned(),
        ),
        Some(404) if matches!(id.kind, Kind::UserCluster | Kind::Policy) => (
            "KindAbsent",
            "install the definitions: virtfleet-collector crds | kubectl apply -f -".to_owned(),
        ),
        Some(404) => ("KindAbsent", "install KubeVirt".to_owned()),
        _ => (
            "WatchFails",
            "check the API server; the collector retries and keeps the last known state".to_owned(),
        ),
    };
    let (finding, severity) = if id.kind.is_optional() {
        (findings::INVENTORY_KIND_ABSENT, Severity::Warning)
    } else {
        (findings::INVENTORY_WATCH_FAILING, Severity::Critical)
    };
    let found = Finding::new(finding, severity, subject, reason, message)
        .with("kind", id.kind.name())
        .with("tries", failure.count);
    let found = match &id.namespace {
        Some(namespace) => found.with("namespace", namespace),
        None => found,
    };
    Some(found.remedy(&remedy))
}

/// Restricts the finding to the tenant whose objects are unknown because of it, if it is only one:
/// see [`findings::gap`].
fn restrict_to_tenant(found: Finding, id: &WatchId, name: &str, namespace: &str) -> Finding {
    match (id.kind, &id.cluster) {
        (_, Some(cluster)) => found.with("cluster", cluster),
        (Kind::UserCluster, None) => found.with("cluster", name),
        (Kind::Vmi | Kind::Vm | Kind::Move, None) => found.with("namespace", namespace),
        (Kind::Namespace, None) => found.with("namespace", name),
        _ => found,
    }
}

fn object_finding(id: &WatchId, namespace: &str, name: &str, problem: &str) -> Finding {
    let kind = id.kind.name();
    let mut object = name.to_owned();
    if !namespace.is_empty() {
        object = format!("{namespace}/{name}");
    }
    if let Some(cluster) = &id.cluster {
        object = format!("{object} of user cluster {cluster}");
    }
    let message = format!("{kind} {object}: {problem}");
    let found = Finding::new(
        findings::INVENTORY_OBJECT_UNREADABLE,
        Severity::Warning,
        (kind, &object),
        "ObjectUnreadable",
        message,
    )
    .with("problem", problem);
    restrict_to_tenant(found, id, name, namespace)
        .remedy("fix the object; until then its last valid version is used")
}
