//! Kubernetes Events in the infra cluster, on what a person should notice. Telling never blocks and never fails: what is too
//! much is dropped and counted.
//!
//! kube's own recorder is not used: it adds up events of one reason and keeps only the first one's text, and a second move is
//! other news than the first.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
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
use virtfleet_wire::ids::{ClusterName, Uid, VmKey};

use crate::{
    leader::Writing,
    objects::{LabelPropagation, UserCluster},
    tenants::{TenantState, Tenants},
};

/// News that may wait.
const WAITING: usize = 512;
/// The same news again within this time is no news.
const REPEAT: Duration = Duration::from_mins(10);
/// Events in a second; a burst may have as many as ten seconds have.
const PER_SECOND: u32 = 5;
const BURST: Duration = Duration::from_secs(10);
/// How long the API server may take to store one.
const PATIENCE: Duration = Duration::from_secs(5);
/// What the API server takes at most in `note`, in bytes.
const NOTE: usize = 1024;

/// What an Event is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum About {
    /// The VMI of this incarnation.
    Vm(VmKey, Option<Uid>),
    /// A `UserCluster`.
    UserCluster(ClusterName),
    /// A `LabelPropagation`.
    Policy(String),
}

/// One Event to be.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Notice {
    /// On which object.
    pub about: About,
    /// `Warning`, else `Normal`.
    pub warning: bool,
    /// In one word.
    pub reason: &'static str,
    /// For people.
    pub note: String,
}

impl Notice {
    /// Nothing to worry about.
    pub fn normal(about: About, reason: &'static str, note: String) -> Self {
        Self {
            about,
            warning: false,
            reason,
            note,
        }
    }

