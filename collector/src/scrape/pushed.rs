//! Connections that agents opened, one for each VM. Pulls and pages of a VM use its connection one
//! after the other.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::{
    sync::{Mutex as AsyncMutex, OwnedMutexGuard},
    task::AbortHandle,
};
use virtfleet_collector_core::{dial::DialTarget, pull_result::Failure};
use virtfleet_wire::ids::VmKey;

use super::connection::AgentConnection;
use crate::{fleet::Fleet, slots::CountedSlot};

/// What happened on the collector's port for agents.
#[derive(Debug)]
pub(crate) enum PushEvent {
    /// The agent of a VM has connected, and its certificate was verified.
    Connected(VmKey),
    /// The agent of a VM, which its address names, has connected and got no certificate.
    Refused(Box<(DialTarget, Failure)>),
}

/// The connection of one VM.
#[derive(Debug)]
pub(crate) struct PushedAgent {
    target: DialTarget,
    peer: SocketAddr,
    opened: Instant,
    closer: AbortHandle,
    connection: Arc<AsyncMutex<AgentConnection>>,
}

impl PushedAgent {
    /// A verified connection that occupies `slot` until it is closed.
    pub(crate) fn new(connection: AgentConnection, slot: CountedSlot, now: Instant) -> Self {
        let target = connection.target().clone();
        Self {
            peer: target.address,
            target,
            opened: now,
            closer: connection.closer(),
            connection: Arc::new(AsyncMutex::new(connection.in_slot(slot))),
        }
    }

    /// The VM, as of the time when the agent connected.
    pub(crate) fn target(&self) -> &DialTarget {
        &self.target
    }

    /// Waits until no one else uses the connection. The caller limits the time.
    pub(super) async fn lock(&self) -> OwnedMutexGuard<AgentConnection> {
        Arc::clone(&self.connection).lock_owned().await
    }

    fn is_open(&self) -> bool {
        !self.closer.is_finished()
    }
}

/// The connections of all VMs.
#[derive(Debug)]
pub(crate) struct PushedAgents {
    agents: Mutex<HashMap<VmKey, Arc<PushedAgent>>>,
    max_age: Duration,
}

impl PushedAgents {
    /// No connection yet. Each is used for `max_age`: the certificate is verified only when it is
    /// opened.
    pub(crate) fn new(max_age: Duration) -> Self {
        Self {
            agents: Mutex::default(),
            max_age,
        }
    }

    /// Adds a connection. It replaces the earlier one of its VM, which is closed when the pull or
    /// page that uses it has ended.
    pub(crate) fn insert(&self, agent: PushedAgent) {
        self.lock().insert(agent.target.key.clone(), Arc::new(agent));
    }

    /// The connection of a VM, if it may be used: it is open and not too old, and the VMI is still
    /// the one that connected.
    pub(crate) fn current(&self, vm: &VmKey, fleet: &Fleet, now: Instant) -> Option<Arc<PushedAgent>> {
        let agent = Arc::clone(self.lock().get(vm)?);
        let is_same = fleet
            .read(|index| index.pushed_target(vm, agent.peer))
            .is_ok_and(|target| target == agent.target);
        if is_same && agent.is_open() && self.is_fresh(&agent, now) {
            return Some(agent);
        }
        self.remove(&agent);
        None
    }

    /// Whether a connection may still be used at `at`.
    pub(super) fn is_fresh(&self, agent: &PushedAgent, at: Instant) -> bool {
        at.saturating_duration_since(agent.opened) < self.max_age
    }

    /// The connection that has replaced `agent`, if there is one.
    pub(super) fn successor(&self, agent: &Arc<PushedAgent>) -> Option<Arc<PushedAgent>> {
        let known = Arc::clone(self.lock().get(&agent.target.key)?);
        (!Arc::ptr_eq(&known, agent) && known.is_open() && known.target.uid == agent.target.uid)
            .then_some(known)
    }

    /// Closes a connection. One that has replaced it stays.
    pub(super) fn remove(&self, agent: &Arc<PushedAgent>) {
        agent.closer.abort();
        let mut agents = self.lock();
        if agents
            .get(&agent.target.key)
            .is_some_and(|known| Arc::ptr_eq(known, agent))
        {
            agents.remove(&agent.target.key);
        }
    }

    /// Closes the connection of a VM that has stopped.
    pub(super) fn remove_vm(&self, vm: &VmKey) {
        if let Some(agent) = self.lock().remove(vm) {
            agent.closer.abort();
        }
    }

    /// Closes all connections.
    pub(crate) fn clear(&self) {
        for (_, agent) in self.lock().drain() {
            agent.closer.abort();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<VmKey, Arc<PushedAgent>>> {
        self.agents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
