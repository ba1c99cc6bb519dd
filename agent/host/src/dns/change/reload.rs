//! Makes services apply the written configuration.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use nix::poll::{PollTimeout, poll};
use virtfleet_agent_core::dns::{
    given::{networkd_link_state, resolved_link},
    ours,
    plan::Service,
};

pub(super) use super::runtime::{RELOAD_TIMEOUT, RESOLVED, RUNTIME_TIMEOUT, programs_use_resolved};
use super::{super::observe::Processes, resolv_conf, resolved, runtime::nameservers};
use crate::{CommandError, Commands, Roots, Tool, list, read_text};

/// Makes a service reread its files.
fn request_reload(
    roots: &Roots,
    commands: &dyn Commands,
    service: Service,
    runs: bool,
) -> Result<(), CommandError> {
    let tool = |program: &str, args: &[&str]| Tool::new(program).args(args).deadline(RELOAD_TIMEOUT);
    let tool = match service {
        Service::Resolved => return resolved::reload(roots, commands, runs),
        Service::Networkd => networkd(roots),
        Service::NetworkManager => tool("nmcli", &["general", "reload"]),
        Service::Resolvconf => tool("resolvconf", &["-u"]),
    };
    commands.check(&tool).map(drop)
}

/// `networkctl` needs the bus, which starts only after the first stages of a boot; systemd's own
/// socket exists from the start.
fn networkd(roots: &Roots) -> Tool {
    let tool = if before_the_bus(roots) {
        Tool::new("systemctl").args(["try-restart", "systemd-networkd"])
    } else {
        Tool::new("networkctl").arg("reload")
    };
    tool.deadline(RELOAD_TIMEOUT)
}

/// The program of a service that may be missing: a former owner of resolv.conf may be stopped or
/// uninstalled.
fn program(service: Service) -> Option<&'static str> {
    match service {
        Service::Resolved => Some(RESOLVED),
        Service::Networkd => Some("systemd-networkd"),
        Service::NetworkManager => Some("NetworkManager"),
        Service::Resolvconf => None,
    }
}

fn runs(roots: &Roots, service: Service) -> bool {
    program(service).is_none_or(|program| Processes::of(roots).runs(program))
}

/// Reloads a service. A service that does not run reads the files when it starts.
pub(super) fn reload(roots: &Roots, commands: &dyn Commands, service: Service) -> Result<(), CommandError> {
    // Checked before the reload: if the service ends during it, the reload has failed.
    let runs = runs(roots, service);
    // Files left by a networkd that does not run are ignored.
    if service == Service::Networkd && runs && !before_the_bus(roots) {
        wait_until_links_are_configured(roots, commands);
    }
    match request_reload(roots, commands, service, runs) {
        Err(error) if !runs => {
            tracing::debug!(%error, "service is not running; not reloaded");
            Ok(())
        }
        result => result,
    }
}

/// Maximum time in milliseconds for networkd to start what `networkctl reload` requested; the
/// command returns before that.
const RELOAD_START_MS: u16 = 100;

/// Waits until networkd has started the requested reconfiguration, so that the next request does
/// not overlap it.
pub(super) fn wait_until_reload_starts(roots: &Roots, commands: &dyn Commands) {
    if !before_the_bus(roots) && runs(roots, Service::Networkd) {
        poll(&mut [], PollTimeout::from(RELOAD_START_MS)).ok();
        wait_until_links_are_configured(roots, commands);
    }
}

/// Waits, at most 5 s, until networkd has configured its links. networkd of systemd 252 releases
/// the lease when it reconfigures a link. If it must reconfigure while it acquires a lease for the
/// same address, the link may stay without a lease until the next request. A link may also never
/// get a lease.
fn wait_until_links_are_configured(roots: &Roots, commands: &dyn Commands) {
    let folder = roots.root("/run/systemd/netif/links");
    wait_until(commands, || {
        let names = list(&folder).unwrap_or_default();
        let text = |name: &String| read_text(&folder.join(name), 1 << 20).unwrap_or_default();
        let settled = |name| {
            let state = networkd_link_state(&text(name));
            // Without a carrier no lease arrives.
            ["off", "no-carrier"].contains(&state.carrier_state.as_str())
                || ["configured", "failed", "unmanaged", "linger"].contains(&state.admin_state.as_str())
        };
        names.iter().all(settled)
    });
}

/// Maximum time for a link's own nameservers to return.
const LINK_SERVERS_TIMEOUT: Duration = Duration::from_secs(5);
/// Poll interval in milliseconds.
const POLL_INTERVAL_MS: u16 = 50;

/// Waits, at most 5 s, until a link has its own nameservers again. `networkctl reload` returns
/// before links are reconfigured; if the agent's servers were removed from systemd-resolved before
/// that, it would have none. The platform may also have provided none.
pub(super) fn wait_until_links_have_servers(roots: &Roots, commands: &dyn Commands) {
    let folder = roots.root("/run/systemd/netif/links");
    if !list(&folder).unwrap_or_default().is_empty() {
        wait_until_one_has_servers(commands, &folder, |text| {
            !networkd_link_state(text).conf.nameservers.is_empty()
        });
    }
}

