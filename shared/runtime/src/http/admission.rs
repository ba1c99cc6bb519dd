//! Admission of connections: which are open, and which one is closed if there are too many.
//!
//! A new connection occupies a slot before its client is known. The server never waits for a free
//! slot, because idle connections could then block all others. Instead it closes a connection of
//! the peer with the most connections, first the oldest that has neither a verified client nor a
//! complete request.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio_util::sync::CancellationToken;

use super::Limits;

/// State of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No verified client and no complete request yet.
    New,
    /// Between two requests, or sending a response.
    Idle,
    /// A request is being processed.
    Busy,
}

#[derive(Debug)]
struct Open {
    peer: IpAddr,
    phase: Phase,
    /// Increases with each change of any connection's phase: the smallest is the longest in its
    /// phase.
    since: u64,
    cut: CancellationToken,
}

/// Open connections of one server.
#[derive(Debug)]
pub(super) struct Admission {
    connections: usize,
    new: usize,
    per_peer: usize,
    clock: AtomicU64,
    open: Mutex<HashMap<u64, Open>>,
}

impl Admission {
    pub(super) fn new(limits: &Limits) -> Arc<Self> {
        Arc::new(Self {
            connections: limits.connections,
            new: limits.new_connections,
            per_peer: limits.connections_per_peer,
            clock: AtomicU64::new(0),
            open: Mutex::default(),
        })
    }

    /// A slot for a connection from `peer`, for which another connection may be closed; none if all
    /// are busy.
    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<Ticket> {
        let peer = peer.to_canonical();
        let mut open = self.lock();
        let of_peer = open.values().filter(|one| one.peer == peer).count();
        let new = open.values().filter(|one| one.phase == Phase::New).count();
        let victim = if of_peer >= self.per_peer {
            Some(oldest(&open, Phase::New, peer).or_else(|| oldest(&open, Phase::Idle, peer)))
        } else if new >= self.new {
            let most = busiest(&open, |one| one.phase == Phase::New);
            Some(most.and_then(|peer| oldest(&open, Phase::New, peer)))
        } else if open.len() >= self.connections {
            let most = busiest(&open, |one| one.phase != Phase::Busy);
            Some(most.and_then(|peer| {
                oldest(&open, Phase::New, peer).or_else(|| oldest(&open, Phase::Idle, peer))
            }))
        } else {
            None
        };
        if let Some(victim) = victim {
            // Otherwise all slots are busy: no running request is aborted for a new connection.
            open.remove(&victim?)?.cut.cancel();
        }
        let id = self.tick();
        let cut = CancellationToken::new();
        open.insert(
            id,
            Open {
                peer,
                phase: Phase::New,
                since: id,
                cut: cut.clone(),
            },
        );
        Some(Ticket(Arc::new(Held {
            admission: Arc::clone(self),
            id,
            cut,
        })))
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection of `peer` that is longest in a phase.
fn oldest(open: &HashMap<u64, Open>, phase: Phase, peer: IpAddr) -> Option<u64> {
    open.iter()
        .filter(|(_, one)| one.phase == phase && one.peer == peer)
        .min_by_key(|(_, one)| one.since)
        .map(|(id, _)| *id)
}

/// The peer with the most connections that match.
fn busiest(open: &HashMap<u64, Open>, counts: impl Fn(&Open) -> bool) -> Option<IpAddr> {
    let mut by_peer: HashMap<IpAddr, usize> = HashMap::new();
    for one in open.values().filter(|one| counts(one)) {
        *by_peer.entry(one.peer).or_default() += 1;
    }
    by_peer
        .into_iter()
        .max_by_key(|(peer, count)| (*count, *peer))
        .map(|(peer, _)| peer)
}

/// The slot of a connection; clones share it, and it is free when the last is dropped.
#[derive(Debug, Clone)]
pub(super) struct Ticket(Arc<Held>);

#[derive(Debug)]
struct Held {
    admission: Arc<Admission>,
    id: u64,
    cut: CancellationToken,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.admission.lock().remove(&self.id);
    }
}

impl Ticket {
    /// Returns when the slot is needed for another connection.
    pub(super) async fn is_taken(&self) {
        self.0.cut.cancelled().await;
    }

    /// Whether the client is not known yet.
    pub(super) fn is_new(&self) -> bool {
        let open = self.0.admission.lock();
        open.get(&self.0.id).is_some_and(|one| one.phase == Phase::New)
    }

    /// The client is verified, or a response is complete.
    pub(super) fn idle(&self) {
        self.enter(Phase::Idle);
    }

    /// A request is complete.
    pub(super) fn busy(&self) {
        self.enter(Phase::Busy);
    }

    fn enter(&self, phase: Phase) {
        let since = self.0.admission.tick();
        if let Some(one) = self.0.admission.lock().get_mut(&self.0.id) {
            (one.phase, one.since) = (phase, since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission() -> Arc<Admission> {
        Admission::new(&Limits {
            connections: 6,
            new_connections: 4,
            connections_per_peer: 5,
            ..Limits::default()
        })
    }

    fn peer(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    fn is_cut(ticket: &Ticket) -> bool {
        ticket.0.cut.is_cancelled()
    }

    #[test]
    fn the_peer_with_most_new_connections_loses_its_oldest() {
        let admission = admission();
        let honest = admission.admit(peer(1)).unwrap();
        let idle: Vec<_> = (0..20).map(|_| admission.admit(peer(9)).unwrap()).collect();
        assert!(!is_cut(&honest), "its peer has fewer connections");
        assert_eq!(idle.iter().filter(|one| !is_cut(one)).count(), 3);
        assert!(is_cut(&idle[0]) && !is_cut(&idle[19]), "the oldest is closed");
        // A verified connection does not count as new.
        honest.idle();
        let next = admission.admit(peer(2)).unwrap();
        assert!(!is_cut(&next) && !is_cut(&honest));
        drop((idle, next, honest));
        assert!(admission.lock().is_empty(), "slots are free again");
    }

    #[test]
    fn idle_connections_are_closed_and_busy_ones_never() {
        let admission = admission();
        let held: Vec<_> = (1..=6)
            .map(|number| {
                let ticket = admission.admit(peer(number)).unwrap();
                ticket.busy();
                ticket
            })
            .collect();
        assert!(admission.admit(peer(7)).is_none(), "all are busy");
        held[2].idle();
        held[1].idle();
        let next = admission.admit(peer(7)).unwrap();
        let cut: Vec<_> = held.iter().map(is_cut).collect();
        assert_eq!(cut.iter().filter(|cut| **cut).count(), 1, "{cut:?}");
        assert!(cut[1] || cut[2]);
        drop(next);
    }

    #[test]
    fn connections_per_peer_are_limited() {
        let admission = admission();
        let held: Vec<_> = (0..5)
            .map(|_| {
                let ticket = admission.admit(peer(1)).unwrap();
                ticket.idle();
                ticket
            })
            .collect();
        let next = admission.admit("::ffff:10.0.0.1".parse().unwrap()).unwrap();
        assert!(is_cut(&held[0]) && !is_cut(&held[1]) && !is_cut(&next));
        assert!(admission.admit(peer(2)).is_some());
    }
}
