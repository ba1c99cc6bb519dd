//! Accepts connections of agents, and hands them to the scraper once their certificate is verified.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use virtfleet_collector_core::{
    connect_rate::{ConnectRate, ConnectRates},
    enrolment::VmProof,
    index::{FleetIndex, NoVmAtAddress},
    pull_result::FailureClass,
};
use virtfleet_runtime::throttle::Throttle;
use virtfleet_wire::ids::VmKey;

use super::{
    IngestMetrics,
    admission::{UnverifiedConnections, UnverifiedTicket},
    metrics::IngestResult,
};
use crate::{
    clock::unix_seconds,
    config::IngestSettings,
    enrolment::{ClaimEnd, Enroller},
    fleet::Fleet,
    leader::WriteAccess,
    scrape::{
        Puller,
        accept::{AcceptedAgent, UnverifiedPeer},
        pushed::{PushEvent, PushedAgent, PushedAgents},
    },
    slots::{ConnectionSlots, CountedSlot},
    tokens::JoinTokenBook,
};

/// Pause after a failed accept: out of files or memory, so a loop without a pause would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Minimum time between two log lines about refused connections.
const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// What an [`Ingest`] works with.
#[derive(Debug)]
pub(crate) struct IngestParts {
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) puller: Puller,
    /// None: agents without a certificate are refused.
    pub(crate) enroller: Option<Arc<Enroller>>,
    /// Join tokens, with which agents enrol from an address of no VM.
    pub(crate) tokens: Option<Arc<JoinTokenBook>>,
    /// Where verified connections go.
    pub(crate) agents: Arc<PushedAgents>,
    /// Notifies the scraper.
    pub(crate) events: mpsc::Sender<PushEvent>,
    pub(crate) settings: IngestSettings,
    /// Only the leader accepts agents: each has one connection.
    pub(crate) write_access: WriteAccess,
    pub(crate) metrics: IngestMetrics,
}

/// The port on which agents connect.
#[derive(Debug)]
pub(crate) struct Ingest {
    parts: IngestParts,
    all: Arc<ConnectionSlots>,
    unverified: Arc<UnverifiedConnections>,
    rates: Mutex<ConnectRates>,
    refusals: Throttle,
}

/// Why a connection was closed.
#[derive(Debug)]
struct ClosedConnection {
    result: IngestResult,
    reason: String,
}

impl ClosedConnection {
    fn new(result: IngestResult, reason: impl Into<String>) -> Self {
        Self {
            result,
            reason: reason.into(),
        }
    }
}

impl Ingest {
    pub(crate) fn new(parts: IngestParts) -> Self {
        let settings = &parts.settings;
        Self {
            all: ConnectionSlots::new(settings.max_connections, settings.max_connections),
            unverified: UnverifiedConnections::new(
                settings.max_unverified as usize,
                settings.max_unverified_per_peer as usize,
            ),
            rates: Mutex::default(),
            refusals: Throttle::new(LOG_INTERVAL),
            parts,
        }
    }

