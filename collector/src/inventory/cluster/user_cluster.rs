//! Task of one user cluster: follows its kubeconfig Secret, and watches its Nodes with each
//! kubeconfig.
//!
//! Known Nodes are kept when the kubeconfig changes. They are removed only by a complete list
//! without them, or with the `UserCluster`. The cluster is `Ready` while its Nodes are watched and
//! its API server answers `probe`.

use std::{pin::pin, sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::Api;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use virtfleet_collector_core::{facts::InventoryEvent, findings};
use virtfleet_runtime::{digest::Sha256, tls::Validity};
use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::ClusterName,
};

use super::{
    connect::{self, ClusterClients, ConnectionPolicy},
    failure::WatchFailure,
    kinds::Kind,
    object::Object,
    probe::{ProbeLimits, ProbeParts, ServerProbe},
    reflector::{Reflector, ReflectorEvent, STABLE_AFTER},
    resource_cache::ResourceCache,
    secrets::{KubeconfigLookup, NamespaceSecrets, Secrets},
    status_registry::{StatusRegistry, WatchId},
};
use crate::{
    clock::unix_seconds,
    inventory::read::SecretRef,
    tenants::{TenantClient, TenantState, Tenants},
    user_account::validity,
};

/// Credentials that are valid for less than this are reported, in seconds; short-lived ones from
/// the last third of their time on.
const EXPIRY_WARNING: u64 = 14 * 86_400;
/// Interval between two looks at the clock for that. A token may be valid for only ten minutes.
const EXPIRY_INTERVAL: Duration = Duration::from_mins(1);

/// A watch may fail for so long while the API server answers other requests, also if the list with
/// a new kubeconfig does. Without known Nodes, there is nothing to keep.
const MAX_WATCH_OUTAGE: Duration = Duration::from_secs(30);
/// Its credentials may be refused for so long: one refusal may be a mistake of the server.
const MAX_REFUSAL: Duration = Duration::from_secs(5);

pub(super) struct UserClusterTask {
    pub(super) name: ClusterName,
    pub(super) secret: Option<SecretRef>,
    /// Secrets of the infra cluster.
    pub(super) secrets: Secrets,
    pub(super) policy: ConnectionPolicy,
    pub(super) max_nodes: usize,
    pub(super) tenants: Arc<Tenants>,
    pub(super) registry: Arc<StatusRegistry>,
    pub(super) events: mpsc::Sender<InventoryEvent>,
    pub(super) cache: ResourceCache,
}

impl UserClusterTask {
    pub(super) fn id(name: &ClusterName) -> WatchId {
        WatchId {
            kind: Kind::UserNode,
            cluster: Some(name.clone()),
            namespace: None,
        }
    }

    /// Runs until `stop`, and returns the cache of Nodes, which matches the events sent.
    pub(super) async fn run(mut self, stop: CancellationToken) -> ResourceCache {
        let Some(secret) = self.secret.clone() else {
            let why = "spec.kubeconfig is not set";
            let state = pending(&self.name, why);
            without_client(&self.tenants, &self.registry, &self.name, state, why);
            show_expiry(&self.tenants, &self.registry, &self.name, None);
            stop.cancelled().await;
            return self.cache;
        };
        let (client_sender, clients) = watch::channel(None);
        let about = (&self.name, &*self.tenants, &*self.registry);
        let namespace_secrets = self.secrets.watch_namespace(&secret.namespace);
        let secrets = follow_secret(namespace_secrets, &self.policy, secret, about, client_sender);
        let mut nodes = NodeWatch {
            name: &self.name,
            tenants: &self.tenants,
            registry: &self.registry,
            events: &self.events,
            cache: &mut self.cache,
            max_nodes: self.max_nodes,
        };
        tokio::select! {
            () = secrets => {}
            // Stops between two events, so that none is sent in part.
            _ = nodes.follow(clients, &stop) => {}
        }
        self.cache
    }
}

fn without_client(
    tenants: &Tenants,
    registry: &StatusRegistry,
    name: &ClusterName,
    state: TenantState,
    why: &str,
) {
    let found = finding(name, &state, why);
    tenants.set_client(name, None, state);
    registry.cluster(name, Some(found));
}