/// Waits, at most 5 s, until NetworkManager's own nameservers are in use again after the agent's
/// file was removed. NetworkManager writes `/etc/resolv.conf` before its reload returns, unless a
/// connection is being activated. It informs systemd-resolved later; if the agent's servers were
/// removed before that, systemd-resolved would have none. The platform may also have provided none.
pub(super) fn wait_until_network_manager_announces(roots: &Roots, commands: &dyn Commands) {
    let text = read_text(&roots.root(ours::NETWORK_MANAGER), 1 << 20).unwrap_or_default();
    let there = roots.root("/run/NetworkManager/devices").is_dir() && runs(roots, Service::NetworkManager);
    if ours::is_ours(&text) || !there {
        return;
    }
    if programs_use_resolved(roots) {
        let folder = roots.root("/run/systemd/resolve/netif");
        wait_until_one_has_servers(commands, &folder, |text| {
            !resolved_link(text).conf.nameservers.is_empty()
        });
    } else {
        wait_until(commands, || !nameservers(resolv_conf(roots).text).is_empty());
    }
}

/// Reverts what NetworkManager has set in systemd-resolved, which it does not revert itself after
/// the agent's file stopped it from announcing its nameservers. Returns descriptions of failures.
pub(super) fn revert_network_manager_announcements(roots: &Roots, commands: &dyn Commands) -> Vec<String> {
    let text = read_text(&roots.root(ours::NETWORK_MANAGER), 1 << 20).unwrap_or_default();
    if !ours::is_ours(&text) || !text.contains(ours::NETWORK_MANAGER_DNS_OFF) || before_the_bus(roots) {
        return Vec::new();
    }
    let managed = list(&roots.root("/run/NetworkManager/devices")).unwrap_or_default();
    let net = roots.sys("class/net");
    let mut links = list(&net).unwrap_or_default();
    links.retain(|name| {
        let index = read_text(&net.join(name).join("ifindex"), 64).unwrap_or_default();
        name != "lo" && managed.iter().any(|one| one == index.trim())
    });
    let failed = links.iter().filter_map(|link| revert(commands, link).err());
    failed.map(|error| error.to_string()).collect()
}

/// Waits until one of a directory's files, one per link, has servers.
fn wait_until_one_has_servers(commands: &dyn Commands, folder: &Path, has: impl Fn(&str) -> bool) {
    wait_until(commands, || {
        let names = list(folder).unwrap_or_default();
        let text = |name: &String| read_text(&folder.join(name), 1 << 20).unwrap_or_default();
        names.iter().any(|name| has(&text(name)))
    });
}

fn wait_until(commands: &dyn Commands, is: impl Fn() -> bool) {
    let until = Instant::now()
        + commands
            .left()
            .map_or(LINK_SERVERS_TIMEOUT, |left| LINK_SERVERS_TIMEOUT.min(left / 2));
    while !is() && Instant::now() < until {
        // Only a wait, without file descriptors.
        poll(&mut [], PollTimeout::from(POLL_INTERVAL_MS)).ok();
    }
}

/// True in early boot, before the bus exists: no runtime configuration can exist then.
pub(super) fn before_the_bus(roots: &Roots) -> bool {
    roots.root("/run/systemd/system").is_dir() && !roots.root("/run/dbus/system_bus_socket").exists()
}

/// Makes systemd-resolved drop the runtime configuration of a link.
pub(super) fn revert(commands: &dyn Commands, link: &str) -> Result<(), CommandError> {
    let tool = Tool::new("resolvectl")
        .args(["revert", link])
        .deadline(RUNTIME_TIMEOUT);
    commands.check(&tool).map(drop)
}

/// Stops networkd from passing a link's DNS settings to systemd-resolved. resolvectl goes to
/// networkd when systemd-resolved reports that the link is managed. It stays in effect until
/// networkd restarts, across renewals and reconfigurations.
pub(super) fn stop_announcing(commands: &dyn Commands, link: &str) -> Result<(), CommandError> {
    set(commands, link, &[], &[])
}

/// Makes networkd pass a link's own DNS settings again, or, if it has none, these.
pub(super) fn announce(
    roots: &Roots,
    commands: &dyn Commands,
    link: &str,
    nameservers: &[String],
    searches: &[String],
) -> Result<(), CommandError> {
    revert(commands, link)?;
    if nameservers.is_empty() || announces(roots, link) {
        return Ok(());
    }
    set(commands, link, nameservers, searches)
}

fn set(
    commands: &dyn Commands,
    link: &str,
    nameservers: &[String],
    searches: &[String],
) -> Result<(), CommandError> {
    for (verb, words) in [("dns", nameservers), ("domain", searches)] {
        let mut tool = Tool::new("resolvectl")
            .args([verb, link])
            .deadline(RUNTIME_TIMEOUT);
        // An empty word sets an empty list; no word only queries.
        let words = if words.is_empty() { &[String::new()] } else { words };
        tool = tool.args(words.iter().cloned());
        commands.check(&tool)?;
    }
    Ok(())
}

/// True if networkd passes nameservers of the link.
fn announces(roots: &Roots, link: &str) -> bool {
    let path = roots.sys("class/net").join(link).join("ifindex");
    let index = read_text(&path, 64).unwrap_or_default();
    let path = format!("/run/systemd/netif/links/{}", index.trim());
    let text = read_text(&roots.root(path), 1 << 20).unwrap_or_default();
    !networkd_link_state(&text).conf.nameservers.is_empty()
}

/// Flushes the cache of systemd-resolved.
pub(super) fn flush(commands: &dyn Commands) -> Result<(), CommandError> {
    let tool = Tool::new("resolvectl")
        .arg("flush-caches")
        .deadline(RUNTIME_TIMEOUT);
    commands.check(&tool).map(drop)
}
