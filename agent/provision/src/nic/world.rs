//! The machine as a run reads and changes it, except for driver calls
//! ([`virtfleet_agent_host::NicCalls`]). It is a trait so that tests can replace it.

use std::{io, net::IpAddr, time::Duration};

use virtfleet_agent_core::virtio::{Direction, Machine};
use virtfleet_agent_host::{Link, Traffic};

/// A machine with network interfaces.
pub trait World {
    /// Observes everything, once.
    fn observe(&self) -> Machine;
    /// The link of an interface; none if it is gone.
    fn link(&self, nic: &str) -> Option<Link>;
    /// The traffic counters of an interface; none if it is gone.
    fn traffic(&self, nic: &str) -> Option<Traffic>;
    /// CPU time in soft interrupts since boot.
    fn softirq(&self) -> Option<Duration>;
    fn addresses(&self, nic: &str) -> Vec<IpAddr>;
    /// Sets the CPUs that work for a queue.
    ///
    /// # Errors
    /// The kernel rejects the CPUs.
    fn steer(&self, nic: &str, direction: Direction, queue: u32, cpus: &[u32]) -> io::Result<()>;
    /// Sets the I/O scheduler of a disk.
    ///
    /// # Errors
    /// The kernel rejects the scheduler.
    fn schedule(&self, disk: &str, scheduler: &str) -> io::Result<()>;
    /// A monotonic clock.
    fn now(&self) -> Duration;
    /// Sleeps for this long.
    fn pause(&self, length: Duration);
}
