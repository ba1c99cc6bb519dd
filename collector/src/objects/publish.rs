//! Writes the statuses of `UserCluster`s and `LabelPropagation`s: on change only, and only by the leader.

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
use virtfleet_collector_core::{findings, labels::policy::LabelPolicy};

use super::{
    LabelPropagation, LabelPropagationStatus, UserCluster, UserClusterStatus,
    status::{self, PolicyFacts},
};
use crate::{
    events::{EventObject, EventRecorder, NewEvent},
    fleet::{Fleet, FleetRead as _},
    labels::LabelStatusStore,
    leader::Writing,
    tenants::Tenants,
};

/// Changes that come together are written together.
const GATHER: Duration = Duration::from_secs(1);
/// After how long a write that failed is tried again.
const RETRY: Duration = Duration::from_secs(10);
/// How long one request may take.
const ANSWER: Duration = Duration::from_secs(15);
/// The most characters that a condition says of conflicts.
const LONGEST: usize = 2048;

/// What statuses follow from.
pub struct Sources {
    /// How user clusters are reached.
    pub tenants: Arc<Tenants>,
    /// Their VMs and Nodes, and the policies.
    pub fleet: Arc<Fleet>,
    /// What became of the labels.
    pub book: Arc<LabelStatusStore>,
    /// Where people are told of a rule that can never change anything.
    pub events: EventRecorder,
}

/// Writes while this process leads, until `stop`. Whoever becomes the leader reads once what stands there, so that a restart
/// with nothing changed writes nothing. Ends at once without an infra cluster.
pub async fn publish(sources: Sources, writing: Writing, stop: CancellationToken) {
    let Some(client) = sources.tenants.infra() else {
        return;
    };
    let board = Board {
        sources,
        writing,
        client,
    };
    stop.run_until_cancelled(board.follow()).await;
}

/// What stands in the API server, by name, with the UID of the object: one that is deleted and made again has no status.
type Standing<S> = BTreeMap<String, (Option<String>, S)>;

struct Board {
    sources: Sources,
    writing: Writing,
    client: Client,
}

impl Board {
    async fn follow(&self) {
        let Sources {
            tenants, fleet, book, ..
        } = &self.sources;
        let (mut reached, mut revisions, mut labels) = (tenants.changes(), fleet.revisions(), book.changes());
        let mut leadership = self.writing.changes();
        loop {
            if leadership.wait_for(|_| self.writing.leads()).await.is_err() {
                return;
            }
            let standing = tokio::try_join!(
                standing::<UserCluster, _>(&self.client),
                standing::<LabelPropagation, _>(&self.client)
            );
            let (mut clusters, mut policies) = match standing {
                Ok(standing) => standing,
                Err(why) => {
                    tracing::warn!(why, "statuses are not written: the objects cannot be listed");
                    sleep(RETRY).await;
                    continue;
                }
            };
            while self.writing.leads() {
                reached.mark_unchanged();
                revisions.mark_unchanged();
                labels.mark_unchanged();
                // Both are tried, whatever becomes of the first.
                let written = [
                    self.clusters(&mut clusters).await,
                    self.policies(&mut policies).await,
                ];
                // What was refused is not asked for again at every change: a server in trouble has enough to do.
                let pause = if written == [true, true] { GATHER } else { RETRY };
                sleep(pause).await;
                if written != [true, true] {
                    continue;
                }
                tokio::select! {
                    Ok(()) = reached.changed() => {}
                    Ok(()) = revisions.changed() => {}
                    Ok(()) = labels.changed() => {}
                    // Renewals are no news, the loss is.
                    Ok(_) = leadership.wait_for(|_| !self.writing.leads()) => {}
                    else => return,
                }
            }
        }
    }

    async fn clusters(&self, standing: &mut Standing<UserClusterStatus>) -> bool {
        let snapshot = self.sources.fleet.snapshot();
        // Counts of half an inventory are no news.
        if !snapshot.synced {
            return true;
        }
        let mut wanted = BTreeMap::new();
        for (name, tenant) in self.sources.tenants.all() {
            let before = before(standing, name.as_str(), tenant.uid.as_ref());
            let view = snapshot
                .clusters
                .iter()
                .find(|view| view.known && view.name == name);
            let now = now();
            wanted.insert(
                name.to_string(),
                (
                    tenant.uid.clone(),
                    status::user_cluster(&before, &tenant, view, &now),
                ),
            );
        }
        self.write::<UserCluster, _>(standing, wanted).await
    }