fn make_kubeconfig(name: &ClusterName) -> String {
    format!("virtfleetctl cluster add {name} --kubeconfig FILE makes it, or a ClusterSource")
}

fn pending(name: &ClusterName, why: &str) -> TenantState {
    TenantState::Pending(format!("{why}; {}", make_kubeconfig(name)))
}

/// Shows how long the credentials are valid, if that needs action.
fn show_expiry(tenants: &Tenants, registry: &StatusRegistry, name: &ClusterName, valid: Option<Validity>) {
    let is_suspended = tenants.get(name).is_some_and(|tenant| tenant.suspend);
    let found = valid.and_then(|valid| expiry(name, is_suspended, valid, unix_seconds()));
    let (text, found) = found.unzip();
    registry.note(name, findings::USER_CLUSTER_CREDENTIAL_EXPIRING, found);
    tenants.update(name, |tenant| {
        let changed = tenant.expiry != text;
        tenant.expiry = text;
        changed
    });
}

/// The note and the finding about credentials that have expired at `now`, or soon will. None about
/// those of a suspended cluster: a ClusterSource renews nothing while a cluster hibernates or is
/// being deleted.
fn expiry(name: &ClusterName, is_suspended: bool, valid: Validity, now: u64) -> Option<(String, Finding)> {
    let life = valid.not_after.saturating_sub(valid.not_before);
    if is_suspended || now < valid.not_after.saturating_sub(EXPIRY_WARNING.min(life / 3)) {
        return None;
    }
    let end = Timestamp::from_second(i64::try_from(valid.not_after).ok()?).ok()?;
    let (severity, reason, verb) = if now < valid.not_after {
        (Severity::Warning, "Expires", "expire")
    } else {
        (Severity::Critical, "Expired", "expired")
    };
    let text = format!("the credentials in its kubeconfig {verb} at {end:.0}");
    let found = Finding::new(
        findings::USER_CLUSTER_CREDENTIAL_EXPIRING,
        severity,
        ("UserCluster", name.as_str()),
        reason,
        format!("user cluster {name}: {text}"),
    );
    let remedy = format!(
        "virtfleetctl cluster rotate {name} --kubeconfig FILE; if a ClusterSource makes it: kubectl describe clustersources"
    );
    Some((text, found.with("cluster", name).remedy(remedy)))
}

fn finding(name: &ClusterName, state: &TenantState, why: &str) -> Finding {
    let message = format!("user cluster {name}: {why}");
    let subject = ("UserCluster", name.as_str());
    let make = format!("{}; until then nothing is written there", make_kubeconfig(name));
    let (id, severity, reason, remedy) = match state {
        TenantState::Pending(_) => (
            findings::USER_CLUSTER_PENDING,
            Severity::Info,
            "NoKubeconfig",
            make.as_str(),
        ),
        TenantState::Failed(_) => (
            findings::USER_CLUSTER_FAILED,
            Severity::Warning,
            "Failed",
            "check which server answers there and why it sends so much; its last known Nodes are kept, and the collector retries every 30 s",
        ),
        _ => (
            findings::USER_CLUSTER_UNREACHABLE,
            Severity::Warning,
            "Unreachable",
            "check its API server and its kubeconfig; its last known Nodes are kept",
        ),
    };
    let found = Finding::new(id, severity, subject, reason, message).remedy(remedy);
    found.with("cluster", name)
}

