//! Networks for DNS: namespaces with real resolvers in them, in-test ones for what no real one can be made to do, and a guest with a root of its own.
//!
//! ```text
//! test ── Net ── veth ──┬─ servers: unbound, dnsmasq (Resolver), Responder (a thread of the test)
//!                       └─ guest:   Guest (its own mounts and processes, chroot), the agent, dhclient, getent
//! ```
//! Nothing of the machine's is touched: links are made inside of namespaces, `/etc/resolv.conf` is that of the guest's root. Namespaces go with their
//! value, and with a watcher that outlives even a killed test; processes are tied to the test.

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

/// Root, network namespaces and the programs of these scenarios.
pub fn needs(programs: &[&str]) -> Result<()> {
    skip::root()?;
    for program in ["ip", "nsenter", "unshare", "getent"].iter().chain(programs) {
        resolver::program(program)?;
    }
    NetNs::new().context("network namespaces").map(drop)
}
