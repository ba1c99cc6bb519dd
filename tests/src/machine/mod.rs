//! A Debian that boots in a container, with systemd as its first process, resolved, networkd and
//! everything else in its root.
//!
//! ```text
//! Root (unpacked once, read-only) ──────┐
//! Options (files, programs, units) ─────┼─▶ Machine ── systemd-nspawn, in its own PID, mount
//! NetNs (crate::dns) ───────────────────┘              and control group namespaces: sh, reboot, kill
//! ```
//! All writes go to an overlay that is removed with the machine. `/sys` is read-only, so there is
//! no udev and no device of the host.

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

/// Requires root, `systemd-nspawn` and the root filesystem of a suite; for [`skip::need`].
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

/// Runs a scenario of tier 2 on the root of a suite, with the programs that all of them use: the
/// agent, `dns-stage`, real nameservers, DHCP. If one is missing, records the reason and skips the
/// test.
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
