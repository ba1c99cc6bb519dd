//! What the statuses of our objects say, and how that of `UserCluster`s is written: on change only, and only by the leader.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use virtfleet_collector_core::view::ClusterView;
use virtfleet_wire::ids::ClusterName;

use super::{Condition, ConditionStatus, LabelPropagationStatus, Phase, UserCluster, UserClusterStatus};
use crate::{
    fleet::FleetRead,
    tenants::{Tenant, TenantState, Tenants},
};

/// Changes that come together are written together.
const GATHER: Duration = Duration::from_secs(1);
/// After how long a write that failed is tried again.
const RETRY: Duration = Duration::from_secs(10);
/// How long one request may take.
const ANSWER: Duration = Duration::from_secs(15);

/// The status of a `UserCluster` that stood at `before`. `now` is RFC 3339.
pub fn user_cluster(
    before: &UserClusterStatus,
    tenant: &Tenant,
    view: Option<&ClusterView>,
    now: &str,
) -> UserClusterStatus {
    let (phase, holds, reason, message) = match &tenant.state {
        TenantState::Pending => {
            let message = "there is no kubeconfig yet; set spec.kubeconfig and make the Secret";
            (
                Phase::Pending,
                ConditionStatus::False,
                "NoKubeconfig",
                message.to_owned(),
            )
        }
        TenantState::Connecting => {
            let message = "its Nodes are being read".to_owned();
            (Phase::Pending, ConditionStatus::False, "Connecting", message)
        }
        TenantState::Unreachable(why) => (
            Phase::Unreachable,
            ConditionStatus::False,
            "Unreachable",
            why.clone(),
        ),
        TenantState::Ready => {
            let phase = if tenant.suspend {
                Phase::Suspended
            } else {
                Phase::Ready
            };
            (
                phase,
                ConditionStatus::True,
                "Watching",
                "its Nodes are watched".to_owned(),
            )
        }
    };
    let message: String = message.chars().take(1024).collect();
    let count = |of: fn(&ClusterView) -> usize| {
        let count = view.map_or(0, of);
        i64::try_from(count).unwrap_or(i64::MAX)
    };
    let ready = Condition::new("Ready", holds, reason, message.clone());
    UserClusterStatus {
        observed_generation: Some(tenant.generation),
        phase,
        message,
        conditions: vec![ready.at(&before.conditions, now)],
        vms: count(|view| view.vms),
        nodes: count(|view| view.nodes),
    }
}

/// The status of a `LabelPropagation` that stood at `before`: `fault` is why it cannot be used, `conflicts` name the objects
/// that ask for something else. `now` is RFC 3339.
pub fn label_propagation(
    before: &LabelPropagationStatus,
    generation: i64,
    fault: Option<&str>,
    conflicts: &[String],
    now: &str,
) -> LabelPropagationStatus {
    let accepted = match fault {
        None => {
            let message = "every rule can be used".to_owned();
            Condition::new("Accepted", ConditionStatus::True, "Accepted", message)
        }
        Some(fault) => Condition::new("Accepted", ConditionStatus::False, "Invalid", fault.to_owned()),
    };
    let conflicted = if conflicts.is_empty() {
        let message = "no other object asks for something else".to_owned();
        Condition::new("Conflicted", ConditionStatus::False, "NoConflict", message)
    } else {
        Condition::new(
            "Conflicted",
            ConditionStatus::True,
            "Conflict",
            conflicts.join("; "),
        )
    };
    LabelPropagationStatus {
        observed_generation: Some(generation),
        conditions: [accepted, conflicted]
            .map(|condition| condition.at(&before.conditions, now))
            .into(),
    }
}

/// Writes the status of every `UserCluster` while `is_leader` says so, until `stop`. Whoever becomes the leader reads once what
/// stands there, so that a restart with nothing changed writes nothing. Returns at once without an infra cluster.
pub async fn write(
    tenants: Arc<Tenants>,
    fleet: Arc<dyn FleetRead>,
    is_leader: watch::Receiver<bool>,
    stop: CancellationToken,
) {
    stop.run_until_cancelled(follow(&tenants, &*fleet, is_leader))
        .await;
}

async fn follow(tenants: &Tenants, fleet: &dyn FleetRead, mut is_leader: watch::Receiver<bool>) {
    let Some(client) = tenants.infra() else { return };
    let (mut changes, mut revisions) = (tenants.changes(), fleet.revisions());
    loop {
        if is_leader.wait_for(|leads| *leads).await.is_err() {
            return;
        }
        let mut written = match standing(&client).await {
            Ok(standing) => standing,
            Err(why) => {
                tracing::warn!(
                    why,
                    "the status of user clusters is not written: they cannot be listed"
                );
                sleep(RETRY).await;
                continue;
            }
        };
        while *is_leader.borrow() {
            changes.mark_unchanged();
            revisions.mark_unchanged();
            let all_written = pass(&client, tenants, fleet, &is_leader, &mut written).await;
            tokio::select! {
                Ok(()) = changes.changed() => {}
                Ok(()) = revisions.changed() => {}
                Ok(()) = is_leader.changed() => {}
                () = sleep(RETRY), if !all_written => {}
                else => return,
            }
            sleep(GATHER).await;
        }
    }
}

