//! One user cluster: its kubeconfig Secret, and with each kubeconfig a watch of its Nodes.
//!
//! What is known of its Nodes outlives every kubeconfig, and goes only when a complete list does not have it or the
//! `UserCluster` is gone.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use virtfleet_collector_core::{facts::InventoryEvent, findings};
use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::ClusterName,
};

use super::{
    board::{Board, WatchId},
    connect::{self, Clients},
    follow::{Failure, Follower, Said},
    keeper::Keeper,
    kinds::Kind,
    object::Object,
};
use crate::{
    inventory::read::SecretRef,
    tenants::{TenantState, Tenants},
};

/// See the module.
pub(super) struct Tenant {
    pub(super) name: ClusterName,
    pub(super) secret: Option<SecretRef>,
    /// The infra cluster's, for the Secret.
    pub(super) infra: kube::Client,
    pub(super) tenants: Arc<Tenants>,
    pub(super) board: Arc<Board>,
    pub(super) events: mpsc::Sender<InventoryEvent>,
    pub(super) keeper: Keeper,
}

impl Tenant {
    pub(super) fn id(name: &ClusterName) -> WatchId {
        WatchId {
            kind: Kind::UserNode,
            cluster: Some(name.clone()),
            namespace: None,
        }
    }

    /// Follows until `stop`, and gives back what it knows of the Nodes: all of it was said, and nothing else.
    pub(super) async fn run(mut self, stop: CancellationToken) -> Keeper {
        let Some(secret) = self.secret.clone() else {
            let why = "spec.kubeconfig is not set";
            without_client(&self.tenants, &self.board, &self.name, TenantState::Pending, why);
            stop.cancelled().await;
            return self.keeper;
        };
        let (tell, clients) = watch::channel(None);
        let about = (&self.name, &*self.tenants, &*self.board);
        let secrets = follow_secret(self.infra.clone(), secret, about, tell);
        let mut nodes = Nodes {
            name: &self.name,
            tenants: &self.tenants,
            board: &self.board,
            events: &self.events,
            keeper: &mut self.keeper,
        };
        tokio::select! {
            () = secrets => {}
            // This one ends between two words, so that none is half said.
            _ = nodes.follow(clients, &stop) => {}
        }
        self.keeper
    }
}

fn without_client(tenants: &Tenants, board: &Board, name: &ClusterName, state: TenantState, why: &str) {
    let pending = state == TenantState::Pending;
    tenants.set_client(name, None, state);
    board.cluster(name, Some(finding(name, pending, why)));
}

fn finding(name: &ClusterName, pending: bool, why: &str) -> Finding {
    let message = format!("user cluster {name}: {why}");
    let subject = ("UserCluster", name.as_str());
    if pending {
        Finding::new(
            findings::USER_CLUSTER_PENDING,
            Severity::Info,
            subject,
            "NoKubeconfig",
            message,
        )
        .remedy("set spec.kubeconfig and make the Secret; until then nothing is written there")
    } else {
        Finding::new(
            findings::USER_CLUSTER_UNREACHABLE,
            Severity::Warning,
            subject,
            "Unreachable",
            message,
        )
        .remedy("look at its API server and its kubeconfig; its last known Nodes stay")
    }
}

