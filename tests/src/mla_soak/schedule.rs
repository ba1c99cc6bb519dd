//! A seeded schedule of faults.

use std::time::Duration;

use super::proxy::ProxyMode;
use crate::sim::Random;

/// A fault while samples are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum SoakFault {
    /// The collector is killed with SIGKILL, and started again at once.
    KillCollector,
    /// The receiver with this index is killed.
    KillReceiver(usize),
    /// The network of the tenant with this index, or its receiver, has a fault.
    Network(usize, ProxyMode),
    /// The filesystem of the queues has no space left.
    FullDisk,
}

/// A fault, and when it begins and ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Event {
    /// Time from the start of the schedule.
    pub(super) at: Duration,
    /// Duration of the fault.
    pub(super) lasts: Duration,
    /// The fault.
    pub(super) fault: SoakFault,
}

/// Shortest and longest duration of a fault, in seconds.
const LENGTH: (f64, f64) = (1.5, 6.0);

/// Faults of each kind within `length`, in order: `kills` of the collector and of receivers, twice
/// as many faults of networks, and at least one full disk.
pub(super) fn schedule(
    seed: u64,
    kills: usize,
    tenants: usize,
    receivers: usize,
    length: Duration,
) -> Vec<Event> {
    let mut random = Random::new(seed);
    let modes = [
        ProxyMode::LoseAnswer,
        ProxyMode::Cut,
        ProxyMode::Status(503),
        ProxyMode::Slow,
        ProxyMode::Status(429),
        ProxyMode::Stall,
    ];
    let mut faults = vec![SoakFault::FullDisk; kills.div_ceil(10).max(1)];
    for number in 0..kills {
        faults.push(SoakFault::KillCollector);
        faults.push(SoakFault::KillReceiver(number % receivers.max(1)));
        for offset in 0..2 {
            let mode = modes[(2 * number + offset) % modes.len()];
            faults.push(SoakFault::Network(random.below(tenants), mode));
        }
    }
    let mut events: Vec<Event> = faults
        .into_iter()
        .map(|fault| Event {
            at: length.mul_f64(random.between(0.0, 0.95)),
            lasts: Duration::from_secs_f64(random.between(LENGTH.0, LENGTH.1)),
            fault,
        })
        .collect();
    events.sort_by_key(|event| event.at);
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides_and_each_kind_occurs() {
        let length = Duration::from_mins(1);
        let events = schedule(1, 5, 3, 2, length);
        assert_eq!(events, schedule(1, 5, 3, 2, length));
        assert_ne!(events, schedule(2, 5, 3, 2, length));
        let count = |holds: fn(SoakFault) -> bool| events.iter().filter(|event| holds(event.fault)).count();
        assert_eq!(count(|fault| fault == SoakFault::KillCollector), 5);
        assert_eq!(count(|fault| matches!(fault, SoakFault::KillReceiver(_))), 5);
        assert_eq!(count(|fault| matches!(fault, SoakFault::Network(..))), 10);
        assert_eq!(count(|fault| fault == SoakFault::FullDisk), 1);
        assert!(events.is_sorted_by_key(|event| event.at));
    }
}
