//! Limits on connections that have shown no certificate of a VM yet.
//!
//! A connection is admitted before its agent is known, so idle connections must not block others: a
//! full table closes the oldest connection of the address that has the most. An address that has
//! too many itself gets no further one.

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

    /// A place for a connection from `peer`; none if the peer has too many.
    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<UnverifiedTicket> {
        let mut table = self.lock();
        let of_peer = table.open.values().filter(|entry| entry.peer == peer).count();
        if of_peer >= self.per_peer {
            return None;
        }
        if table.open.len() >= self.max
            && let Some(number) = table.oldest_of_busiest()
            && let Some(entry) = table.open.remove(&number)
        {
            entry.cut.cancel();
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
    fn oldest_of_busiest(&self) -> Option<u64> {
        let mut counts = HashMap::<IpAddr, usize>::new();
        for entry in self.open.values() {
            *counts.entry(entry.peer).or_default() += 1;
        }
        let (busiest, _) = counts.into_iter().max_by_key(|(peer, count)| (*count, *peer))?;
        let numbers = self.open.iter().filter(|(_, entry)| entry.peer == busiest);
        numbers.map(|(number, _)| *number).min()
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
        let first = connections.admit(peer(1)).unwrap();
        let _second = connections.admit(peer(1)).unwrap();
        assert!(connections.admit(peer(1)).is_none());
        let _other = connections.admit(peer(2)).unwrap();
        drop(first);
        assert!(connections.admit(peer(1)).is_some());
    }

    #[test]
    fn a_full_table_closes_the_oldest_of_the_busiest_address() {
        let connections = UnverifiedConnections::new(4, 3);
        let attackers: Vec<_> = (0..3).map(|_| connections.admit(peer(1)).unwrap()).collect();
        let honest = connections.admit(peer(2)).unwrap();
        let also_honest = connections.admit(peer(3)).unwrap();
        assert!(attackers[0].cut.is_cancelled() && !attackers[1].cut.is_cancelled());
        assert!(!honest.cut.is_cancelled() && !also_honest.cut.is_cancelled());
        drop(attackers);
        assert_eq!(connections.lock().open.len(), 2);
    }
}
