//! Records Kubernetes Events in the infra cluster. Recording never blocks and never fails: Events
//! above the rate limit, of all or of a tenant, are dropped and counted.
//!
//! kube's own recorder is not used: it aggregates events of one reason and keeps only the first
//! one's text, but the second migration of a VM is not the first one again.

mod limit;
mod new_event;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, Resource, api::PostParams};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use virtfleet_collector_core::view::ClusterState;
use virtfleet_wire::ids::ClusterName;

use self::limit::{EventFilter, EventTenant, FilterResult, MAX_QUEUED, QueueShares};
pub use self::new_event::{EventObject, NewEvent};
use crate::{
    leader::WriteAccess,
    objects::{LabelPropagation, UserCluster},
    tenants::{TenantState, Tenants},
};

/// Timeout of the request that stores one Event.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of `note` that the API server accepts.
const MAX_NOTE_BYTES: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// Queues Events for [`run`]. Clones share the queue.
#[derive(Debug, Clone)]
pub struct EventRecorder {
    queue: mpsc::Sender<NewEvent>,
    shares: Arc<Mutex<QueueShares>>,
    count: Family<ResultLabel, Counter>,
}

impl EventRecorder {
    /// A recorder, and the receiver for [`run`]. Without a registry there is no metric.
    pub fn channel(registry: Option<&mut Registry>) -> (Self, mpsc::Receiver<NewEvent>) {
        let (queue, queued) = mpsc::channel(MAX_QUEUED);
        let count: Family<ResultLabel, Counter> = Family::default();
        if let Some(registry) = registry {
            for result in ["sent", "repeated", "dropped", "failed"] {
                drop(count.get_or_create(&ResultLabel { result }));
            }
            registry.register("events", "Kubernetes Events by result", count.clone());
        }
        let recorder = Self {
            queue,
            shares: Arc::default(),
            count,
        };
        (recorder, queued)
    }

    /// Queues an Event; drops it if the queue is full, or has too many of its tenant.
    pub fn record(&self, event: NewEvent) {
        let tenant = EventTenant::of(&event.about);
        let mut shares = self.shares();
        if !shares.take(&tenant) {
            self.counted("dropped");
        } else if self.queue.try_send(event).is_err() {
            shares.free(&tenant);
            self.counted("dropped");
        }
    }

    /// Frees the place of an Event that was received from the queue.
    fn received(&self, event: &NewEvent) {
        self.shares().free(&EventTenant::of(&event.about));
    }

    fn shares(&self) -> MutexGuard<'_, QueueShares> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an Event that is not recorded, because its object has had too many.
    pub(crate) fn count_dropped(&self) {
        self.counted("dropped");
    }

    fn counted(&self, result: &'static str) {
        self.count.get_or_create(&ResultLabel { result }).inc();
    }
}

/// Writes recorded Events to the infra cluster until `stop`, while this process leads.
pub async fn run(
    events: EventRecorder,
    mut queued: mpsc::Receiver<NewEvent>,
    tenants: Arc<Tenants>,
    write_access: WriteAccess,
    instance: String,
    stop: CancellationToken,
) {
    let mut filter = EventFilter::new(tokio::time::Instant::now().into_std());
    let mut uids = BTreeMap::new();
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return,
            event = queued.recv() => match event {
                Some(event) => event,
                None => return,
            },
        };
        events.received(&event);
        let Some(client) = tenants.infra().filter(|_| write_access.leads()) else {
            continue;
        };
        let result = match filter.check(&event, tokio::time::Instant::now().into_std()) {
            FilterResult::Repeated => "repeated",
            FilterResult::RateLimited => {
                tracing::debug!(
                    ?event,
                    "an Event was dropped: there are too many of its tenant, or of all"
                );
                "dropped"
            }
            FilterResult::Send => {
                let publish = publish(&client, &event, &mut uids, &instance);
                match tokio::time::timeout(REQUEST_TIMEOUT, publish).await {
                    Ok(Ok(())) => "sent",
                    Ok(Err(error)) => {
                        tracing::debug!(%error, ?event, "an Event was not written");
                        "failed"
                    }
                    Err(_) => "failed",
                }
            }
        };
        events.counted(result);
    }
}

