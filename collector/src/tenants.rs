//! State and clients of all user clusters. A task that writes to a cluster gets the client here for
//! each request.
//!
//! The inventory maintains it: a rotated kubeconfig replaces the client, a removed or invalid one
//! removes it.

use std::{
    collections::BTreeMap,
    fmt,
    pin::Pin,
    sync::{Arc, PoisonError, RwLock},
};

use kube::Client;
use tokio::sync::watch;
use virtfleet_collector_core::view::{ClusterState, ClusterStatus};
use virtfleet_wire::ids::ClusterName;

use crate::{bounded::bounded, mla::settings::MlaCondition};

/// State of the connection to a user cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TenantState {
    /// It has no kubeconfig; the text says why, and what to do.
    Pending(String),
    /// Its Nodes are being read for the first time with this kubeconfig.
    Connecting,
    /// Its Nodes are watched.
    Ready,
    /// It cannot be reached; the text says why.
    Unreachable(String),
    /// It exceeds a limit; the text says which.
    Failed(String),
}

impl Default for TenantState {
    fn default() -> Self {
        Self::Pending("its kubeconfig has not been looked up yet".to_owned())
    }
}

/// Maximum characters of the explanation of a state.
const MAX_EXPLANATION_CHARS: usize = 1024;

/// One user cluster.
#[derive(Clone, Default)]
pub struct TenantEntry {
    pub state: TenantState,
    /// Its client. Present also while the cluster is unreachable, so that writes are tried; absent
    /// without a usable kubeconfig.
    pub client: Option<Client>,
    /// Incremented with each new client, i.e. with each new kubeconfig.
    pub client_generation: u64,
    /// Fingerprint of the kubeconfig of the client.
    pub kubeconfig_fingerprint: Option<String>,
    /// `metadata.uid` of the `UserCluster`.
    pub uid: Option<String>,
    /// `metadata.generation` of the `UserCluster`.
    pub generation: i64,
    /// `spec.suspend`: nothing is written there.
    pub suspend: bool,
    /// Its cluster hibernates, as its ClusterSource says: its API server is off on purpose.
    pub hibernates: bool,
    /// A note for the admin, shown in every state.
    pub note: Option<String>,
    /// That its credentials have expired or soon will, shown in every state.
    pub expiry: Option<String>,
    /// Whether `spec.mla` is used; none without it.
    pub mla: Option<MlaCondition>,
}

impl TenantEntry {
    /// State and explanation for display. The API and the `UserCluster`'s status use only this.
    pub fn status(&self) -> (ClusterState, String) {
        let (state, message) = match &self.state {
            TenantState::Pending(_) | TenantState::Connecting | TenantState::Unreachable(_)
                if self.hibernates =>
            {
                (
                    ClusterState::Hibernated,
                    "it hibernates: its API server is off, and its last known Nodes are kept",
                )
            }
            TenantState::Pending(why) => (ClusterState::Pending, why.as_str()),
            TenantState::Connecting => (ClusterState::Connecting, "its Nodes are being read"),
            TenantState::Unreachable(why) => (ClusterState::Unreachable, why.as_str()),
            TenantState::Failed(why) => (ClusterState::Failed, why.as_str()),
            TenantState::Ready if self.suspend => (
                ClusterState::Suspended,
                "its Nodes are watched, but nothing is written: spec.suspend is set",
            ),
            TenantState::Ready => (ClusterState::Ready, "its Nodes are watched"),
        };
        let notes = [&self.note, &self.expiry].into_iter().flatten();
        let parts: Vec<&str> = notes.map(String::as_str).chain([message]).collect();
        (state, bounded(&parts.join("; "), MAX_EXPLANATION_CHARS))
    }
}

/// Makes a client for an API server that is not trusted, from a kubeconfig.
pub(crate) type ConnectFn =
    Arc<dyn Fn(Vec<u8>) -> Pin<Box<dyn Future<Output = Result<Client, String>> + Send>> + Send + Sync>;

/// A client of a user cluster with a new kubeconfig.
#[derive(Clone)]
pub struct TenantClient {
    pub client: Client,
    /// Fingerprint of the kubeconfig.
    pub fingerprint: String,
}

impl fmt::Debug for TenantClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantClient")
            .field("fingerprint", &self.fingerprint)
            .finish_non_exhaustive()
    }
}

