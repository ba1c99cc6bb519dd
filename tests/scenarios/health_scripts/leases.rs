//! The kubelets of a script: each renews its Lease in its own rhythm, and the collector reads all
//! of them in another one. So what was read last is seldom what was renewed last.

use virtfleet_collector_core::facts::{NodeLease, NodeLeases};

use super::script::{LeaseState, ScriptedLeases};

/// Time between two renewals, in seconds. They are between the reads.
const RENEW_INTERVAL: u64 = 10;
const RENEW_OFFSET: u64 = 5;
/// Time between two reads.
const READ_INTERVAL: u64 = 40;
/// The same for some time after an API server was away.
const READ_INTERVAL_AFTER_OUTAGE: u64 = 10;
const AFTER_OUTAGE: u64 = 40;
/// The first read of a collector, after its start.
const FIRST_READ: u64 = 10;
/// The user cluster of each kubelet, none for the infra cluster, and its Node.
const KUBELETS: [(Option<&str>, &str); 2] = [(Some("blue"), "worker-0"), (None, "infra-1")];

/// The kubelets of the Node and of the infra node, and when their Leases are read. All times are in
/// seconds since the first tick.
pub(super) struct Kubelets {
    states: [LeaseState; 2],
    renewed: [u64; 2],
    next_read: u64,
    /// Until when the Leases are read more often.
    often_until: u64,
}

impl Kubelets {
    /// Both live.
    pub(super) fn new() -> Self {
        Self {
            states: [LeaseState::Renewed; 2],
            renewed: [0; 2],
            next_read: READ_INTERVAL / 2,
            often_until: 0,
        }
    }

    /// What they do from now on. The Leases are read at once if an API server is back.
    pub(super) fn set(&mut self, leases: ScriptedLeases, now: u64) {
        let states = [leases.node, leases.host];
        let before = std::mem::replace(&mut self.states, states);
        let is_unread = |state: LeaseState| state == LeaseState::Unread;
        let mut both = before.into_iter().zip(states);
        if both.any(|(before, now)| is_unread(before) && !is_unread(now)) {
            self.often_until = now + AFTER_OUTAGE;
            self.next_read = now;
        }
    }

    /// Another collector starts.
    pub(super) fn restart_collector(&mut self, now: u64) {
        self.next_read = now + FIRST_READ;
        self.often_until = 0;
    }

    /// The kubelets that live renew their Leases, if it is time.
    pub(super) fn renew(&mut self, now: u64) {
        if now % RENEW_INTERVAL != RENEW_OFFSET {
            return;
        }
        for (state, renewed) in self.states.into_iter().zip(&mut self.renewed) {
            if state == LeaseState::Renewed {
                *renewed = now;
            }
        }
    }

    /// What the collector reads now, if it is time. `at_ms` makes milliseconds since 1970 of
    /// a time.
    pub(super) fn read(&mut self, now: u64, at_ms: impl Fn(u64) -> u64) -> Vec<NodeLeases> {
        if now < self.next_read {
            return Vec::new();
        }
        let interval = if now < self.often_until {
            READ_INTERVAL_AFTER_OUTAGE
        } else {
            READ_INTERVAL
        };
        self.next_read = now + interval;
        let all = KUBELETS.into_iter().zip(self.states).zip(self.renewed);
        let read = all.filter(|((_, state), _)| *state != LeaseState::Unread);
        let read = read.map(|(((cluster, node), _), renewed)| NodeLeases {
            cluster: cluster.map(|name| name.parse().unwrap()),
            leases: vec![NodeLease {
                node: node.parse().unwrap(),
                renewed_ms: at_ms(renewed),
                lasts_ms: Some(40_000),
            }],
        });
        read.collect()
    }
}