    /// Accepts connections until `stop`.
    pub(crate) async fn run(self, listener: TcpListener, stop: CancellationToken) {
        let own = Arc::new(self);
        let mut leadership = own.parts.write_access.changes();
        // Dropped at the end, with all handshakes.
        let mut handshakes = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => return,
                Ok(()) = leadership.changed() => {
                    if !own.parts.write_access.leads() {
                        own.parts.agents.clear();
                    }
                    continue;
                }
                Some(_) = handshakes.join_next() => continue,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
                    match own.admit(peer) {
                        Ok((slot, ticket)) => {
                            let own = Arc::clone(&own);
                            handshakes.spawn(async move { own.handle(stream, peer, slot, ticket).await });
                        }
                        Err(closed) => own.closed(peer, &closed),
                    }
                }
                Err(error) => {
                    if let Some(held) = own.refusals.pass(Instant::now()) {
                        tracing::warn!(%error, held, "cannot accept a connection of an agent");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Applies all limits before anything is sent.
    fn admit(&self, peer: SocketAddr) -> Result<(CountedSlot, UnverifiedTicket), ClosedConnection> {
        let IngestParts {
            fleet,
            write_access,
            metrics,
            ..
        } = &self.parts;
        if !write_access.leads() {
            let reason = "another collector leads; the agent must connect to that one";
            return Err(ClosedConnection::new(IngestResult::NotLeader, reason));
        }
        if !fleet.read(FleetIndex::synced) {
            let reason = "the inventory has not been read yet";
            return Err(ClosedConnection::new(IngestResult::NotReady, reason));
        }
        let is_vm = fleet.read(|index| index.vm_at(peer.ip())).is_ok();
        let rate = if is_vm {
            ConnectRate::of_vm()
        } else {
            ConnectRate::of_relay(fleet.read(FleetIndex::vm_count))
        };
        let passes = {
            let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
            rates.pass(peer.ip(), rate, Instant::now())
        };
        if !passes {
            let reason = "this address connects too often";
            return Err(ClosedConnection::new(IngestResult::TooFast, reason));
        }
        let full = || {
            let reason = "too many connections; see ingest.maxConnections and ingest.maxUnverifiedPerPeer";
            ClosedConnection::new(IngestResult::Full, reason)
        };
        let slot = self.all.take(peer.ip()).ok_or_else(full)?;
        let ticket = self.unverified.admit(peer.ip(), is_vm).ok_or_else(full)?;
        Ok((CountedSlot::new(slot, metrics.open.clone()), ticket))
    }

    async fn handle(&self, stream: TcpStream, peer: SocketAddr, slot: CountedSlot, ticket: UnverifiedTicket) {
        let cut = ticket.cut.clone();
        let served = tokio::select! {
            served = self.identify(stream, peer, slot) => served,
            () = cut.cancelled() => {
                let reason = "too many connections without certificate; see ingest.maxUnverified";
                Err(ClosedConnection::new(IngestResult::Full, reason))
            }
        };
        drop(ticket);
        match served {
            Ok(event) => {
                if let Some(event) = event {
                    // Fails only during shutdown.
                    drop(self.parts.events.send(event).await);
                }
            }
            Err(closed) => self.closed(peer, &closed),
        }
    }

    /// Finds out which VM has connected. A verified connection is kept; then the scraper must be
    /// notified.
    async fn identify(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        slot: CountedSlot,
    ) -> Result<Option<PushEvent>, ClosedConnection> {
        let IngestParts {
            fleet,
            puller,
            settings,
            agents,
            metrics,
            ..
        } = &self.parts;
        let timeout = settings.handshake_timeout.0;
        let locate = |vm: &VmKey| fleet.read(|index| index.pushed_target(vm, peer));
        let handshake = puller.accept(stream, peer, locate);
        let accepted = match tokio::time::timeout(timeout, handshake).await {
            Ok(Ok(accepted)) => accepted,
            Ok(Err(failure)) => {
                let result = IngestResult::Failed(failure.class);
                return Err(ClosedConnection::new(result, failure.message()));
            }
            Err(_) => {
                let result = IngestResult::Failed(FailureClass::Timeout);
                let reason = format!("no handshake within {timeout:?}");
                return Err(ClosedConnection::new(result, reason));
            }
        };
        match accepted {
            AcceptedAgent::Verified(connection) => {
                let vm = connection.target().key.clone();
                tracing::debug!(%peer, %vm, "agent connected");
                agents.insert(PushedAgent::new(*connection, slot, Instant::now()));
                metrics.ended(IngestResult::Verified);
                Ok(Some(PushEvent::Connected(vm)))
            }
            AcceptedAgent::Unverified(unverified) => self.enrol(*unverified, peer).await,
        }
    }

    /// Enrols an agent whose certificate is not used, if its address, a join token or a node proof
    /// says which VM it is. The connection ends in either case.
    async fn enrol(
        &self,
        mut unverified: UnverifiedPeer,
        peer: SocketAddr,
    ) -> Result<Option<PushEvent>, ClosedConnection> {
        let rejected = unverified.rejected.clone();
        let refused = |why: &str| {
            let reason = format!("{}; {why}", rejected.message());
            ClosedConnection::new(IngestResult::Failed(rejected.class), reason)
        };
        let Some(enroller) = &self.parts.enroller else {
            return Err(refused("this collector issues no certificates"));
        };
        let at_address = self.parts.fleet.read(|index| index.vm_at(peer.ip()));
        let (vm, claimed) = match (at_address, &self.parts.tokens) {
            (Ok(vm), _) => (vm, None),
            (Err(error), tokens) => {
                let claimed = match tokens {
                    Some(tokens) => enroller.claim(&mut unverified, peer.ip(), tokens).await,
                    None => ClaimEnd::Nothing,
                };
                match (claimed, error) {
                    (ClaimEnd::Vm(claimed), _) => (claimed.vm.clone(), Some(claimed)),
                    (ClaimEnd::Refused(failure), _) => {
                        let result = IngestResult::Failed(FailureClass::Enrolment);
                        return Err(ClosedConnection::new(result, failure.message()));
                    }
                    (ClaimEnd::Nothing, NoVmAtAddress::Unknown) => {
                        return Err(refused(
                            "no running VM has its address, and it shows neither join token nor node proof",
                        ));
                    }
                    (ClaimEnd::Nothing, NoVmAtAddress::Shared) => {
                        let reason =
                            "several VMs have its address, and it shows neither join token nor node proof";
                        return Err(ClosedConnection::new(IngestResult::AddressShared, reason));
                    }
                }
            }
        };
        if unverified.named.as_ref().is_some_and(|named| *named != vm) {
            return Err(refused(&format!(
                "its certificate is not of {vm}, so it gets no other"
            )));
        }
        let proof = match &claimed {
            Some(_) => VmProof::Shown,
            None => VmProof::Address,
        };
        let target = self.parts.fleet.read(|index| index.pushed_target(&vm, peer));
        let target = target.map_err(|failure| {
            let result = IngestResult::Failed(failure.class);
            ClosedConnection::new(result, failure.message())
        })?;
        let tokens = self.parts.tokens.as_deref();
        let ended = enroller.enrol_over(&target, proof, unverified, tokens).await;
        let Some(failure) = ended.failure else {
            let token = claimed.and_then(|claimed| claimed.token);
            if let (Some(tokens), Some(id)) = (&self.parts.tokens, token) {
                tokens.used(&id, unix_seconds());
            }
            self.parts.metrics.ended(IngestResult::Enrolled);
            return Ok(None);
        };
        let closed = ClosedConnection::new(IngestResult::Failed(failure.class), failure.message());
        self.closed(peer, &closed);
        // Otherwise the certificate was not used, and the agent has replaced its key.
        let is_refusal = failure.enrolment.is_some();
        Ok(is_refusal.then(|| PushEvent::Refused(Box::new((target, failure)))))
    }

    fn closed(&self, peer: SocketAddr, closed: &ClosedConnection) {
        self.parts.metrics.ended(closed.result);
        if let Some(held) = self.refusals.pass(Instant::now()) {
            let result = closed.result.as_str();
            tracing::warn!(%peer, result, held, "connection of an agent closed: {}", closed.reason);
        }
    }
}