type Standing = BTreeMap<String, UserClusterStatus>;

async fn standing(client: &Client) -> Result<Standing, String> {
    let api: Api<UserCluster> = Api::all(client.clone());
    let list = timeout(ANSWER, api.list(&ListParams::default())).await;
    let list = list.map_err(|_| "no answer".to_owned())?;
    let list = list.map_err(|error| error.to_string())?;
    let named = list
        .items
        .into_iter()
        .filter_map(|one| Some((one.metadata.name?, one.status.unwrap_or_default())));
    Ok(named.collect())
}

/// Writes what differs. Returns whether all of it could be written.
async fn pass(
    client: &Client,
    tenants: &Tenants,
    fleet: &dyn FleetRead,
    is_leader: &watch::Receiver<bool>,
    written: &mut Standing,
) -> bool {
    let snapshot = fleet.snapshot();
    // Counts of half an inventory are no news.
    if !snapshot.synced {
        return true;
    }
    let all = tenants.all();
    written.retain(|name, _| all.iter().any(|(known, _)| known.as_str() == name));
    let mut all_written = true;
    for (name, tenant) in &all {
        let before = written.get(name.as_str()).cloned().unwrap_or_default();
        let view = snapshot.clusters.iter().find(|view| view.name == *name);
        let now = format!("{:.0}", jiff::Timestamp::now());
        let new = user_cluster(&before, tenant, view, &now);
        if new == before {
            continue;
        }
        if !*is_leader.borrow() {
            return true;
        }
        match patch(client, name, &new).await {
            Ok(()) => drop(written.insert(name.to_string(), new)),
            Err(why) => {
                tracing::warn!(cluster = %name, why, "the status of a UserCluster could not be written");
                all_written = false;
            }
        }
    }
    all_written
}

async fn patch(client: &Client, name: &ClusterName, status: &UserClusterStatus) -> Result<(), String> {
    let api: Api<UserCluster> = Api::all(client.clone());
    let mut body = json!({ "status": status });
    // Left out, a message that no longer holds would stay.
    body["status"]["message"] = status.message.clone().into();
    let patch = Patch::Merge(body);
    let params = PatchParams::default();
    match timeout(ANSWER, api.patch_status(name.as_str(), &params, &patch)).await {
        Err(_) => Err("no answer".to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Ok(Ok(_)) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_changes_only_with_what_it_says() {
        let mut tenant = Tenant {
            generation: 3,
            ..Tenant::default()
        };
        let first = user_cluster(&UserClusterStatus::default(), &tenant, None, "t1");
        assert_eq!(
            (first.phase, first.observed_generation),
            (Phase::Pending, Some(3))
        );
        assert_eq!(user_cluster(&first, &tenant, None, "t2"), first);
        tenant.state = TenantState::Unreachable("it is dark".to_owned());
        let dark = user_cluster(&first, &tenant, None, "t3");
        assert_eq!(
            (dark.phase, dark.message.as_str()),
            (Phase::Unreachable, "it is dark")
        );
        let since = &dark.conditions[0].last_transition_time;
        assert_eq!(since, "t1", "not ready before, and not ready now");
        tenant.state = TenantState::Ready;
        let ready = user_cluster(&dark, &tenant, None, "t4");
        assert_eq!(ready.phase, Phase::Ready);
        assert_eq!(ready.conditions[0].last_transition_time, "t4");
        tenant.suspend = true;
        assert_eq!(user_cluster(&ready, &tenant, None, "t5").phase, Phase::Suspended);
    }

    #[test]
    fn a_policy_is_accepted_or_says_why_not() {
        let good = label_propagation(&LabelPropagationStatus::default(), 1, None, &[], "t1");
        assert_eq!(label_propagation(&good, 1, None, &[], "t2"), good);
        let bad = label_propagation(&good, 2, Some("labels[0]: x"), &["b".to_owned()], "t3");
        let say = bad
            .conditions
            .iter()
            .map(|one| (one.status, one.last_transition_time.as_str()));
        assert_eq!(
            say.collect::<Vec<_>>(),
            [(ConditionStatus::False, "t3"), (ConditionStatus::True, "t3")]
        );
    }
}