async fn publish(
    client: &Client,
    event: &NewEvent,
    uids: &mut BTreeMap<String, String>,
    instance: &str,
) -> Result<(), kube::Error> {
    let mut regarding = reference(&event.about);
    if regarding.uid.is_none() {
        regarding.uid = uid(client, &event.about, uids).await;
    }
    let namespace = regarding
        .namespace
        .clone()
        .unwrap_or_else(|| "default".to_owned());
    let mut event = to_kubernetes(event, regarding, instance, Timestamp::now());
    let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
    let params = PostParams::default();
    match api.create(&params, &event).await {
        // An older API server (seen with 1.20) requires the Event's namespace here, also for
        // cluster-scoped objects. With newer servers `kubectl describe` would then not find the
        // Event.
        Err(kube::Error::Api(status)) if status.code == 422 => match &mut event.regarding {
            Some(regarding) if regarding.namespace.is_none() => {
                regarding.namespace = Some(namespace);
                api.create(&params, &event).await.map(drop)
            }
            _ => Err(kube::Error::Api(status)),
        },
        sent => sent.map(drop),
    }
}

fn to_kubernetes(event: &NewEvent, regarding: ObjectReference, instance: &str, now: Timestamp) -> Event {
    let name = regarding.name.as_deref().unwrap_or("virtfleet");
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{}.{:x}", cut(name, 220), now.as_nanosecond())),
            namespace: Some(
                regarding
                    .namespace
                    .clone()
                    .unwrap_or_else(|| "default".to_owned()),
            ),
            ..ObjectMeta::default()
        },
        type_: Some(if event.warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(event.reason.to_owned()),
        action: Some(event.reason.to_owned()),
        note: Some(cut(&event.note, MAX_NOTE_BYTES).to_owned()),
        event_time: Some(MicroTime(now)),
        reporting_controller: Some("virtfleet.io/collector".to_owned()),
        reporting_instance: Some(cut(instance, 128).to_owned()),
        regarding: Some(regarding),
        ..Event::default()
    }
}

