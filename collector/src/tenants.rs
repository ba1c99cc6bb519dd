//! The user clusters that can be reached now: who writes to one asks here for its client, each time.
//!
//! The inventory keeps it: a kubeconfig that is rotated replaces the client, one that is withdrawn or broken takes it away.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{PoisonError, RwLock},
};

use kube::Client;
use tokio::sync::watch;
use virtfleet_collector_core::view::{ClusterState, ClusterStatus};
use virtfleet_wire::ids::ClusterName;

use crate::bounded::bounded;

/// How a user cluster stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TenantState {
    /// It has no kubeconfig: why.
    #[default]
    Pending,
    /// Its Nodes are being read for the first time with this kubeconfig.
    Connecting,
    /// Its Nodes are watched.
    Ready,
    /// It cannot be used: why.
    Unreachable(String),
    /// Its API server sends more than is kept of a user cluster: what.
    Failed(String),
}

/// The most characters that are said of why a user cluster is as it is.
const LONGEST: usize = 1024;

/// One user cluster.
#[derive(Clone, Default)]
pub struct Tenant {
    /// How it stands.
    pub state: TenantState,
    /// Its client. Also there while it is not reached, so that a write may try; absent without a usable kubeconfig.
    pub client: Option<Client>,
    /// Counts clients: another number means that the kubeconfig was replaced.
    pub client_generation: u64,
    /// `metadata.uid` of the `UserCluster`.
    pub uid: Option<String>,
    /// `metadata.generation` of the `UserCluster`.
    pub generation: i64,
    /// `spec.suspend`: nothing may be written there.
    pub suspend: bool,
    /// What an admin should know of it in every state.
    pub note: Option<String>,
}

impl Tenant {
    /// How it stands and why, for people: what the API and the `UserCluster`'s status say follows from this alone.
    pub fn stand(&self) -> (ClusterState, String) {
        let (state, message) = match &self.state {
            TenantState::Pending => (
                ClusterState::Pending,
                "there is no kubeconfig yet; set spec.kubeconfig and make the Secret",
            ),
            TenantState::Connecting => (ClusterState::Connecting, "its Nodes are being read"),
            TenantState::Unreachable(why) => (ClusterState::Unreachable, why.as_str()),
            TenantState::Failed(why) => (ClusterState::Failed, why.as_str()),
            TenantState::Ready if self.suspend => (
                ClusterState::Suspended,
                "its Nodes are watched, and nothing is written: spec.suspend is set",
            ),
            TenantState::Ready => (ClusterState::Ready, "its Nodes are watched"),
        };
        let message = match &self.note {
            Some(note) => format!("{note}; {message}"),
            None => message.to_owned(),
        };
        (state, bounded(&message, LONGEST))
    }
}

/// See the module. Share it as `Arc<Tenants>`.
pub struct Tenants {
    all: RwLock<BTreeMap<ClusterName, Tenant>>,
    infra: RwLock<Option<Client>>,
    changes: watch::Sender<u64>,
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Tenant");
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
            all: RwLock::default(),
            infra: RwLock::default(),
            changes: watch::Sender::new(0),
        }
    }
}

impl Tenants {
    /// The client of a user cluster; none when it has no usable kubeconfig.
    pub fn client(&self, name: &ClusterName) -> Option<Client> {
        self.read().get(name)?.client.clone()
    }

    /// How a user cluster stands; `Pending` for one that is not known.
    pub fn state(&self, name: &ClusterName) -> TenantState {
        self.read()
            .get(name)
            .map(|tenant| tenant.state.clone())
            .unwrap_or_default()
    }

    /// Everything about a user cluster.
    pub fn get(&self, name: &ClusterName) -> Option<Tenant> {
        self.read().get(name).cloned()
    }

    /// Every user cluster, by name.
    pub fn all(&self) -> Vec<(ClusterName, Tenant)> {
        let all = self.read();
        all.iter()
            .map(|(name, tenant)| (name.clone(), tenant.clone()))
            .collect()
    }

    /// How every user cluster stands; of one that is ready there is nothing to explain.
    pub fn stands(&self) -> BTreeMap<ClusterName, ClusterStatus> {
        let stand = |tenant: &Tenant| {
            let (state, message) = tenant.stand();
            ClusterStatus {
                state,
                message: (state != ClusterState::Ready || tenant.note.is_some()).then_some(message),
            }
        };
        let all = self.read();
        all.iter()
            .map(|(name, tenant)| (name.clone(), stand(tenant)))
            .collect()
    }

    /// The client of the infra cluster; none when the inventory is a folder.
    pub fn infra(&self) -> Option<Client> {
        self.infra.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells of every change of a state, a client, or of which user clusters there are.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Sets the client of the infra cluster.
    pub fn set_infra(&self, client: Client) {
        *self.infra.write().unwrap_or_else(PoisonError::into_inner) = Some(client);
        self.changes.send_modify(|count| *count += 1);
    }

    /// There is, or has changed. `change` returns whether anybody should be told.
    pub fn update(&self, name: &ClusterName, change: impl FnOnce(&mut Tenant) -> bool) {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        let new = !all.contains_key(name);
        let changed = change(all.entry(name.clone()).or_default());
        drop(all);
        if new || changed {
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// Is gone.
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

    /// Sets a state; the client stays.
    pub fn set_state(&self, name: &ClusterName, state: TenantState) {
        self.update(name, |tenant| {
            let changed = tenant.state != state;
            tenant.state = state;
            changed
        });
    }

    /// Sets the client, or takes it away, and the state that follows.
    pub fn set_client(&self, name: &ClusterName, client: Option<Client>, state: TenantState) {
        self.update(name, |tenant| {
            if client.is_none() && tenant.client.is_none() && tenant.state == state {
                return false;
            }
            tenant.client = client;
            tenant.client_generation += 1;
            tenant.state = state;
            true
        });
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<ClusterName, Tenant>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner)
    }
}
