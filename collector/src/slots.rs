//! Limits on open connections, in all and per peer: of the relay, and of agents that connect to the
//! collector.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use prometheus_client::metrics::gauge::Gauge;

#[derive(Debug)]
pub(crate) struct ConnectionSlots {
    all: u32,
    per_peer: u32,
    used: Mutex<UsedSlots>,
}

#[derive(Debug, Default)]
struct UsedSlots {
    all: u32,
    by_peer: HashMap<IpAddr, u32>,
}

/// The slot of a connection, free when dropped.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    peer: IpAddr,
}

/// The slot of a connection that a gauge counts.
#[derive(Debug)]
pub(crate) struct CountedSlot {
    _slot: ConnectionSlot,
    open: Gauge,
}

impl CountedSlot {
    /// Counts a connection in `open` until the slot is dropped.
    pub(crate) fn new(slot: ConnectionSlot, open: Gauge) -> Self {
        open.inc();
        Self { _slot: slot, open }
    }
}

impl Drop for CountedSlot {
    fn drop(&mut self) {
        self.open.dec();
    }
}

impl ConnectionSlots {
    pub(crate) fn new(all: u32, per_peer: u32) -> Arc<Self> {
        Arc::new(Self {
            all,
            per_peer,
            used: Mutex::default(),
        })
    }

    /// A slot for a connection from `peer`; none if the peer, or all peers, have too many. No open
    /// connection is closed for a new one: nothing tells which peers are genuine.
    pub(crate) fn take(self: &Arc<Self>, peer: IpAddr) -> Option<ConnectionSlot> {
        let peer = peer.to_canonical();
        let mut used = self.lock();
        let of_peer = used.by_peer.get(&peer).copied().unwrap_or(0);
        if used.all >= self.all || of_peer >= self.per_peer {
            return None;
        }
        used.all += 1;
        used.by_peer.insert(peer, of_peer + 1);
        drop(used);
        Some(ConnectionSlot {
            slots: Arc::clone(self),
            peer,
        })
    }

    fn lock(&self) -> MutexGuard<'_, UsedSlots> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut used = self.slots.lock();
        used.all = used.all.saturating_sub(1);
        if let Some(of_peer) = used.by_peer.get_mut(&self.peer) {
            *of_peer -= 1;
            if *of_peer == 0 {
                used.by_peer.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn a_peer_and_all_peers_have_a_maximum() {
        let slots = ConnectionSlots::new(3, 2);
        let first = slots.take(peer(1)).unwrap();
        let _second = slots.take(peer(1)).unwrap();
        assert!(slots.take(peer(1)).is_none());
        assert!(
            slots.take("::ffff:10.0.0.1".parse().unwrap()).is_none(),
            "one peer"
        );
        let other = slots.take(peer(2)).unwrap();
        assert!(slots.take(peer(3)).is_none(), "all are taken");
        drop(other);
        let _third = slots.take(peer(3)).unwrap();
        drop(first);
        let _again = slots.take(peer(1)).unwrap();
        assert_eq!(
            slots.lock().by_peer.len(),
            2,
            "a peer without connections is forgotten"
        );
    }
}