/// Follows the kubeconfig and sends each version.
async fn follow_secret(
    mut namespace_secrets: watch::Receiver<NamespaceSecrets>,
    policy: &ConnectionPolicy,
    at: SecretRef,
    (name, tenants, registry): (&ClusterName, &Tenants, &StatusRegistry),
    client_sender: watch::Sender<Option<ClusterClients>>,
) {
    let place = format!("Secret {}/{}", at.namespace, at.name);
    let none = |state: TenantState, why: &str| {
        client_sender.send_replace(None);
        without_client(tenants, registry, name, state, why);
    };
    let mut last = KubeconfigLookup::Waiting;
    let mut valid = None;
    loop {
        let found = namespace_secrets.borrow_and_update().find(&at);
        // Changes of other Secrets of the namespace are ignored.
        if found != last {
            valid = None;
            match &found {
                KubeconfigLookup::Waiting => {}
                KubeconfigLookup::Absent => {
                    let why = format!("{place} does not exist");
                    none(pending(name, &why), &why);
                }
                KubeconfigLookup::NoKey => {
                    let why = format!("{place}: the Secret has no key {:?}", at.key);
                    none(TenantState::Unreachable(why.clone()), &why);
                }
                KubeconfigLookup::Failed(failure) => {
                    let why = format!("{place} cannot be read: {}", failure.of_secrets(&at.namespace));
                    none(TenantState::Unreachable(why.clone()), &why);
                }
                KubeconfigLookup::Kubeconfig(bytes) => match connect::tenant(bytes, policy).await {
                    Ok(clients) => {
                        valid = validity(bytes);
                        let client = TenantClient {
                            client: clients.request_client.clone(),
                            fingerprint: Sha256::fingerprint(bytes),
                        };
                        tenants.set_client(name, Some(client), TenantState::Connecting);
                        registry.cluster(name, None);
                        client_sender.send_replace(Some(clients));
                    }
                    Err(problem) => {
                        let why = format!("{place}: {problem}");
                        none(TenantState::Unreachable(why.clone()), &why);
                    }
                },
            }
            last = found;
        }
        show_expiry(tenants, registry, name, valid);
        let changed = tokio::time::timeout(EXPIRY_INTERVAL, namespace_secrets.changed()).await;
        if matches!(changed, Ok(Err(_))) {
            return;
        }
    }
}

/// Watches the Nodes with the present kubeconfig.
struct NodeWatch<'a> {
    name: &'a ClusterName,
    tenants: &'a Tenants,
    registry: &'a Arc<StatusRegistry>,
    events: &'a mpsc::Sender<InventoryEvent>,
    cache: &'a mut ResourceCache,
    max_nodes: usize,
}

/// How far the watch of the Nodes with one kubeconfig has come.
#[derive(Debug, Default)]
struct WatchProgress {
    /// All Nodes were listed.
    listed: bool,
    /// A watch was opened after the list, and nothing is known against it.
    follows: bool,
    /// Since when the watch fails.
    failing: Option<Instant>,
    /// Since when it is open.
    open: Option<Instant>,
}

impl WatchProgress {
    /// Whether all Nodes are known, and followed without a failure.
    fn is_complete(&self) -> bool {
        self.listed && self.follows && self.failing.is_none()
    }
}

