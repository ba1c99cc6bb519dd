//! What there is of the guest's DNS. A file that is odd, or that we may not read, is as one that is not there: what depends on it is left out, and
//! the rest is found all the same.

mod files;
mod given;
mod kubelet;
mod links;
mod live;
mod owner;
mod processes;
mod sockets;
#[cfg(test)]
mod tests;

use std::path::Path;

use virtfleet_agent_core::{
    dns::{
        Seen, ours,
        seen::{File, Local},
    },
    identity::net,
};

use super::change::{last_good, original, resolv_conf};
use crate::{AddressesError, Commands, Roots, Tool, find_program, held_addresses, read_text};
pub(super) use files::FOLDERS;
pub(super) use processes::Processes;

/// The most of one file that is read.
const CAP: usize = 1 << 20;
/// resolved's upstreams of all links.
const UPSTREAMS: &str = "/run/systemd/resolve/resolv.conf";
/// Programs that a plan may need.
const TOOLS: [&str; 5] = ["systemctl", "resolvectl", "networkctl", "nmcli", "resolvconf"];
/// How long a program may take that is asked what it knows.
const ASKED: std::time::Duration = std::time::Duration::from_secs(5);

/// Why nothing can be said.
#[derive(Debug, thiserror::Error)]
pub enum ObserveDnsError {
    /// Without the guest's own addresses, no nameserver can be said not to be one of them.
    #[error("the guest's own addresses are not known")]
    Addresses(#[from] AddressesError),
    /// The same, for a tree that is not the running machine's.
    #[error("the guest's own addresses are not known: cannot read {0}")]
    Procfs(String),
}

/// All of it. Commands are run only where a program has what no file says: systemd's version, and what NetworkManager was given.
pub fn observe(roots: &Roots, commands: &dyn Commands, boot_id: &str) -> Result<Seen, ObserveDnsError> {
    let processes = Processes::of(roots);
    let now = resolv_conf(roots);
    let original = original(roots).unwrap_or_else(|error| {
        tracing::warn!(%error, "what was there before the first change is not known");
        None
    });
    // Ours stands in the place of what was there, and that says whose it is.
    let whose: &File = match &original {
        Some(original) if ours::taken_over(&now) => original,
        _ => &now,
    };
    let links = links::links(roots, commands, &processes);
    let network_manager = owner::network_manager_writes(roots, &links);
    let (owner, owner_because) = owner::owner(whose, &processes, network_manager);
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
    let text = |path: &str| read_text(&roots.root(path), CAP).ok();
    let last_good = last_good(roots).unwrap_or_else(|error| {
        tracing::warn!(%error, "the last good configuration is not known");
        None
    });
    Ok(Seen {
        boot_id: boot_id.to_owned(),
        owner,
        owner_because,
        upstreams: text(UPSTREAMS),
        told: links::told(roots),
        live,
        resolved,
        unsettled: links::unsettled(roots, &processes, &links, &locals),
        locals,
        nmcli,
        listeners: sockets::listeners(roots),
        files: files::files(roots, &links, kubelet.as_ref()),
        kubelet,
        profiles: given::profiles(roots),
        missing_tools: TOOLS
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

/// systemd's version, e.g. 252 of `systemd 252 (252.39-1~deb12u1)`.
fn version(commands: &dyn Commands) -> Option<u32> {
    let tool = Tool::new("systemctl").arg("--version").deadline(ASKED);
    let done = commands.check(&tool).ok()?;
    let word = done.stdout.split_whitespace().nth(1)?;
    word.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// nmcli's version, e.g. 1.42 of `nmcli tool, version 1.42.4`.
fn nmcli_version(commands: &dyn Commands) -> Option<(u32, u32)> {
    let tool = Tool::new("nmcli").arg("--version").deadline(ASKED);
    let done = commands.check(&tool).ok()?;
    let mut numbers = done.stdout.split_whitespace().last()?.split('.');
    let mut number = || numbers.next()?.parse().ok();
    Some((number()?, number()?))
}

/// Every address: from the kernel, or from the files of a tree that is not the running machine's.
fn locals(roots: &Roots) -> Result<Vec<Local>, ObserveDnsError> {
    if roots.procfs == Path::new("/proc") {
        let held = held_addresses()?.into_iter();
        let each = |(interface, addresses): (String, Vec<_>)| {
            addresses.into_iter().map(move |(address, _)| Local {
                address,
                interface: interface.clone(),
            })
        };
        return Ok(held.flat_map(each).collect());
    }
    let text = |name: &str| read_text(&roots.proc(name), CAP);
    let trie =
        text("net/fib_trie").map_err(|error| ObserveDnsError::Procfs(format!("net/fib_trie: {error}")))?;
    let route = text("net/route").unwrap_or_default();
    let six = text("net/if_inet6").unwrap_or_default();
    let all = net::ipv4(&trie, &route).into_iter().chain(net::ipv6(&six));
    Ok(all
        .map(|(address, _, interface)| Local { address, interface })
        .collect())
}
