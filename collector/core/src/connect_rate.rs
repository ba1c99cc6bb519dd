//! Limits how often each address may connect. Pure: the caller passes the time.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
    time::{Duration, Instant},
};

/// Maximum addresses that are counted each. Others share one limit.
const MAX_COUNTED_PEERS: usize = 65_536;
/// Minimum time between two searches for addresses to forget.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// How often the address of a VM may connect. Its agent waits a second or more; other processes of
/// the guest have the same address, so a lower rate would let a slower one keep the agent out.
const RATE_OF_VM: ConnectRate = ConnectRate {
    interval: Duration::from_millis(250),
    burst: 10,
};
/// Open connections that one VM needs at most: the default of a relay's
/// `--forward.max-connections-per-peer`.
pub const CONNECTIONS_OF_VM: u32 = 8;
/// Minimum of how often another address may connect: a relay, for the agents behind it.
const MIN_RATE_OF_RELAY: ConnectRate = ConnectRate {
    interval: Duration::from_millis(20),
    burst: 200,
};
/// Time in which all VMs of the fleet may connect from one address, after a restart of the
/// collector. A fleet has a collector that can pull each VM once in an interval of 15 to 60 s, so
/// as many handshakes are affordable, even if an attacker causes them.
const RETURN_TIME: Duration = Duration::from_secs(20);
/// One in so many of these VMs may connect in a burst, before the interval counts.
const BURST_DIVISOR: usize = 4;
/// Stands for all addresses that are not counted each.
const OTHER_PEERS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// How often an address may connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectRate {
    /// Sustained: one connection in this time.
    pub interval: Duration,
    pub burst: u32,
}

impl ConnectRate {
    /// For an address of exactly one VM.
    pub fn of_vm() -> Self {
        RATE_OF_VM
    }

    /// For an address that may have so many open connections to a relay: several VMs may be behind
    /// one NAT, for which an admin raises the number.
    pub fn of_peer(max_open: u32) -> Self {
        let vms = (max_open / CONNECTIONS_OF_VM).max(1);
        Self {
            interval: RATE_OF_VM.interval / vms,
            burst: RATE_OF_VM.burst.saturating_mul(vms),
        }
    }

    /// For any other address: all VMs of the fleet may be behind one relay or NAT.
    pub fn of_relay(vm_count: usize) -> Self {
        let count = u32::try_from(vm_count).unwrap_or(u32::MAX).max(1);
        let burst = u32::try_from(vm_count / BURST_DIVISOR).unwrap_or(u32::MAX);
        Self {
            interval: (RETURN_TIME / count).min(MIN_RATE_OF_RELAY.interval),
            burst: burst.max(MIN_RATE_OF_RELAY.burst),
        }
    }
}

/// Token buckets, by address.
#[derive(Debug, Default)]
pub struct ConnectRates {
    /// When all connections so far would have been due at the sustained rate.
    bucket_times: HashMap<IpAddr, Instant>,
    swept: Option<Instant>,
}

impl ConnectRates {
    /// Whether `peer` may connect now.
    pub fn pass(&mut self, peer: IpAddr, rate: ConnectRate, now: Instant) -> bool {
        let peer = peer.to_canonical();
        let peer = if self.has_room_for(&peer, now) {
            peer
        } else {
            OTHER_PEERS
        };
        let due = self.bucket_times.get(&peer).map_or(now, |due| (*due).max(now));
        let ahead = due.saturating_duration_since(now);
        if ahead > rate.interval.saturating_mul(rate.burst.saturating_sub(1)) {
            return false;
        }
        self.bucket_times.insert(peer, due + rate.interval);
        true
    }