/// The longest prefix of at most `bytes` that ends at a character boundary.
fn cut(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

fn reference(about: &EventObject) -> ObjectReference {
    let of = |api_version: &str, kind: &str, name: String| ObjectReference {
        api_version: Some(api_version.to_owned()),
        kind: Some(kind.to_owned()),
        name: Some(name),
        ..ObjectReference::default()
    };
    match about {
        EventObject::Vm { key, uid, .. } => ObjectReference {
            namespace: Some(key.namespace.to_string()),
            uid: uid.as_ref().map(ToString::to_string),
            ..of("kubevirt.io/v1", "VirtualMachineInstance", key.name.to_string())
        },
        EventObject::UserCluster(name) => of(&UserCluster::api_version(&()), "UserCluster", name.to_string()),
        EventObject::Policy(name) => of(
            &LabelPropagation::api_version(&()),
            "LabelPropagation",
            name.clone(),
        ),
    }
}

/// The UID of an object: `kubectl describe` finds Events by it. Cached without expiry: a recreated
/// object is rare, and its Events are still listed.
async fn uid(client: &Client, about: &EventObject, cache: &mut BTreeMap<String, String>) -> Option<String> {
    let (kind, name) = match about {
        EventObject::Vm { .. } => return None,
        EventObject::UserCluster(name) => ("UserCluster", name.to_string()),
        EventObject::Policy(name) => ("LabelPropagation", name.clone()),
    };
    let key = format!("{kind}/{name}");
    if let Some(uid) = cache.get(&key) {
        return Some(uid.clone());
    }
    let metadata = if let EventObject::UserCluster(_) = about {
        let api: Api<UserCluster> = Api::all(client.clone());
        api.get_metadata_opt(&name).await.ok()??.metadata
    } else {
        let api: Api<LabelPropagation> = Api::all(client.clone());
        api.get_metadata_opt(&name).await.ok()??.metadata
    };
    let uid = metadata.uid?;
    cache.insert(key, uid.clone());
    Some(uid)
}

/// Records an Event when a user cluster becomes unreachable and when it is reachable again, until
/// `stop`.
pub async fn follow_tenants(events: EventRecorder, tenants: Arc<Tenants>, stop: CancellationToken) {
    let mut changes = tenants.changes();
    let mut lost = BTreeMap::new();
    loop {
        let all = tenants.all().into_iter();
        // One that hibernates is unreachable on purpose.
        let others = all.filter(|(_, tenant)| tenant.status().0 != ClusterState::Hibernated);
        let states = others.map(|(name, tenant)| (name, tenant.state));
        for new_event in tenant_events(&mut lost, states) {
            events.record(new_event);
        }
        tokio::select! {
            () = stop.cancelled() => return,
            waited = changes.changed() => if waited.is_err() { return },
        }
    }
}

/// Events for changed states. `lost` has the unreachable clusters and the reason, and is updated.
fn tenant_events(
    lost: &mut BTreeMap<ClusterName, String>,
    states: impl Iterator<Item = (ClusterName, TenantState)>,
) -> Vec<NewEvent> {
    let mut found = Vec::new();
    let mut present = Vec::new();
    for (name, state) in states {
        let about = EventObject::UserCluster(name.clone());
        match state {
            TenantState::Unreachable(why) | TenantState::Failed(why) => {
                if lost.insert(name.clone(), why.clone()).is_none() {
                    let note =
                        format!("The user cluster is unreachable: {why}. Its last known Nodes are kept");
                    found.push(NewEvent::warning(about, "UserClusterUnreachable", note));
                }
            }
            TenantState::Ready => {
                if lost.remove(&name).is_some() {
                    let note = "The user cluster is reachable again".to_owned();
                    found.push(NewEvent::normal(about, "UserClusterReady", note));
                }
            }
            TenantState::Pending(_) | TenantState::Connecting => {}
        }
        present.push(name);
    }
    lost.retain(|name, _| present.contains(name));
    found
}

#[cfg(test)]
mod tests {
    use virtfleet_wire::ids::VmKey;

    use super::{limit::MAX_QUEUED_OF_TENANT, *};

    /// An Event about a VM.
    pub(super) fn event_of(namespace: &str, cluster: Option<&str>, text: &str) -> NewEvent {
        let about = EventObject::Vm {
            key: VmKey {
                namespace: namespace.parse().unwrap(),
                name: "vm".parse().unwrap(),
            },
            uid: Some("u".parse().unwrap()),
            cluster: cluster.map(|name| name.parse().unwrap()),
        };
        NewEvent::normal(about, "LabelsMoved", text.into())
    }

    fn event(text: &str) -> NewEvent {
        event_of("ns", None, text)
    }

    #[test]
    fn events_satisfy_the_api_server() {
        let long = "é".repeat(2000);
        let one = to_kubernetes(
            &event(&long),
            reference(&event("").about),
            "pod-1",
            Timestamp::UNIX_EPOCH,
        );
        assert_eq!(one.note.as_deref().map(str::len), Some(1024));
        assert_eq!(one.metadata.namespace.as_deref(), Some("ns"));
        assert_eq!(one.regarding.as_ref().unwrap().uid.as_deref(), Some("u"));
        let cluster = reference(&EventObject::UserCluster("c1".parse().unwrap()));
        assert_eq!(
            (cluster.kind.as_deref(), cluster.namespace),
            (Some("UserCluster"), None)
        );
        assert_eq!(cluster.api_version.as_deref(), Some("virtfleet.io/v1alpha1"));
    }

    #[test]
    fn recording_never_blocks() {
        let (events, mut queued) = EventRecorder::channel(None);
        let dropped = || {
            let count = events.count.get_or_create(&ResultLabel { result: "dropped" });
            count.get()
        };
        for n in 0..100 {
            events.record(event(&n.to_string()));
        }
        assert_eq!(dropped(), 100 - MAX_QUEUED_OF_TENANT as u64);
        let first = queued.try_recv().unwrap();
        events.received(&first);
        events.record(event("again"));
        assert_eq!(dropped(), 100 - MAX_QUEUED_OF_TENANT as u64);
        for n in 0..10_000 {
            events.record(event_of(&format!("ns-{n}"), None, ""));
        }
        let accepted = MAX_QUEUED as u64 + 1;
        assert_eq!(dropped(), 10_101 - accepted);
    }

    #[test]
    fn loss_and_return_of_a_cluster_are_recorded_once() {
        let mut lost = BTreeMap::new();
        let mut reasons = |state: TenantState| {
            let states = [("c".parse().unwrap(), state)].into_iter();
            let new_events = tenant_events(&mut lost, states);
            new_events.into_iter().map(|one| one.reason).collect::<Vec<_>>()
        };
        let gone = || TenantState::Unreachable("timeout".into());
        assert!(reasons(TenantState::Connecting).is_empty());
        assert!(reasons(TenantState::Ready).is_empty());
        assert_eq!(reasons(gone()), ["UserClusterUnreachable"]);
        assert!(reasons(gone()).is_empty());
        assert!(reasons(TenantState::Connecting).is_empty());
        assert_eq!(reasons(TenantState::Ready), ["UserClusterReady"]);
    }
}