    /// Somebody should look.
    pub fn warning(about: About, reason: &'static str, note: String) -> Self {
        Self {
            warning: true,
            ..Self::normal(about, reason, note)
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// Where news is told. Clones share it.
#[derive(Debug, Clone)]
pub struct Events {
    to: mpsc::Sender<Notice>,
    count: Family<ResultLabel, Counter>,
}

impl Events {
    /// The two ends. Without a registry nothing is counted.
    pub fn channel(registry: Option<&mut Registry>) -> (Self, mpsc::Receiver<Notice>) {
        let (to, from) = mpsc::channel(WAITING);
        let count: Family<ResultLabel, Counter> = Family::default();
        if let Some(registry) = registry {
            for result in ["sent", "repeated", "dropped", "failed"] {
                drop(count.get_or_create(&ResultLabel { result }));
            }
            registry.register(
                "events",
                "Kubernetes Events, by what became of them",
                count.clone(),
            );
        }
        (Self { to, count }, from)
    }

    /// Tells; at once, whatever happens.
    pub fn tell(&self, notice: Notice) {
        if self.to.try_send(notice).is_err() {
            self.counted("dropped");
        }
    }

    fn counted(&self, result: &'static str) {
        self.count.get_or_create(&ResultLabel { result }).inc();
    }
}

/// What is let through: news only, and not too fast. Pure.
#[derive(Debug)]
struct Filter {
    known: HashMap<Notice, Instant>,
    full_at: Instant,
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Send,
    Repeated,
    TooMany,
}

impl Filter {
    fn new(now: Instant) -> Self {
        Self {
            known: HashMap::new(),
            full_at: now,
        }
    }

    fn judge(&mut self, notice: &Notice, now: Instant) -> Verdict {
        if self.known.len() >= 4 * WAITING {
            self.known.retain(|_, at| now.duration_since(*at) < REPEAT);
        }
        if self
            .known
            .get(notice)
            .is_some_and(|at| now.duration_since(*at) < REPEAT)
        {
            return Verdict::Repeated;
        }
        let full_at = self.full_at.max(now) + Duration::from_secs(1) / PER_SECOND;
        if full_at > now + BURST {
            return Verdict::TooMany;
        }
        self.full_at = full_at;
        // What was dropped is told when it is seen again; what is kept here is bounded by the rate.
        self.known.insert(notice.clone(), now);
        Verdict::Send
    }
}

/// Writes what is told to the infra cluster until `stop`, while this process is the one that writes.
pub async fn run(
    events: Events,
    mut told: mpsc::Receiver<Notice>,
    tenants: Arc<Tenants>,
    writing: Writing,
    instance: String,
    stop: CancellationToken,
) {
    let mut filter = Filter::new(tokio::time::Instant::now().into_std());
    let mut uids = BTreeMap::new();
    loop {
        let notice = tokio::select! {
            () = stop.cancelled() => return,
            notice = told.recv() => match notice {
                Some(notice) => notice,
                None => return,
            },
        };
        let Some(client) = tenants.infra().filter(|_| writing.leads()) else {
            continue;
        };
        let result = match filter.judge(&notice, tokio::time::Instant::now().into_std()) {
            Verdict::Repeated => "repeated",
            Verdict::TooMany => "dropped",
            Verdict::Send => {
                let publish = publish(&client, &notice, &mut uids, &instance);
                match tokio::time::timeout(PATIENCE, publish).await {
                    Ok(Ok(())) => "sent",
                    Ok(Err(error)) => {
                        tracing::debug!(%error, ?notice, "an Event was not written");
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
    notice: &Notice,
    uids: &mut BTreeMap<String, String>,
    instance: &str,
) -> Result<(), kube::Error> {
    let mut regarding = reference(&notice.about);
    if regarding.uid.is_none() {
        regarding.uid = uid(client, &notice.about, uids).await;
    }
    let namespace = regarding
        .namespace
        .clone()
        .unwrap_or_else(|| "default".to_owned());
    let mut event = event(notice, regarding, instance, Timestamp::now());
    let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
    let params = PostParams::default();
    match api.create(&params, &event).await {
        // An older API server (seen with 1.20) wants the Event's own namespace here, also for what has none; a newer one's
        // `kubectl describe` would then not find it.
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

fn event(notice: &Notice, regarding: ObjectReference, instance: &str, now: Timestamp) -> Event {
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
        type_: Some(if notice.warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(notice.reason.to_owned()),
        action: Some(notice.reason.to_owned()),
        note: Some(cut(&notice.note, NOTE).to_owned()),
        event_time: Some(MicroTime(now)),
        reporting_controller: Some("virtfleet.io/collector".to_owned()),
        reporting_instance: Some(cut(instance, 128).to_owned()),
        regarding: Some(regarding),
        ..Event::default()
    }
}

/// At most `bytes` of a text, never within a character.
fn cut(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

fn reference(about: &About) -> ObjectReference {
    let of = |api_version: &str, kind: &str, name: String| ObjectReference {
        api_version: Some(api_version.to_owned()),
        kind: Some(kind.to_owned()),
        name: Some(name),
        ..ObjectReference::default()
    };
    match about {
        About::Vm(key, uid) => ObjectReference {
            namespace: Some(key.namespace.to_string()),
            uid: uid.as_ref().map(ToString::to_string),
            ..of("kubevirt.io/v1", "VirtualMachineInstance", key.name.to_string())
        },
        About::UserCluster(name) => of(&UserCluster::api_version(&()), "UserCluster", name.to_string()),
        About::Policy(name) => of(
            &LabelPropagation::api_version(&()),
            "LabelPropagation",
            name.clone(),
        ),
    }
}

/// `kubectl describe` finds an Event by the object's UID. Kept for good: an object that was made anew is rare, and its Events
/// are still listed.
async fn uid(client: &Client, about: &About, known: &mut BTreeMap<String, String>) -> Option<String> {
    let (kind, name) = match about {
        About::Vm(..) => return None,
        About::UserCluster(name) => ("UserCluster", name.to_string()),
        About::Policy(name) => ("LabelPropagation", name.clone()),
    };
    let key = format!("{kind}/{name}");
    if let Some(uid) = known.get(&key) {
        return Some(uid.clone());
    }
    let metadata = if let About::UserCluster(_) = about {
        let api: Api<UserCluster> = Api::all(client.clone());
        api.get_metadata_opt(&name).await.ok()??.metadata
    } else {
        let api: Api<LabelPropagation> = Api::all(client.clone());
        api.get_metadata_opt(&name).await.ok()??.metadata
    };
    let uid = metadata.uid?;
    known.insert(key, uid.clone());
    Some(uid)
}

/// Tells when a user cluster is not reached any more, and when it is again, until `stop`.
pub async fn follow_tenants(events: Events, tenants: Arc<Tenants>, stop: CancellationToken) {
    let mut changes = tenants.changes();
    let mut lost = BTreeMap::new();
    loop {
        let states = tenants
            .all()
            .into_iter()
            .map(|(name, tenant)| (name, tenant.state));
        for notice in tenant_news(&mut lost, states) {
            events.tell(notice);
        }
        tokio::select! {
            () = stop.cancelled() => return,
            told = changes.changed() => if told.is_err() { return },
        }
    }
}

/// What is new, given who was lost before and why.
fn tenant_news(
    lost: &mut BTreeMap<ClusterName, String>,
    states: impl Iterator<Item = (ClusterName, TenantState)>,
) -> Vec<Notice> {
    let mut news = Vec::new();
    let mut there = Vec::new();
    for (name, state) in states {
        let about = About::UserCluster(name.clone());
        match state {
            TenantState::Unreachable(why) | TenantState::Failed(why) => {
                if lost.insert(name.clone(), why.clone()).is_none() {
                    let note = format!("The user cluster is not reached: {why}. Its last known Nodes stay");
                    news.push(Notice::warning(about, "UserClusterUnreachable", note));
                }
            }
            TenantState::Ready => {
                if lost.remove(&name).is_some() {
                    let note = "The user cluster is reached again".to_owned();
                    news.push(Notice::normal(about, "UserClusterReady", note));
                }
            }
            TenantState::Pending | TenantState::Connecting => {}
        }
        there.push(name);
    }
    lost.retain(|name, _| there.contains(name));
    news
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(text: &str) -> Notice {
        let key = VmKey {
            namespace: "ns".parse().unwrap(),
            name: "vm".parse().unwrap(),
        };
        let about = About::Vm(key, Some("u".parse().unwrap()));
        Notice::normal(about, "LabelsMoved", text.into())
    }

    #[test]
    fn the_same_news_is_told_once_and_a_flood_is_cut() {
        let now = Instant::now();
        let mut filter = Filter::new(now);
        assert_eq!(filter.judge(&notice("a"), now), Verdict::Send);
        assert_eq!(filter.judge(&notice("a"), now), Verdict::Repeated);
        assert_eq!(filter.judge(&notice("a"), now + REPEAT), Verdict::Send);
        let later = now + 2 * REPEAT;
        let verdicts = (0..5000).map(|n| filter.judge(&notice(&n.to_string()), later));
        let sent = verdicts.filter(|verdict| *verdict == Verdict::Send).count();
        assert_eq!(sent, 50);
        assert_eq!(
            filter.judge(&notice("4999"), later + BURST),
            Verdict::Send,
            "dropped is not told"
        );
    }

    #[test]
    fn an_event_is_what_the_api_server_takes() {
        let long = "é".repeat(2000);
        let one = event(
            &notice(&long),
            reference(&notice("").about),
            "pod-1",
            Timestamp::UNIX_EPOCH,
        );
        assert_eq!(one.note.as_deref().map(str::len), Some(1024));
        assert_eq!(one.metadata.namespace.as_deref(), Some("ns"));
        assert_eq!(one.regarding.as_ref().unwrap().uid.as_deref(), Some("u"));
        let cluster = reference(&About::UserCluster("c1".parse().unwrap()));
        assert_eq!(
            (cluster.kind.as_deref(), cluster.namespace),
            (Some("UserCluster"), None)
        );
        assert_eq!(cluster.api_version.as_deref(), Some("virtfleet.io/v1alpha1"));
    }

    #[test]
    fn telling_never_blocks() {
        let (events, _kept) = Events::channel(None);
        for n in 0..10_000 {
            events.tell(notice(&n.to_string()));
        }
        let dropped = events
            .count
            .get_or_create(&ResultLabel { result: "dropped" })
            .get();
        assert_eq!(dropped, 10_000 - WAITING as u64);
    }

    #[test]
    fn a_cluster_that_is_lost_is_told_once_and_that_it_is_back() {
        let mut lost = BTreeMap::new();
        let mut told = |state: TenantState| {
            let states = [("c".parse().unwrap(), state)].into_iter();
            let news = tenant_news(&mut lost, states);
            news.into_iter().map(|one| one.reason).collect::<Vec<_>>()
        };
        let gone = || TenantState::Unreachable("timeout".into());
        assert!(told(TenantState::Connecting).is_empty());
        assert!(told(TenantState::Ready).is_empty());
        assert_eq!(told(gone()), ["UserClusterUnreachable"]);
        assert!(told(gone()).is_empty());
        assert!(told(TenantState::Connecting).is_empty());
        assert_eq!(told(TenantState::Ready), ["UserClusterReady"]);
    }
}