    /// Forgets addresses that have not connected for a while, if there are too many.
    fn has_room_for(&mut self, peer: &IpAddr, now: Instant) -> bool {
        if self.bucket_times.contains_key(peer) || self.bucket_times.len() < MAX_COUNTED_PEERS {
            return true;
        }
        let is_due = |at: Instant| now.saturating_duration_since(at) >= SWEEP_INTERVAL;
        if self.swept.is_none_or(is_due) {
            self.swept = Some(now);
            self.bucket_times.retain(|_, due| *due > now);
        }
        self.bucket_times.len() < MAX_COUNTED_PEERS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: ConnectRate = ConnectRate {
        interval: Duration::from_secs(1),
        burst: 3,
    };

    fn passed(rates: &mut ConnectRates, peer: &str, tries: usize, now: Instant) -> usize {
        let peer = peer.parse().unwrap();
        (0..tries).filter(|_| rates.pass(peer, RATE, now)).count()
    }

    #[test]
    fn each_address_has_a_burst_and_a_rate() {
        let (mut rates, now) = (ConnectRates::default(), Instant::now());
        assert_eq!(passed(&mut rates, "10.0.0.1", 100, now), 3);
        assert_eq!(
            passed(&mut rates, "::ffff:10.0.0.1", 1, now),
            0,
            "the same address"
        );
        assert_eq!(passed(&mut rates, "10.0.0.2", 100, now), 3, "another one");
        let later = now + Duration::from_secs(2);
        assert_eq!(passed(&mut rates, "10.0.0.1", 100, later), 2);
        let much_later = now + Duration::from_hours(1);
        assert_eq!(passed(&mut rates, "10.0.0.1", 100, much_later), 3, "one burst");
    }

    #[test]
    fn more_vms_behind_one_address_of_a_relay_connect_more_often() {
        for few in [1, CONNECTIONS_OF_VM, 2 * CONNECTIONS_OF_VM - 1] {
            assert_eq!(ConnectRate::of_peer(few), ConnectRate::of_vm());
        }
        let many = ConnectRate::of_peer(10 * CONNECTIONS_OF_VM);
        assert_eq!(many.interval * 10, RATE_OF_VM.interval);
        assert_eq!(many.burst, 10 * RATE_OF_VM.burst);
        assert!(ConnectRate::of_peer(u32::MAX).burst > 10);
    }

    /// Each VM may use a small part of what its relay may.
    #[test]
    fn one_vm_behind_a_relay_leaves_room_for_others() {
        let (vm, relay) = (ConnectRate::of_vm(), ConnectRate::of_relay(0));
        assert!(relay.interval * 10 <= vm.interval && relay.burst >= 10 * vm.burst);
    }

    #[test]
    fn a_relay_may_bring_back_the_whole_fleet_within_half_a_minute() {
        let small = ConnectRate::of_relay(0);
        assert_eq!((small, small.burst), (ConnectRate::of_relay(800), 200));
        let relay: IpAddr = "10.0.0.1".parse().unwrap();
        for count in [100u32, 1000, 10_000, 50_000] {
            let rate = ConnectRate::of_relay(count as usize);
            let (mut rates, start) = (ConnectRates::default(), Instant::now());
            // Each agent tries each second until it is admitted.
            let mut left = count;
            let mut seconds = 0;
            while left > 0 {
                let now = start + Duration::from_secs(seconds);
                let admitted = (0..left).filter(|_| rates.pass(relay, rate, now)).count();
                left -= u32::try_from(admitted).unwrap();
                seconds += 1;
            }
            assert!(seconds <= 30, "{count} agents took {seconds} s");
        }
        let rate = ConnectRate::of_relay(usize::MAX);
        assert!(rate.interval > Duration::ZERO, "{rate:?}");
    }

    #[test]
    fn many_addresses_are_bounded_and_forgotten() {
        let (mut rates, now) = (ConnectRates::default(), Instant::now());
        let peers = |range: std::ops::Range<u32>| range.map(|n| IpAddr::V4(Ipv4Addr::from_bits(n)));
        let count = u32::try_from(2 * MAX_COUNTED_PEERS).unwrap();
        let passed = peers(1..count)
            .filter(|peer| rates.pass(*peer, RATE, now))
            .count();
        assert_eq!(passed, MAX_COUNTED_PEERS + 3, "the others share one limit");
        assert!(rates.bucket_times.len() <= MAX_COUNTED_PEERS + 1);
        let later = now + Duration::from_mins(1);
        assert!(peers(count..count + 100).all(|peer| rates.pass(peer, RATE, later)));
        assert!(rates.bucket_times.len() <= 101);
    }
}