/// Follows the Secret, and tells of each kubeconfig.
async fn follow_secret(
    infra: kube::Client,
    at: SecretRef,
    (name, tenants, board): (&ClusterName, &Tenants, &Board),
    tell: watch::Sender<Option<Clients>>,
) {
    let api: Api<Secret> = Api::namespaced(infra, &at.namespace);
    // The field selector is all that RBAC with resourceNames allows to watch.
    let mut follower = Follower::new(api, Some(format!("metadata.name={}", at.name)));
    let place = format!("Secret {}/{}", at.namespace, at.name);
    let mut used: Option<Vec<u8>> = None;
    let mut there = false;
    loop {
        let said = follower.next().await;
        match said {
            Said::Begun => there = false,
            Said::Listed(secret) | Said::Applied(secret) => {
                there = true;
                let bytes = secret.data.as_ref().and_then(|data| data.get(&at.key));
                let bytes = bytes.map(|bytes| bytes.0.clone()).unwrap_or_default();
                // A relist, or a change of its labels, is no new kubeconfig.
                if used.as_ref() == Some(&bytes) {
                    continue;
                }
                used = Some(bytes);
                match connect::tenant(&secret, &at.key).await {
                    Ok(clients) => {
                        let asking = clients.asking.clone();
                        tenants.set_client(name, Some(asking), TenantState::Connecting);
                        board.cluster(name, None);
                        tell.send_replace(Some(clients));
                    }
                    Err(problem) => {
                        tell.send_replace(None);
                        let why = format!("{place}: {problem}");
                        let state = TenantState::Unreachable(why.clone());
                        without_client(tenants, board, name, state, &why);
                    }
                }
            }
            Said::Complete if there => {}
            Said::Complete | Said::Deleted(_) => {
                used = None;
                tell.send_replace(None);
                let why = format!("{place} does not exist");
                without_client(tenants, board, name, TenantState::Pending, &why);
            }
            Said::Fine => {}
            // With a kubeconfig at hand, that the Secret cannot be watched now changes nothing for the user cluster.
            Said::Failed(failure) if used.is_none() => {
                let mut why = format!("{place} cannot be read: {}", failure.message);
                if failure.code == Some(403) {
                    why.push_str("; allow the collector the verbs list and watch on this Secret with a Role");
                }
                let state = TenantState::Unreachable(why.clone());
                without_client(tenants, board, name, state, &why);
            }
            Said::Failed(failure) => {
                tracing::debug!(cluster = %name, %place, failure.message, "the kubeconfig's Secret is not watched now");
            }
        }
    }
}

/// Follows the Nodes with whatever kubeconfig there is.
struct Nodes<'a> {
    name: &'a ClusterName,
    tenants: &'a Tenants,
    board: &'a Board,
    events: &'a mpsc::Sender<InventoryEvent>,
    keeper: &'a mut Keeper,
}

impl Nodes<'_> {
    /// Returns when told to stop, or when nobody takes events or gives kubeconfigs any more.
    async fn follow(
        &mut self,
        mut clients: watch::Receiver<Option<Clients>>,
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
        now: Clients,
        clients: &mut watch::Receiver<Option<Clients>>,
        stop: &CancellationToken,
    ) -> Option<()> {
        let id = Tenant::id(self.name);
        let api = Api::all_with(now.watching, &Kind::UserNode.resource());
        let mut follower: Follower<Object> = Follower::new(api, None);
        let mut listed = false;
        loop {
            let said = tokio::select! {
                () = stop.cancelled() => return None,
                changed = clients.changed() => return changed.ok(),
                said = follower.next() => said,
            };
            for event in self.keeper.take(&said) {
                self.events.send(event).await.ok()?;
            }
            match &said {
                Said::Begun => self.board.begun(&id),
                Said::Complete => {
                    listed = true;
                    self.board.listed(&id);
                }
                Said::Fine => self.board.fine(&id),
                Said::Failed(failure) => {
                    self.board.failed(&id, failure);
                    if !listed || failure.is_definite() || failure.count > 1 {
                        self.unreachable(failure);
                    }
                }
                _ => {}
            }
            if matches!(said, Said::Complete | Said::Fine) && listed {
                self.tenants.set_state(self.name, TenantState::Ready);
                self.board.cluster(self.name, None);
            }
            if !matches!(said, Said::Listed(_)) {
                self.board.knows(&id, self.keeper.len(), self.keeper.unreadable());
            }
        }
    }

    fn unreachable(&self, failure: &Failure) {
        let mut why = format!("its Nodes cannot be watched: {}", failure.message);
        if failure.code == Some(403) {
            why.push_str(
                "; allow the kubeconfig's user the verbs list and watch on nodes with a ClusterRole",
            );
        }
        self.tenants
            .set_state(self.name, TenantState::Unreachable(why.clone()));
        self.board
            .cluster(self.name, Some(finding(self.name, false, &why)));
    }
}