    async fn policies(&self, standing: &mut Standing<LabelPropagationStatus>) -> bool {
        let fleet = &self.sources.fleet;
        let (conflicts, faults) = (self.conflicts(), self.faults());
        let (tallies, clusters) = (self.sources.book.tallies(), fleet.cluster_labels());
        let policies = fleet.policies();
        let known: BTreeMap<&str, &LabelPolicy> = policies
            .iter()
            .map(|policy| (policy.name.as_str(), policy))
            .collect();
        let names: BTreeSet<&str> = known
            .keys()
            .copied()
            .chain(faults.keys().map(String::as_str))
            .collect();
        let mut wanted = BTreeMap::new();
        for name in names {
            // One that was never readable has neither rules nor a generation that anybody knows.
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
                fault: faults.get(name).map(String::as_str),
                conflicts: conflicts.get(name).map(Vec::as_slice).unwrap_or_default(),
                clusters: policy.map_or(0, selected),
                tally: tallies.get(name).copied().unwrap_or_default(),
            };
            let before = before(standing, name, uid.as_ref());
            let status = status::label_propagation(&before, &facts, &now());
            let said = before
                .conditions
                .iter()
                .any(|one| one.reason == status::PROTECTED_TARGET);
            if let Some(why) = status::useless_rule(facts.rules).filter(|_| !said) {
                let about = EventObject::Policy(name.to_owned());
                self.sources
                    .events
                    .record(NewEvent::warning(about, "LabelTargetProtected", why));
            }
            wanted.insert(name.to_owned(), (uid, status));
        }
        self.write::<LabelPropagation, _>(standing, wanted).await
    }

    /// Why a policy cannot be read, by name.
    fn faults(&self) -> BTreeMap<String, String> {
        let snapshot = self.sources.fleet.snapshot();
        let unreadable = snapshot.findings.iter().filter(|finding| {
            finding.id == findings::INVENTORY_OBJECT_UNREADABLE
                && finding.subject.kind == LabelPropagation::kind(&())
        });
        unreadable
            .map(|finding| (finding.subject.name.clone(), finding.message.clone()))
            .collect()
    }

    /// What each policy conflicts about, in a fixed order and no longer than a condition should be.
    fn conflicts(&self) -> BTreeMap<String, Vec<String>> {
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (policies, message) in self.sources.book.conflicts() {
            for policy in policies.split(", ") {
                let messages = found.entry(policy.to_owned()).or_default();
                if messages.iter().map(String::len).sum::<usize>() < LONGEST {
                    messages.push(message.clone());
                }
            }
        }
        found
    }

    /// Writes what differs. Returns whether all of it could be written.
    async fn write<K, S>(&self, standing: &mut Standing<S>, wanted: Standing<S>) -> bool
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
        S: Serialize + PartialEq + Clone + Default,
    {
        standing.retain(|name, _| wanted.contains_key(name));
        let mut all = true;
        for (name, new) in wanted {
            if standing.get(&name) == Some(&new) {
                continue;
            }
            let request = patch::<K>(&self.client, &name, &new.1);
            match self.writing.within(GATHER, request).await {
                // Somebody else leads by now.
                None => return true,
                Some(Ok(())) => drop(standing.insert(name, new)),
                Some(Err(why)) => {
                    let kind = K::kind(&());
                    tracing::warn!(%kind, name, why, "the status could not be written; it is tried again");
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

/// What stands of this very object.
fn before<S: Clone + Default>(standing: &Standing<S>, name: &str, uid: Option<&String>) -> S {
    let known = standing.get(name).filter(|(known, _)| known.as_ref() == uid);
    known.map(|(_, status)| status.clone()).unwrap_or_default()
}

async fn standing<K, S>(client: &Client) -> Result<Standing<S>, String>
where
    K: Resource<DynamicType = ()> + HasStatus<Status = S> + Clone + Debug + DeserializeOwned,
    S: Clone + Default,
{
    let api: Api<K> = Api::all(client.clone());
    let list = timeout(ANSWER, api.list(&ListParams::default())).await;
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
        // Left out, a message that no longer holds would stay.
        body["status"]["message"] = "".into();
    }
    let api: Api<K> = Api::all(client.clone());
    let (params, patch) = (PatchParams::default(), Patch::Merge(body));
    match timeout(ANSWER, api.patch_status(name, &params, &patch)).await {
        Err(_) => Err("no answer".to_owned()),
        // Deleted meanwhile.
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Ok(Ok(_)) => Ok(()),
    }
}
