//! One user cluster: its kubeconfig Secret, and with each kubeconfig a watch of its Nodes.
//!
//! What is known of its Nodes outlives every kubeconfig, and goes only when a complete list does not have it or the
//! `UserCluster` is gone.

use std::sync::Arc;

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
    connect::{self, Clients, Gate},
    failure::Failure,
    follow::{Follower, Said},
    keeper::Keeper,
    kinds::Kind,
    object::Object,
    secrets::{Found, Secrets, Space},
};
use crate::{
    inventory::read::SecretRef,
    tenants::{TenantState, Tenants},
};

/// See the module.
pub(super) struct Tenant {
    pub(super) name: ClusterName,
    pub(super) secret: Option<SecretRef>,
    /// The infra cluster's.
    pub(super) secrets: Secrets,
    pub(super) gate: Gate,
    /// How many Nodes it may have.
    pub(super) max_nodes: usize,
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
        let space = self.secrets.follow(&secret.namespace);
        let secrets = follow_secret(space, &self.gate, secret, about, tell);
        let mut nodes = Nodes {
            name: &self.name,
            tenants: &self.tenants,
            board: &self.board,
            events: &self.events,
            keeper: &mut self.keeper,
            most: self.max_nodes,
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
    let found = finding(name, &state, why);
    tenants.set_client(name, None, state);
    board.cluster(name, Some(found));
}

fn finding(name: &ClusterName, state: &TenantState, why: &str) -> Finding {
    let message = format!("user cluster {name}: {why}");
    let subject = ("UserCluster", name.as_str());
    let (id, severity, reason, remedy) = match state {
        TenantState::Pending => (
            findings::USER_CLUSTER_PENDING,
            Severity::Info,
            "NoKubeconfig",
            "set spec.kubeconfig and make the Secret; until then nothing is written there",
        ),
        TenantState::Failed(_) => (
            findings::USER_CLUSTER_FAILED,
            Severity::Warning,
            "Failed",
            "find out who answers there and why it sends so much; its last known Nodes stay, and it is asked again every 30 s",
        ),
        _ => (
            findings::USER_CLUSTER_UNREACHABLE,
            Severity::Warning,
            "Unreachable",
            "look at its API server and its kubeconfig; its last known Nodes stay",
        ),
    };
    let found = Finding::new(id, severity, subject, reason, message).remedy(remedy);
    found.with("cluster", name)
}

/// Follows the kubeconfig, and tells of each one.
async fn follow_secret(
    mut space: watch::Receiver<Space>,
    gate: &Gate,
    at: SecretRef,
    (name, tenants, board): (&ClusterName, &Tenants, &Board),
    tell: watch::Sender<Option<Clients>>,
) {
    let place = format!("Secret {}/{}", at.namespace, at.name);
    let none = |state: TenantState, why: &str| {
        tell.send_replace(None);
        without_client(tenants, board, name, state, why);
    };
    let mut last = Found::Waiting;
    loop {
        let found = space.borrow_and_update().find(&at);
        // Other Secrets of the namespace are no news.
        if found != last {
            match &found {
                Found::Waiting => {}
                Found::Absent => none(TenantState::Pending, &format!("{place} does not exist")),
                Found::NoKey => {
                    let why = format!("{place}: the Secret has no key {:?}", at.key);
                    none(TenantState::Unreachable(why.clone()), &why);
                }
                Found::Failed(failure) => {
                    let mut why = format!("{place} cannot be read: {}", failure.message);
                    if failure.code == Some(403) {
                        let namespace = &at.namespace;
                        let rights = format!(
                            "; allow the collector the verbs list and watch on the Secrets of the namespace {namespace} with a Role"
                        );
                        why.push_str(&rights);
                    }
                    none(TenantState::Unreachable(why.clone()), &why);
                }
                Found::Kubeconfig(bytes) => match connect::tenant(bytes, gate).await {
                    Ok(clients) => {
                        let asking = clients.asking.clone();
                        tenants.set_client(name, Some(asking), TenantState::Connecting);
                        board.cluster(name, None);
                        tell.send_replace(Some(clients));
                    }
                    Err(problem) => {
                        let why = format!("{place}: {problem}");
                        none(TenantState::Unreachable(why.clone()), &why);
                    }
                },
            }
            last = found;
        }
        if space.changed().await.is_err() {
            return;
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
    /// How many there may be.
    most: usize,
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
        let mut follower: Follower<Object> = Follower::tenant(api, self.most);
        let mut listed = false;
        loop {
            let mut said = tokio::select! {
                () = stop.cancelled() => return None,
                changed = clients.changed() => return changed.ok(),
                said = follower.next() => said,
            };
            if let Some(why) = self.keeper.exceeds(&said, self.most) {
                said = Said::Failed(follower.reject(why));
            }
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
                    if failure.over_limit {
                        self.failed(failure);
                    } else if !listed || failure.is_definite() || failure.count > 1 {
                        self.unreachable(failure);
                    }
                }
                _ => {}
            }
            if matches!(&said, Said::Failed(failure) if failure.over_limit) {
                listed = false;
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

    fn failed(&self, failure: &Failure) {
        let why = format!(
            "its API server sends more than is kept of a user cluster: {}",
            failure.message
        );
        self.set_state(TenantState::Failed(why.clone()), &why);
    }

    fn unreachable(&self, failure: &Failure) {
        let mut why = format!("its Nodes cannot be watched: {}", failure.message);
        if failure.code == Some(403) {
            why.push_str(
                "; allow the kubeconfig's user the verbs list and watch on nodes with a ClusterRole",
            );
        }
        self.set_state(TenantState::Unreachable(why.clone()), &why);
    }

    fn set_state(&self, state: TenantState, why: &str) {
        self.board
            .cluster(self.name, Some(finding(self.name, &state, why)));
        self.tenants.set_state(self.name, state);
    }
}
