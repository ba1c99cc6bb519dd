//! Reads the guest's DNS configuration. A malformed or unreadable file counts as missing: what
//! depends on it is left out, and the rest is read.

mod files;
mod given;
mod kubelet;
mod limits;
mod links;
mod live;
mod owner;
mod processes;
mod sockets;
#[cfg(test)]
mod tests;
mod unsettled;

use std::path::Path;

use virtfleet_agent_core::{
    dns::{
        Seen, ours,
        seen::{File, Local},
    },
    identity::net,
};

use super::change::{last_good, original, resolv_conf};
use crate::{AddressesError, Commands, Roots, Tool, find_program, interface_addresses, read_text};
pub(super) use files::FOLDERS;
use limits::{MAX_FILE_BYTES, QUERY_TIMEOUT};
pub use live::is_node;
pub(super) use processes::Processes;

/// systemd-resolved's upstream nameservers of all links.
const UPSTREAMS_FILE: &str = "/run/systemd/resolve/resolv.conf";
/// Programs that a plan may need.
const PROGRAMS: [&str; 5] = ["systemctl", "resolvectl", "networkctl", "nmcli", "resolvconf"];

/// Why the configuration is unknown.
#[derive(Debug, thiserror::Error)]
pub enum ObserveDnsError {
    /// The guest's own addresses are required to recognize its own nameservers.
    #[error("the guest's own addresses are unknown")]
    Addresses(#[from] AddressesError),
    /// The same for a file tree other than the running machine.
    #[error("the guest's own addresses are unknown: cannot read {0}")]
    Procfs(String),
}

/// Reads the configuration. Commands are run only for facts that no file has: systemd's version,
/// and the settings that NetworkManager received.
///
/// # Errors
/// The guest's own addresses are unknown.
pub fn observe(roots: &Roots, commands: &dyn Commands, boot_id: &str) -> Result<Seen, ObserveDnsError> {
    let processes = Processes::of(roots);
    let now = resolv_conf(roots);
    let original = original(roots).unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot read the original resolv.conf");
        None
    });
    // If the agent's file is in place, the original file determines the owner.
    let owned_file: &File = match &original {
        Some(original) if ours::taken_over(&now) => original,
        _ => &now,
    };
    let links = links::links(roots, commands, &processes);
    let network_manager = owner::network_manager_writes(roots, &links);
    let (owner, owner_because) = owner::owner(owned_file, &processes, network_manager);
    let locals = locals(roots)?;
    let resolved = processes
        .runs("systemd-resolved")
        .then(|| version(commands).unwrap_or_default());
    let kubelet = kubelet::kubelet(roots, &processes);
    let live = live::live(roots, commands, &processes, &links);
    let nmcli = processes
        .runs("NetworkManager")
        .then(|| nmcli_version(commands))
        .flatten();
    let text = |path: &str| read_text(&roots.root(path), MAX_FILE_BYTES).ok();
    let last_good = last_good(roots).unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot read the last good configuration");
        None
    });
    Ok(Seen {
        boot_id: boot_id.to_owned(),
        owner,
        owner_because,
        upstreams: text(UPSTREAMS_FILE),
        told: links::announced_by_networkd(roots),
        live,
        resolved,
        unsettled: unsettled::unsettled(roots, &processes, &links, &locals),
        locals,
        nmcli,
        listeners: sockets::listeners(roots),
        files: files::files(roots, &links, kubelet.as_ref()),
        kubelet,
        profiles: given::profiles(roots),
        missing_tools: PROGRAMS
            .iter()
            .filter(|tool| find_program(roots, tool).is_none())
            .map(|tool| (*tool).to_owned())
            .collect(),
        resolv_conf: now,
        links,
        original,
        last_good,
    })
}

/// systemd's version, e.g. 252 for `systemd 252 (252.39-1~deb12u1)`.
fn version(commands: &dyn Commands) -> Option<u32> {
    let tool = Tool::new("systemctl").arg("--version").deadline(QUERY_TIMEOUT);
    let done = commands.check(&tool).ok()?;
    let word = done.stdout.split_whitespace().nth(1)?;
    word.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// nmcli's version, e.g. 1.42 for `nmcli tool, version 1.42.4`.
fn nmcli_version(commands: &dyn Commands) -> Option<(u32, u32)> {
    let tool = Tool::new("nmcli").arg("--version").deadline(QUERY_TIMEOUT);
    let done = commands.check(&tool).ok()?;
    let mut numbers = done.stdout.split_whitespace().last()?.split('.');
    let mut number = || numbers.next()?.parse().ok();
    Some((number()?, number()?))
}

/// All addresses: from the kernel, or from the files of a tree other than the running machine.
fn locals(roots: &Roots) -> Result<Vec<Local>, ObserveDnsError> {
    if roots.procfs == Path::new("/proc") {
        let held = interface_addresses()?.into_iter();
        let each = |(interface, addresses): (String, Vec<_>)| {
            addresses.into_iter().map(move |(address, _)| Local {
                address,
                interface: interface.clone(),
            })
        };
        return Ok(held.flat_map(each).collect());
    }
    let text = |name: &str| read_text(&roots.proc(name), MAX_FILE_BYTES);
    let trie =
        text("net/fib_trie").map_err(|error| ObserveDnsError::Procfs(format!("net/fib_trie: {error}")))?;
    let route = text("net/route").unwrap_or_default();
    let six = text("net/if_inet6").unwrap_or_default();
    let all = net::ipv4(&trie, &route).into_iter().chain(net::ipv6(&six));
    Ok(all
        .map(|(address, _, interface)| Local { address, interface })
        .collect())
}
