//! Limits on connections that have shown no certificate of a VM yet.
//!
//! A connection is admitted before its agent is known, so idle connections must not block others: a
//! full table closes the oldest connection of the address that has the most. If an address has too
//! many itself, a further one closes the oldest of them if the address is that of one VM: a process
//! of the guest that holds connections open does not keep its agent out. Another address gets no
//! further one, because behind it may be agents of many VMs, whose handshakes must not be cut off.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio_util::sync::CancellationToken;

/// Connections without certificate.
#[derive(Debug)]
pub(super) struct UnverifiedConnections {
    max: usize,
    per_peer: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// By number; a lower number is older.
    open: HashMap<u64, UnverifiedEntry>,
    next: u64,
}

#[derive(Debug)]
struct UnverifiedEntry {
    peer: IpAddr,
    cut: CancellationToken,
}

/// The place of a connection, free when dropped.
#[derive(Debug)]
pub(super) struct UnverifiedTicket {
    connections: Arc<UnverifiedConnections>,
    number: u64,
    /// Cancelled if the place is needed for another connection.
    pub(super) cut: CancellationToken,
}

impl UnverifiedConnections {
    pub(super) fn new(max: usize, per_peer: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            per_peer,
            table: Mutex::default(),
        })
    }

    /// A place for a connection from `peer`; none if the peer has too many and is not one VM.
    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr, is_vm: bool) -> Option<UnverifiedTicket> {
        let mut table = self.lock();
        let of_peer = table.open.values().filter(|entry| entry.peer == peer).count();
        if of_peer >= self.per_peer {
            if !is_vm {
                return None;
            }
            table.cut_oldest_of(peer);
        } else if table.open.len() >= self.max
            && let Some(busiest) = table.busiest()
        {
            table.cut_oldest_of(busiest);
        }
        let (number, cut) = (table.next, CancellationToken::new());
        table.next += 1;
        table.open.insert(
            number,
            UnverifiedEntry {
                peer,
                cut: cut.clone(),
            },
        );
        drop(table);
        Some(UnverifiedTicket {
            connections: Arc::clone(self),
            number,
            cut,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn busiest(&self) -> Option<IpAddr> {
        let mut counts = HashMap::<IpAddr, usize>::new();
        for entry in self.open.values() {
            *counts.entry(entry.peer).or_default() += 1;
        }
        let (busiest, _) = counts.into_iter().max_by_key(|(peer, count)| (*count, *peer))?;
        Some(busiest)
    }

    /// Closes the oldest connection of an address.
    fn cut_oldest_of(&mut self, peer: IpAddr) {
        let numbers = self.open.iter().filter(|(_, entry)| entry.peer == peer);
        let oldest = numbers.map(|(number, _)| *number).min();
        if let Some(entry) = oldest.and_then(|number| self.open.remove(&number)) {
            entry.cut.cancel();
        }
    }
}

impl Drop for UnverifiedTicket {
    fn drop(&mut self) {
        self.connections.lock().open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn an_address_has_a_maximum() {
        let connections = UnverifiedConnections::new(10, 2);
        let first = connections.admit(peer(1), false).unwrap();
        let _second = connections.admit(peer(1), false).unwrap();
        assert!(connections.admit(peer(1), false).is_none());
        assert!(!first.cut.is_cancelled());
        let _other = connections.admit(peer(2), false).unwrap();
        drop(first);
        assert!(connections.admit(peer(1), false).is_some());
    }

    /// Its agent is as likely to be the newest as any other process of the guest.
    #[test]
    fn the_newest_connection_of_a_vm_replaces_its_oldest() {
        let connections = UnverifiedConnections::new(3, 2);
        let other = connections.admit(peer(2), true).unwrap();
        let held: Vec<_> = (0..2)
            .map(|_| connections.admit(peer(1), true).unwrap())
            .collect();
        let agent = connections.admit(peer(1), true).unwrap();
        assert!(held[0].cut.is_cancelled() && !held[1].cut.is_cancelled());
        assert!(!agent.cut.is_cancelled() && !other.cut.is_cancelled());
        assert_eq!(connections.lock().open.len(), 3);
        drop(held);
        assert_eq!(connections.lock().open.len(), 2);
    }

    #[test]
    fn a_full_table_closes_the_oldest_of_the_busiest_address() {
        let connections = UnverifiedConnections::new(4, 3);
        let attackers: Vec<_> = (0..3)
            .map(|_| connections.admit(peer(1), true).unwrap())
            .collect();
        let honest = connections.admit(peer(2), true).unwrap();
        let also_honest = connections.admit(peer(3), true).unwrap();
        assert!(attackers[0].cut.is_cancelled() && !attackers[1].cut.is_cancelled());
        assert!(!honest.cut.is_cancelled() && !also_honest.cut.is_cancelled());
        drop(attackers);
        assert_eq!(connections.lock().open.len(), 2);
    }
}