impl NodeWatch<'_> {
    /// Returns on `stop`, or when the receiver of events or the sender of kubeconfigs is dropped.
    async fn follow(
        &mut self,
        mut clients: watch::Receiver<Option<ClusterClients>>,
        stop: &CancellationToken,
    ) -> Option<()> {
        loop {
            let now = clients.borrow_and_update().clone();
            match now {
                None => stop.run_until_cancelled(clients.changed()).await?.ok()?,
                Some(now) => self.follow_with(now, &mut clients, stop).await?,
            }
        }
    }

    /// Returns when there is another kubeconfig.
    async fn follow_with(
        &mut self,
        now: ClusterClients,
        clients: &mut watch::Receiver<Option<ClusterClients>>,
        stop: &CancellationToken,
    ) -> Option<()> {
        let id = UserClusterTask::id(self.name);
        let api = Api::all_with(now.watch_client, &Kind::UserNode.resource());
        let mut reflector: Reflector<Object> = Reflector::tenant(api, self.max_nodes);
        let (answers, mut answer) = watch::channel(None);
        let probe = ServerProbe::new(ProbeParts {
            client: now.request_client,
            cluster: Some(self.name.clone()),
            max_leases: self.max_nodes,
            limits: ProbeLimits::USER_CLUSTER,
            events: self.events.clone(),
            registry: Arc::clone(self.registry),
        });
        let mut probe = pin!(probe.run(answers));
        let mut progress = WatchProgress::default();
        loop {
            let held = progress.open.unwrap_or_else(Instant::now) + STABLE_AFTER;
            let mut watch_event = tokio::select! {
                () = stop.cancelled() => return None,
                changed = clients.changed() => return changed.ok(),
                () = &mut probe => return None,
                Ok(()) = answer.changed() => {
                    match answer.borrow_and_update().as_ref() {
                        // The watch may be dead, too.
                        Some(failure) => {
                            (progress.follows, progress.open) = (false, None);
                            reflector.renew();
                            self.unanswered(failure);
                        }
                        None if progress.is_complete() => self.ready(),
                        None => {}
                    }
                    continue;
                }
                // A server may accept each watch and end it at once.
                () = sleep_until(held), if progress.failing.is_some() && progress.open.is_some() => {
                    progress.failing = None;
                    if progress.listed && answer.borrow().is_none() {
                        self.ready();
                    }
                    continue;
                }
                event = reflector.next() => event,
            };
            if let Some(why) = self.cache.exceeds(&watch_event, self.max_nodes) {
                watch_event = ReflectorEvent::Failed(reflector.reject(why));
            }
            for event in self.cache.take(&watch_event) {
                self.events.send(event).await.ok()?;
            }
            self.show(&id, &watch_event, &mut progress);
            // Neither a part of a list nor an open watch shows that the Nodes are followed.
            let brings = matches!(
                watch_event,
                ReflectorEvent::Complete | ReflectorEvent::Applied(_) | ReflectorEvent::Deleted(_)
            );
            let recovers = brings && progress.failing.take().is_some();
            let works = matches!(watch_event, ReflectorEvent::Complete | ReflectorEvent::Watching);
            let is_sound = progress.failing.is_none() && progress.listed;
            if (works || recovers) && is_sound && answer.borrow().is_none() {
                self.ready();
            }
            if !matches!(watch_event, ReflectorEvent::Listed(_)) {
                self.registry
                    .set_objects(&id, self.cache.len(), self.cache.unreadable());
            }
        }
    }

    /// Shows what an event of the watch says, and follows it in `progress`.
    fn show(&self, id: &WatchId, event: &ReflectorEvent<Object>, progress: &mut WatchProgress) {
        match event {
            ReflectorEvent::ListStarted => {
                progress.open = None;
                self.registry.list_started(id);
            }
            ReflectorEvent::Complete => {
                progress.listed = true;
                self.registry.listed(id);
            }
            ReflectorEvent::Watching => {
                (progress.follows, progress.open) = (true, Some(Instant::now()));
                self.registry.works(id);
            }
            ReflectorEvent::Failed(failure) => {
                self.registry.failed(id, failure);
                progress.open = None;
                let since = progress.failing.get_or_insert_with(Instant::now);
                let lasts = since.elapsed();
                let was_refused =
                    failure.is_definite() && (failure.code != Some(401) || lasts >= MAX_REFUSAL);
                if failure.over_limit {
                    (progress.listed, progress.follows) = (false, false);
                    self.failed(failure);
                } else if !self.cache.has_any() || was_refused || lasts >= MAX_WATCH_OUTAGE {
                    progress.follows = false;
                    self.unreachable(failure);
                }
            }
            _ => {}
        }
    }

    fn ready(&self) {
        self.tenants.set_state(self.name, TenantState::Ready);
        self.registry.cluster(self.name, None);
    }

    fn unanswered(&self, failure: &WatchFailure) {
        let why = format!("its API server gives no answer: {}", failure.message);
        self.set_state(TenantState::Unreachable(why.clone()), &why);
    }

    fn failed(&self, failure: &WatchFailure) {
        let why = format!("it exceeds a limit on user clusters: {}", failure.message);
        self.set_state(TenantState::Failed(why.clone()), &why);
    }

    fn unreachable(&self, failure: &WatchFailure) {
        let mut why = format!("its Nodes cannot be watched: {}", failure.message);
        if failure.code == Some(403) {
            why.push_str(
                "; grant the kubeconfig's user the verbs list and watch on nodes with a ClusterRole",
            );
        }
        self.set_state(TenantState::Unreachable(why.clone()), &why);
    }

    fn set_state(&self, state: TenantState, why: &str) {
        self.registry
            .cluster(self.name, Some(finding(self.name, &state, why)));
        self.tenants.set_state(self.name, state);
    }
}

#[cfg(test)]
#[path = "user_cluster_tests.rs"]
mod tests;
