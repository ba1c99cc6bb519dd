//! A Debian that boots: systemd as the first process of a container, with resolved, networkd and whatever else its root has.
//!
//! ```text
//! Root (unpacked once, never written to) ─┐
//! Options (files, programs, units) ───────┼─▶ Machine ── systemd-nspawn, in a PID, mount and control group namespace of its own
//! NetNs (crate::dns) ─────────────────────┘              sh, reboot, kill
//! ```
//! What is written lies in an overlay that goes with the machine. `/sys` is read-only, so there is no udev and no device of the host's.

mod agent;
mod names;
mod options;
mod program;
mod root;
mod running;
mod settings;
mod site;

pub use options::Options;
pub use root::Root;
pub use running::Machine;
pub use site::{INFRA, NODE_LOCAL, OTHER, ROUTER, Site};

use anyhow::{Result, ensure};

use crate::{bins, guest::Suite, skip};

const TIER: u8 = 2;

/// Root, `systemd-nspawn` and the root filesystem of a suite, for [`skip::need`].
pub fn needs(suite: Suite) -> Result<Root> {
    crate::dns::needs(&[])?;
    for tool in [
        "systemd-nspawn",
        "systemctl",
        "systemd-sysusers",
        "setpriv",
        "setsid",
    ] {
        ensure!(
            skip::program(tool).is_ok(),
            "{tool} is not installed (package {}); as root: tests/parts/setup.sh",
            match tool {
                "systemd-nspawn" => "systemd-container",
                "systemctl" | "systemd-sysusers" => "systemd",
                _ => "util-linux",
            }
        );
    }
    Root::debian(suite)
}

/// Plays a scenario of tier 2 on the root of a suite, with what all of them start: the agent, one pass of it that can be killed, real nameservers, DHCP.
/// Where one is missing it is recorded why the test is skipped.
pub fn play(test: &str, suite: Suite, scenario: impl FnOnce(&Root) -> Result<()>) -> Result<()> {
    let needed = || {
        bins::agent()?;
        bins::dns_stage()?;
        crate::dns::needs(&["unbound", "dnsmasq"])?;
        needs(suite)
    };
    match skip::need(TIER, test, needed())? {
        Some(root) => scenario(&root),
        None => Ok(()),
    }
}
