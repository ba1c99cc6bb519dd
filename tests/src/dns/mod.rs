//! Networks for DNS tests: namespaces with real resolvers, in-test responders for behaviour that no
//! real resolver can be configured to show, and a guest with its own root.
//!
//! ```text
//! test ── Net ── veth ──┬─ servers: unbound, dnsmasq (Resolver), Responder (a thread of the test)
//!                       └─ guest:   Guest (its own mounts and processes, chroot), the agent, dhclient
//! ```
//! The machine itself is not changed: links are created inside namespaces, and `/etc/resolv.conf`
//! is in the guest's root. Namespaces are removed when their value is dropped, or by a watcher
//! process if the test is killed. Processes end with the test.

mod guest;
mod netns;
mod resolver;
mod responder;
mod stage;

pub use guest::{Guest, Watched};
pub use netns::{NetNs, Sent, veth};
pub use resolver::{Resolver, Unbound, dhcp, dhcp_with, unbound_for_a_guest};
pub use responder::{Reply, Responder};
pub(crate) use stage::stage;
pub use stage::{Order, Outcome, Plays};

use anyhow::{Context as _, Result};

use crate::skip;

/// Requires root, network namespaces and the programs of these scenarios.
pub fn needs(programs: &[&str]) -> Result<()> {
    skip::root()?;
    for program in ["ip", "nsenter", "unshare", "getent"].iter().chain(programs) {
        resolver::program(program)?;
    }
    NetNs::new().context("network namespaces").map(drop)
}
