//! Publishes the statuses of `UserCluster`s and `LabelPropagation`s: only on change, and only as
//! the leader.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::Arc,
    time::Duration,
};

use kube::{
    Api, Client, Resource,
    api::{ListParams, Patch, PatchParams},
    core::object::HasStatus,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use virtfleet_collector_core::{
    findings::{self, NODE_CONDITIONS_DENIED},
    labels::policy::LabelPolicy,
};

use super::{
    LabelPropagation, LabelPropagationStatus, UserCluster, UserClusterStatus,
    status::{self, PolicyFacts},
};
use crate::{
    events::{EventObject, EventRecorder, NewEvent},
    fleet::{Fleet, FleetRead as _},
    labels::LabelStatusStore,
    leader::WriteAccess,
    tenants::Tenants,
};

/// Changes within this window are written together.
const COALESCE_WINDOW: Duration = Duration::from_secs(1);
/// Delay before a failed write is retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum characters of a condition's message about conflicts.
const MAX_MESSAGE_CHARS: usize = 2048;

pub struct Sources {
    /// State of the connections to user clusters.
    pub tenants: Arc<Tenants>,
    /// VMs, Nodes and policies.
    pub fleet: Arc<Fleet>,
    /// Label status of each VM.
    pub statuses: Arc<LabelStatusStore>,
    /// Records an Event about a rule that can never apply.
    pub events: EventRecorder,
}

/// Publishes statuses while this process leads, until `stop`. A new leader first reads the present
/// statuses, so that it writes nothing if nothing changed. Returns at once without an infra
/// cluster.
pub async fn publish(sources: Sources, write_access: WriteAccess, stop: CancellationToken) {
    let Some(client) = sources.tenants.infra() else {
        return;
    };
    let board = StatusPublisher {
        sources,
        write_access,
        client,
    };
    stop.run_until_cancelled(board.follow()).await;
}

/// Published statuses by object name, with the object's UID: a deleted and recreated object has no
/// status.
type PublishedStatuses<S> = BTreeMap<String, (Option<String>, S)>;

struct StatusPublisher {
    sources: Sources,
    write_access: WriteAccess,
    client: Client,
}

impl StatusPublisher {
    async fn follow(&self) {
        let Sources {
            tenants,
            fleet,
            statuses,
            ..
        } = &self.sources;
        let (mut reached, mut revisions, mut labels) =
            (tenants.changes(), fleet.revisions(), statuses.changes());
        while self.write_access.until_leads().await {
            let published = tokio::try_join!(
                published::<UserCluster, _>(&self.client),
                published::<LabelPropagation, _>(&self.client)
            );
            let (mut clusters, mut policies) = match published {
                Ok(published) => published,
                Err(why) => {
                    tracing::warn!(why, "statuses are not published: the objects cannot be listed");
                    sleep(RETRY_INTERVAL).await;
                    continue;
                }
            };
            while self.write_access.leads() {
                reached.mark_unchanged();
                revisions.mark_unchanged();
                labels.mark_unchanged();
                // Try both, even if the first fails.
                let written = [
                    self.clusters(&mut clusters).await,
                    self.policies(&mut policies).await,
                ];
                // A rejected write is retried only after a delay, not at every change, to spare an
                // overloaded server.
                let pause = if written == [true, true] {
                    COALESCE_WINDOW
                } else {
                    RETRY_INTERVAL
                };
                sleep(pause).await;
                if written != [true, true] {
                    continue;
                }
                tokio::select! {
                    Ok(()) = reached.changed() => {}
                    Ok(()) = revisions.changed() => {}
                    Ok(()) = labels.changed() => {}
                    // Renewals of the Lease cause no work; its loss does.
                    () = self.write_access.until_lost() => {}
                }
            }
        }
    }

    async fn clusters(&self, published: &mut PublishedStatuses<UserClusterStatus>) -> bool {
        let snapshot = self.sources.fleet.snapshot();
        // Counts of an incompletely read inventory are not published.
        if !snapshot.synced {
            return true;
        }
        let mut desired = BTreeMap::new();
        for (name, tenant) in self.sources.tenants.all() {
            let before = before(published, name.as_str(), tenant.uid.as_ref());
            let view = snapshot
                .clusters
                .iter()
                .find(|view| view.known && view.name == name);
            let mut findings = snapshot.findings.iter();
            let denied = findings
                .find(|one| one.id == NODE_CONDITIONS_DENIED && one.subject.name == name.as_str())
                .map(|one| one.message.as_str());
            let now = now();
            desired.insert(
                name.to_string(),
                (
                    tenant.uid.clone(),
                    status::user_cluster(&before, &tenant, view, denied, &now),
                ),
            );
        }
        self.write::<UserCluster, _>(published, desired).await
    }

    async fn policies(&self, published: &mut PublishedStatuses<LabelPropagationStatus>) -> bool {
        let (conflicts, invalid_policies) = (self.conflicts(), self.invalid_policies());
        let tallies = self.sources.statuses.tallies();
        let (clusters, policies) = self.sources.fleet.read(|index| {
            let clusters: Vec<_> = index.cluster_labels().cloned().collect();
            let policies: Vec<_> = index.policies().cloned().collect();
            (clusters, policies)
        });
        let known: BTreeMap<&str, &LabelPolicy> = policies
            .iter()
            .map(|policy| (policy.name.as_str(), policy))
            .collect();
        let names: BTreeSet<&str> = known
            .keys()
            .copied()
            .chain(invalid_policies.keys().map(String::as_str))
            .collect();
        let mut desired = BTreeMap::new();
        for name in names {
            // A policy that was never readable has neither rules nor a known generation.
            let policy = known.get(name);
            let uid = policy
                .and_then(|policy| policy.uid.as_ref())
                .map(ToString::to_string);
            let selected = |policy: &&LabelPolicy| {
                clusters
                    .iter()
                    .filter(|labels| policy.clusters.matches(labels))
                    .count()
            };
            let facts = PolicyFacts {
                generation: policy.map_or(0, |policy| policy.generation),
                rules: policy.map(|policy| policy.rules.as_slice()).unwrap_or_default(),
                fault: invalid_policies.get(name).map(String::as_str),
                conflicts: conflicts.get(name).map(Vec::as_slice).unwrap_or_default(),
                clusters: policy.map_or(0, selected),
                tally: tallies.get(name).copied().unwrap_or_default(),
            };
            let before = before(published, name, uid.as_ref());
            let status = status::label_propagation(&before, &facts, &now());
            let described = before
                .conditions
                .iter()
                .any(|one| one.reason == status::PROTECTED_TARGET);
            if let Some(why) = status::useless_rule(facts.rules).filter(|_| !described) {
                let about = EventObject::Policy(name.to_owned());
                self.sources
                    .events
                    .record(NewEvent::warning(about, "LabelTargetProtected", why));
            }
            desired.insert(name.to_owned(), (uid, status));
        }
        self.write::<LabelPropagation, _>(published, desired).await
    }

    /// Why a policy cannot be read, by policy name.
    fn invalid_policies(&self) -> BTreeMap<String, String> {
        let snapshot = self.sources.fleet.snapshot();
        let unreadable = snapshot.findings.iter().filter(|finding| {
            finding.id == findings::INVENTORY_OBJECT_UNREADABLE
                && finding.subject.kind == LabelPropagation::kind(&())
        });
        unreadable
            .map(|finding| (finding.subject.name.clone(), finding.message.clone()))
            .collect()
    }

    /// Conflicts of each policy, in a fixed order, limited to the size of a condition.
    fn conflicts(&self) -> BTreeMap<String, Vec<String>> {
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (policies, message) in self.sources.statuses.conflicts() {
            for policy in policies.split(", ") {
                let messages = found.entry(policy.to_owned()).or_default();
                if messages.iter().map(String::len).sum::<usize>() < MAX_MESSAGE_CHARS {
                    messages.push(message.clone());
                }
            }
        }
        found
    }

    /// Writes the statuses that differ. Returns whether all writes succeeded.
    async fn write<K, S>(&self, published: &mut PublishedStatuses<S>, desired: PublishedStatuses<S>) -> bool
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
        S: Serialize + PartialEq + Clone + Default,
    {
        published.retain(|name, _| desired.contains_key(name));
        let mut all = true;
        for (name, new) in desired {
            if published.get(&name) == Some(&new) {
                continue;
            }
            let request = patch::<K>(&self.client, &name, &new.1);
            match self.write_access.within(COALESCE_WINDOW, request).await {
                // Another process leads now.
                None => return true,
                Some(Ok(())) => drop(published.insert(name, new)),
                Some(Err(why)) => {
                    let kind = K::kind(&());
                    tracing::warn!(%kind, name, why, "the status could not be written; it will be retried");
                    all = false;
                }
            }
        }
        all
    }
}

fn now() -> String {
    format!("{:.0}", jiff::Timestamp::now())
}

/// The published status of the object with this UID.
fn before<S: Clone + Default>(published: &PublishedStatuses<S>, name: &str, uid: Option<&String>) -> S {
    let known = published.get(name).filter(|(known, _)| known.as_ref() == uid);
    known.map(|(_, status)| status.clone()).unwrap_or_default()
}

async fn published<K, S>(client: &Client) -> Result<PublishedStatuses<S>, String>
where
    K: Resource<DynamicType = ()> + HasStatus<Status = S> + Clone + Debug + DeserializeOwned,
    S: Clone + Default,
{
    let api: Api<K> = Api::all(client.clone());
    let list = timeout(REQUEST_TIMEOUT, api.list(&ListParams::default())).await;
    let list = list.map_err(|_| "no answer".to_owned())?;
    let list = list.map_err(|error| error.to_string())?;
    let named = list.items.into_iter().filter_map(|one| {
        let status = one.status().cloned().unwrap_or_default();
        Some((one.meta().name.clone()?, (one.meta().uid.clone(), status)))
    });
    Ok(named.collect())
}

async fn patch<K>(client: &Client, name: &str, status: &impl Serialize) -> Result<(), String>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let mut body = json!({ "status": status });
    if body["status"].get("phase").is_some() && body["status"].get("message").is_none() {
        // An omitted message would keep its old value.
        body["status"]["message"] = "".into();
    }
    let api: Api<K> = Api::all(client.clone());
    let (params, patch) = (PatchParams::default(), Patch::Merge(body));
    match timeout(REQUEST_TIMEOUT, api.patch_status(name, &params, &patch)).await {
        Err(_) => Err("no answer".to_owned()),
        // Deleted meanwhile.
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Ok(Ok(_)) => Ok(()),
    }
}
