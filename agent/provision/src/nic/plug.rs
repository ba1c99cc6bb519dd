//! The running machine as the [`World`] of a run.

use std::{io, net::IpAddr, path::Path, time::Duration};

use virtfleet_agent_core::virtio::{Direction, Machine};
use virtfleet_agent_host::{Link, NicCalls, Roots, Traffic, virtio};

use super::World;

/// The machine at these roots.
pub fn real<'a>(roots: &'a Roots, calls: &'a dyn NicCalls) -> impl World + 'a {
    Real { roots, calls }
}

struct Real<'a> {
    roots: &'a Roots,
    calls: &'a dyn NicCalls,
}

impl World for Real<'_> {
    fn observe(&self) -> Machine {
        virtio::observe(self.roots, self.calls, true)
    }
    fn link(&self, nic: &str) -> Option<Link> {
        virtfleet_agent_host::link(self.roots, nic)
    }
    fn traffic(&self, nic: &str) -> Option<Traffic> {
        virtfleet_agent_host::traffic(self.roots, nic)
    }
    fn softirq(&self) -> Option<Duration> {
        virtfleet_agent_host::softirq(self.roots)
    }
    fn addresses(&self, nic: &str) -> Vec<IpAddr> {
        // The addresses come from the running kernel. They say nothing about another root
        // filesystem.
        if self.roots.sysfs != Path::new("/sys") {
            return Vec::new();
        }
        let held = virtfleet_agent_host::interface_addresses()
            .unwrap_or_default()
            .remove(nic);
        held.into_iter().flatten().map(|(address, _)| address).collect()
    }
    fn steer(&self, nic: &str, direction: Direction, queue: u32, cpus: &[u32]) -> io::Result<()> {
        virtfleet_agent_host::steer(self.roots, nic, direction, queue, cpus)
    }
    fn schedule(&self, disk: &str, scheduler: &str) -> io::Result<()> {
        virtfleet_agent_host::schedule(self.roots, disk, scheduler)
    }
    fn now(&self) -> Duration {
        Duration::from_nanos(virtfleet_agent_host::clock().monotonic_ns)
    }
    fn pause(&self, length: Duration) {
        virtfleet_agent_host::pause(length);
    }
}
