//! How every watch stands: what is not read yet, what fails, what cannot be read; as findings, metrics, and the word that the
//! inventory is complete.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;
use virtfleet_collector_core::findings;
use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::{ClusterName, Namespace},
};

use super::{failure::Failure, kinds::Kind, metrics::WatchMetrics};

/// Names a watch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WatchId {
    pub(super) kind: Kind,
    /// A user cluster; none: the infra cluster.
    pub(super) cluster: Option<ClusterName>,
    /// The only namespace that it watches.
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
            (Some(namespace), _) => format!("{what} in namespace {namespace}"),
            (None, Some(cluster)) => format!("{what} of user cluster {cluster}"),
            (None, None) => what,
        }
    }
}

#[derive(Debug, Default)]
struct Stand {
    /// It has listed completely once.
    listed: bool,
    failure: Option<Failure>,
    objects: usize,
    unreadable: Vec<Finding>,
}

impl Stand {
    /// Whether the inventory is complete as far as this watch goes.
    fn is_settled(&self, kind: Kind) -> bool {
        let without = self.failure.as_ref().is_some_and(Failure::is_definite);
        self.listed || (kind.is_optional() && without)
    }
}

#[derive(Debug, Default)]
struct State {
    stands: BTreeMap<WatchId, Stand>,
    /// Findings about user clusters.
    clusters: BTreeMap<ClusterName, Finding>,
    /// Those in namespaces that are not watched.
    unwatched: BTreeMap<ClusterName, Finding>,
    synced: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Board {
    state: Mutex<State>,
    problems: watch::Sender<Vec<Finding>>,
    metrics: WatchMetrics,
}

impl Board {
    /// A board of the infra cluster's watches, none of which has listed.
    pub(super) fn new(
        infra: &[WatchId],
        problems: watch::Sender<Vec<Finding>>,
        metrics: WatchMetrics,
    ) -> Self {
        let stands = infra.iter().map(|id| (id.clone(), Stand::default())).collect();
        let board = Self {
            state: Mutex::new(State {
                stands,
                ..State::default()
            }),
            problems,
            metrics,
        };
        board.tell(&board.lock());
        for id in infra {
            board.measure(&board.lock(), id);
        }
        board
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A list begins.
    pub(super) fn begun(&self, id: &WatchId) {
        self.metrics.begun(id.kind.word(), id.cluster());
    }

    /// It has listed completely. Returns whether the inventory is complete now, once: whoever hears it says so after all that
    /// it has said before.
    pub(super) fn listed(&self, id: &WatchId) -> bool {
        self.change(id, |stand| {
            stand.listed = true;
            stand.failure = None;
        })
    }

    /// It works.
    pub(super) fn fine(&self, id: &WatchId) {
        self.change(id, |stand| stand.failure = None);
    }

    /// It failed. A first failure after it worked is passed over, unless waiting does not mend it: every API server restarts
    /// now and then. Returns as [`Board::listed`] does.
    pub(super) fn failed(&self, id: &WatchId, failure: &Failure) -> bool {
        self.metrics.failed(id.kind.word(), id.cluster());
        self.change(id, |stand| {
            if !stand.listed || failure.is_definite() || failure.count > 1 {
                stand.failure = Some(failure.clone());
            }
        })
    }

    /// What it knows now.
    pub(super) fn knows(
        &self,
        id: &WatchId,
        objects: usize,
        unreadable: &BTreeMap<(String, String), String>,
    ) {
        {
            // The usual event changes one object of many, and nobody needs to hear of it.
            let mut state = self.lock();
            let stand = state.stands.entry(id.clone()).or_default();
            if stand.unreadable.is_empty() && unreadable.is_empty() {
                if std::mem::replace(&mut stand.objects, objects) != objects {
                    self.measure(&state, id);
                }
                return;
            }
        }
        let found = unreadable.iter().take(MOST_NAMED);
        let found = found
            .map(|((namespace, name), problem)| object_finding(id, namespace, name, problem))
            .collect();
        self.change(id, |stand| {
            stand.objects = objects;
            stand.unreadable = found;
        });
    }

    /// It is not watched any more, because its cluster is gone.
    pub(super) fn remove(&self, id: &WatchId) {
        let mut state = self.lock();
        state.stands.remove(id);
        if let Some(cluster) = &id.cluster {
            state.clusters.remove(cluster);
            state.unwatched.remove(cluster);
        }
        self.metrics.remove(id.kind.word(), id.cluster());
        self.tell(&state);
    }

    /// What is wrong with a user cluster, or that nothing is.
    pub(super) fn cluster(&self, name: &ClusterName, finding: Option<Finding>) {
        let mut state = self.lock();
        match finding {
            Some(finding) => drop(state.clusters.insert(name.clone(), finding)),
            None => drop(state.clusters.remove(name)),
        }
        self.tell(&state);
    }

    /// A user cluster's namespace is not watched, or is.
    pub(super) fn unwatched(&self, name: &ClusterName, finding: Option<Finding>) {
        let mut state = self.lock();
        match finding {
            Some(finding) => drop(state.unwatched.insert(name.clone(), finding)),
            None if state.unwatched.remove(name).is_none() => return,
            None => {}
        }
        self.tell(&state);
    }

    fn change(&self, id: &WatchId, change: impl FnOnce(&mut Stand)) -> bool {
        let mut state = self.lock();
        change(state.stands.entry(id.clone()).or_default());
        self.measure(&state, id);
        let complete = state
            .stands
            .iter()
            .filter(|(id, _)| id.cluster.is_none())
            .all(|(id, stand)| stand.is_settled(id.kind));
        let now = complete && !state.synced;
        state.synced |= complete;
        self.tell(&state);
        now
    }

    fn measure(&self, state: &State, id: &WatchId) {
        let same = state
            .stands
            .iter()
            .filter(|(other, _)| other.kind == id.kind && other.cluster == id.cluster);
        let (synced, objects) = same.fold((true, 0), |(synced, objects), (_, stand)| {
            let works = stand.listed && stand.failure.is_none();
            (synced && works, objects + stand.objects)
        });
        self.metrics.stands(id.kind.word(), id.cluster(), synced, objects);
    }

    fn tell(&self, state: &State) {
        let about = state.clusters.values().chain(state.unwatched.values());
        let mut found: Vec<_> = about.cloned().collect();
        for (id, stand) in &state.stands {
            // A user cluster's watch is spoken of by its cluster's finding.
            if id.cluster.is_none() {
                found.extend(watch_finding(id, stand));
            }
            found.extend(stand.unreadable.iter().cloned());
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

/// How many unreadable objects of a watch are named.
const MOST_NAMED: usize = 50;

fn watch_finding(id: &WatchId, stand: &Stand) -> Option<Finding> {
    let what = id.what();
    let subject = ("Watch", what.as_str());
    let Some(failure) = &stand.failure else {
        let message = format!("{what}: not listed completely yet");
        return (!stand.listed).then(|| {
            Finding::new(
                findings::INVENTORY_WATCH_WAITING,
                Severity::Info,
                subject,
                "NotListedYet",
                message,
            )
            .remedy("wait; if it stays so, look at the API server and the collector's log")
        });
    };
    let scope = if id.namespace.is_some() {
        "Role"
    } else {
        "ClusterRole"
    };
    let message = format!("{what}: {}", failure.message);
    if failure.code == Some(404) && id.kind.is_optional() && !stand.listed {
        return Some(
            Finding::new(findings::INVENTORY_KIND_ABSENT, Severity::Info, subject, "KindAbsent", message)
                .remedy("nothing, if the cluster has no such kind: without it, fewer labels that others wrote are replaced"),
        );
    }
    let (reason, remedy) = match failure.code {
        Some(403) => (
            "Forbidden",
            format!(
                "allow the collector the verbs list and watch on {} with a {scope}",
                id.kind.rbac()
            ),
        ),
        Some(401) => (
            "Unauthorized",
            "give the collector a token or certificate that the API server knows".to_owned(),
        ),
        Some(404) if matches!(id.kind, Kind::UserCluster | Kind::Policy) => (
            "KindAbsent",
            "install the definitions: virtfleet-collector crds | kubectl apply -f -".to_owned(),
        ),
        Some(404) => ("KindAbsent", "install KubeVirt".to_owned()),
        _ => (
            "WatchFails",
            "look at the API server; it is tried again, and the last known state stays".to_owned(),
        ),
    };
    let (finding, severity) = if id.kind.is_optional() {
        (findings::INVENTORY_KIND_ABSENT, Severity::Warning)
    } else {
        (findings::INVENTORY_WATCH_FAILING, Severity::Critical)
    };
    let found = Finding::new(finding, severity, subject, reason, message).with("tries", failure.count);
    let found = match &id.namespace {
        Some(namespace) => found.with("namespace", namespace),
        None => found,
    };
    Some(found.remedy(&remedy))
}

/// The finding with the tenant whose objects alone it leaves unknown, if there is one: see [`findings::gap`].
fn confined(found: Finding, id: &WatchId, name: &str, namespace: &str) -> Finding {
    match (id.kind, &id.cluster) {
        (_, Some(cluster)) => found.with("cluster", cluster),
        (Kind::UserCluster, None) => found.with("cluster", name),
        (Kind::Vmi | Kind::Vm | Kind::Move, None) => found.with("namespace", namespace),
        _ => found,
    }
}

fn object_finding(id: &WatchId, namespace: &str, name: &str, problem: &str) -> Finding {
    let kind = id.kind.word();
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
    confined(found, id, name, namespace).remedy("mend the object; until then its last good state counts")
}