/// The user clusters. Share it as `Arc<Tenants>`.
pub struct Tenants {
    connect: RwLock<Option<ConnectFn>>,
    all: RwLock<BTreeMap<ClusterName, TenantEntry>>,
    infra: RwLock<Option<Client>>,
    changes: watch::Sender<u64>,
}

impl fmt::Debug for TenantEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("TenantEntry");
        out.field("state", &self.state)
            .field("client_generation", &self.client_generation)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Tenants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenants")
            .field("all", &self.all)
            .finish_non_exhaustive()
    }
}

impl Default for Tenants {
    fn default() -> Self {
        Self {
            connect: RwLock::default(),
            all: RwLock::default(),
            infra: RwLock::default(),
            changes: watch::Sender::new(0),
        }
    }
}

impl Tenants {
    /// The client of a user cluster; none without a usable kubeconfig.
    pub fn client(&self, name: &ClusterName) -> Option<Client> {
        self.read().get(name)?.client.clone()
    }

    /// State of a user cluster; `Pending` for an unknown one.
    pub fn state(&self, name: &ClusterName) -> TenantState {
        self.read()
            .get(name)
            .map(|tenant| tenant.state.clone())
            .unwrap_or_default()
    }

    /// All data about a user cluster.
    pub fn get(&self, name: &ClusterName) -> Option<TenantEntry> {
        self.read().get(name).cloned()
    }

    /// All user clusters, by name.
    pub fn all(&self) -> Vec<(ClusterName, TenantEntry)> {
        let all = self.read();
        all.iter()
            .map(|(name, tenant)| (name.clone(), tenant.clone()))
            .collect()
    }

    /// Status of each user cluster; ready ones have an explanation only if there is a note.
    pub fn statuses(&self) -> BTreeMap<ClusterName, ClusterStatus> {
        let status = |tenant: &TenantEntry| {
            let (state, message) = tenant.status();
            let is_noted = tenant.note.is_some() || tenant.expiry.is_some();
            ClusterStatus {
                state,
                message: (state != ClusterState::Ready || is_noted).then_some(message),
            }
        };
        let all = self.read();
        all.iter()
            .map(|(name, tenant)| (name.clone(), status(tenant)))
            .collect()
    }

    /// The client of the infra cluster; none if the inventory is a folder.
    pub fn infra(&self) -> Option<Client> {
        self.infra.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets how clients for other API servers are made.
    pub(crate) fn set_connect(&self, connect: ConnectFn) {
        *self.connect.write().unwrap_or_else(PoisonError::into_inner) = Some(connect);
    }

    /// A client for an API server that is not trusted, with the rules and limits for user clusters.
    ///
    /// # Errors
    /// Why the kubeconfig cannot be used, without any secret part of it.
    pub(crate) async fn connect(&self, kubeconfig: Vec<u8>) -> Result<Client, String> {
        let connect = self
            .connect
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let connect = connect.ok_or("the inventory is not a live cluster")?;
        connect(kubeconfig).await
    }

    /// Notifies of each change of a state, a client, or the set of user clusters.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub fn set_infra(&self, client: Client) {
        *self.infra.write().unwrap_or_else(PoisonError::into_inner) = Some(client);
        self.changes.send_modify(|count| *count += 1);
    }

    /// Adds or changes a user cluster. `change` returns whether to notify.
    pub fn update(&self, name: &ClusterName, change: impl FnOnce(&mut TenantEntry) -> bool) {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        let new = !all.contains_key(name);
        let changed = change(all.entry(name.clone()).or_default());
        drop(all);
        if new || changed {
            self.changes.send_modify(|count| *count += 1);
        }
    }

    pub fn remove(&self, name: &ClusterName) {
        let gone = self
            .all
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name);
        if gone.is_some() {
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// Sets the state and keeps the client.
    pub fn set_state(&self, name: &ClusterName, state: TenantState) {
        self.update(name, |tenant| {
            let changed = tenant.state != state;
            tenant.state = state;
            changed
        });
    }

    /// Sets or removes the client, and sets the state.
    pub fn set_client(&self, name: &ClusterName, client: Option<TenantClient>, state: TenantState) {
        self.update(name, |tenant| {
            if client.is_none() && tenant.client.is_none() && tenant.state == state {
                return false;
            }
            let (client, fingerprint) = client.map(|new| (new.client, new.fingerprint)).unzip();
            tenant.client = client;
            tenant.kubeconfig_fingerprint = fingerprint;
            tenant.client_generation += 1;
            tenant.state = state;
            true
        });
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<ClusterName, TenantEntry>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner)
    }
}
