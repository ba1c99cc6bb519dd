//! What a pass sees of the machine and does to it, besides what it says to drivers ([`virtfleet_agent_host::NicCalls`]): behind a trait, so that tests can answer instead.

use std::{io, net::IpAddr, time::Duration};

use virtfleet_agent_core::virtio::{Direction, Machine};
use virtfleet_agent_host::{Link, Traffic};

/// The machine.
pub trait World {
    /// Everything, once.
    fn observe(&self) -> Machine;
    /// The link of an interface; none when it is gone.
    fn link(&self, nic: &str) -> Option<Link>;
    /// What went through an interface; none when it is gone.
    fn traffic(&self, nic: &str) -> Option<Traffic>;
    /// CPU time in soft interrupts since boot.
    fn softirq(&self) -> Option<Duration>;
    /// The addresses that an interface holds.
    fn addresses(&self, nic: &str) -> Vec<IpAddr>;
    /// Says which CPUs work for a queue.
    fn steer(&self, nic: &str, direction: Direction, queue: u32, cpus: &[u32]) -> io::Result<()>;
    /// Sets the I/O scheduler of a disk.
    fn schedule(&self, disk: &str, scheduler: &str) -> io::Result<()>;
    /// A clock that never goes back.
    fn now(&self) -> Duration;
    /// Lets this long go by.
    fn pause(&self, length: Duration);
}
