//! Has services take up what was written.

use std::{
    net::IpAddr,
    path::Path,
    time::{Duration, Instant},
};

use nix::poll::{PollTimeout, poll};
use virtfleet_agent_core::dns::{
    collision::STUBS,
    given::{networkd_link_state, resolved_link},
    ours,
    plan::Service,
    resolv,
};

use super::{super::observe::Processes, resolv_conf, resolved};
use crate::{CommandError, Commands, Roots, Tool, list, read_text};

/// How long a service may take to reload, or to restart.
pub(super) const RELOAD: Duration = Duration::from_secs(20);
/// How long forgetting may take.
pub(super) const FLUSH: Duration = Duration::from_secs(5);
/// Its unit.
pub(super) const RESOLVED: &str = "systemd-resolved";

/// Has it read its files.
fn tell(roots: &Roots, commands: &dyn Commands, service: Service, runs: bool) -> Result<(), CommandError> {
    let tool = |program: &str, args: &[&str]| Tool::new(program).args(args).deadline(RELOAD);
    let tool = match service {
        Service::Resolved => return resolved::reload(roots, commands, runs),
        Service::Networkd => networkd(roots),
        Service::NetworkManager => tool("nmcli", &["general", "reload"]),
        Service::Resolvconf => tool("resolvconf", &["-u"]),
    };
    commands.check(&tool).map(drop)
}

/// `networkctl` speaks over the bus, which comes up only after the first stages of a boot; systemd's own socket is there from the start.
fn networkd(roots: &Roots) -> Tool {
    let tool = if before_the_bus(roots) {
        Tool::new("systemctl").args(["try-restart", "systemd-networkd"])
    } else {
        Tool::new("networkctl").arg("reload")
    };
    tool.deadline(RELOAD)
}

/// The program of a service that does not have to be there: an old owner's may be stopped, or uninstalled with its tools.
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

/// Runs it. One that does not run reads what is there when it starts.
pub(super) fn reload(roots: &Roots, commands: &dyn Commands, service: Service) -> Result<(), CommandError> {
    // Before: one that a reload ends has failed.
    let runs = runs(roots, service);
    // What one that does not run has left says nothing.
    if service == Service::Networkd && runs && !before_the_bus(roots) {
        links_are_configured(roots, commands);
    }
    match tell(roots, commands, service, runs) {
        Err(error) if !runs => {
            tracing::debug!(%error, "it does not run");
            Ok(())
        }
        result => result,
    }
}

/// How long networkd may take to begin with what `networkctl reload` told it, which returns before.
const BEGUN: u16 = 100;

/// Waits until networkd has taken up what it was told, so that whoever tells it something next does not do so meanwhile.
pub(super) fn links_are_configured_anew(roots: &Roots, commands: &dyn Commands) {
    if !before_the_bus(roots) && runs(roots, Service::Networkd) {
        poll(&mut [], PollTimeout::from(BEGUN)).ok();
        links_are_configured(roots, commands);
    }
}

/// Waits until networkd is through with its links. That of systemd 252 gives a lease back when it configures a link anew, and when it is told to while it takes up a lease
/// of the same address, the link may be left without one until it is told again. Not longer than 5 s: a link may never get a lease.
fn links_are_configured(roots: &Roots, commands: &dyn Commands) {
    let folder = roots.root("/run/systemd/netif/links");
    wait_until(commands, || {
        let names = list(&folder).unwrap_or_default();
        let text = |name: &String| read_text(&folder.join(name), 1 << 20).unwrap_or_default();
        let through = |name| {
            let state = networkd_link_state(&text(name));
            // Without a carrier nothing comes.
            ["off", "no-carrier"].contains(&state.carrier_state.as_str())
                || ["configured", "failed", "unmanaged", "linger"].contains(&state.admin_state.as_str())
        };
        names.iter().all(through)
    });
}

/// How long a link's own nameservers may take to come back.
const BACK: Duration = Duration::from_secs(5);
/// How often that is looked at.
const AGAIN: u16 = 50;

/// Waits until a link has nameservers of its own again. `networkctl reload` returns before a link is configured anew, and whoever takes ours out of
/// resolved before that leaves it with none. Not longer than 5 s: the platform may have given none.
pub(super) fn links_have_servers(roots: &Roots, commands: &dyn Commands) {
    let folder = roots.root("/run/systemd/netif/links");
    if !list(&folder).unwrap_or_default().is_empty() {
        one_has_servers(commands, &folder, |text| {
            !networkd_link_state(text).conf.nameservers.is_empty()
        });
    }
}

/// Waits until what NetworkManager was given is in use again, once no file of ours is there that says otherwise. It writes `/etc/resolv.conf` before its reload returns,
/// unless a connection is just coming up; systemd-resolved it tells afterwards, and whoever takes ours out of that before then leaves it with none. Not longer than
/// 5 s: the platform may have given none.
pub(super) fn network_manager_tells(roots: &Roots, commands: &dyn Commands) {
    let text = read_text(&roots.root(ours::NETWORK_MANAGER), 1 << 20).unwrap_or_default();
    let there = roots.root("/run/NetworkManager/devices").is_dir() && runs(roots, Service::NetworkManager);
    if ours::is_ours(&text) || !there {
        return;
    }
    if programs_use_resolved(roots) {
        let folder = roots.root("/run/systemd/resolve/netif");
        one_has_servers(commands, &folder, |text| {
            !resolved_link(text).conf.nameservers.is_empty()
        });
    } else {
        wait_until(commands, || !nameservers(resolv_conf(roots).text).is_empty());
    }
}

/// Whether `/etc/resolv.conf` sends programs to systemd-resolved.
pub(super) fn programs_use_resolved(roots: &Roots) -> bool {
    let file = resolv_conf(roots);
    let by_link = file.link.is_some_and(|link| link.contains("systemd/resolve/"));
    by_link || nameservers(file.text).iter().any(|one| STUBS.contains(one))
}

fn nameservers(text: Option<String>) -> Vec<IpAddr> {
    resolv::parse(&text.unwrap_or_default()).nameservers
}

/// NetworkManager was just told again, by a file of ours, to keep its nameservers to itself. What systemd-resolved has of it, it does not take back. What did not work is told.
pub(super) fn network_manager_keeps(roots: &Roots, commands: &dyn Commands) -> Vec<String> {
    let text = read_text(&roots.root(ours::NETWORK_MANAGER), 1 << 20).unwrap_or_default();
    if !ours::is_ours(&text) || !text.contains(ours::SILENT) || before_the_bus(roots) {
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

/// Waits until one of the files of a folder has servers, which are there for each link.
fn one_has_servers(commands: &dyn Commands, folder: &Path, has: impl Fn(&str) -> bool) {
    wait_until(commands, || {
        let names = list(folder).unwrap_or_default();
        let text = |name: &String| read_text(&folder.join(name), 1 << 20).unwrap_or_default();
        names.iter().any(|name| has(&text(name)))
    });
}

fn wait_until(commands: &dyn Commands, is: impl Fn() -> bool) {
    let until = Instant::now() + commands.left().map_or(BACK, |left| BACK.min(left / 2));
    while !is() && Instant::now() < until {
        // A wait, and nothing else.
        poll(&mut [], PollTimeout::from(AGAIN)).ok();
    }
}

/// Whether there is nothing yet to speak to resolvectl with: then nobody was told anything at run time.
pub(super) fn before_the_bus(roots: &Roots) -> bool {
    roots.root("/run/systemd/system").is_dir() && !roots.root("/run/dbus/system_bus_socket").exists()
}

/// Has resolved forget what it was told of a link.
pub(super) fn revert(commands: &dyn Commands, link: &str) -> Result<(), CommandError> {
    let tool = Tool::new("resolvectl").args(["revert", link]).deadline(FLUSH);
    commands.check(&tool).map(drop)
}

/// Has networkd tell resolved nothing of a link of its own: resolvectl goes to networkd when resolved says that the link is managed. It holds until networkd starts anew,
/// through renewals and when the link is configured anew.
pub(super) fn quiet(commands: &dyn Commands, link: &str) -> Result<(), CommandError> {
    set(commands, link, &[], &[])
}

/// Has networkd tell of a link what it knows, or, when that is nothing, these.
pub(super) fn speak(
    roots: &Roots,
    commands: &dyn Commands,
    link: &str,
    nameservers: &[String],
    searches: &[String],
) -> Result<(), CommandError> {
    revert(commands, link)?;
    if nameservers.is_empty() || tells(roots, link) {
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
        let mut tool = Tool::new("resolvectl").args([verb, link]).deadline(FLUSH);
        // An empty word is an empty list; none at all only asks.
        let words = if words.is_empty() { &[String::new()] } else { words };
        tool = tool.args(words.iter().cloned());
        commands.check(&tool)?;
    }
    Ok(())
}

/// Whether networkd tells nameservers of the link.
fn tells(roots: &Roots, link: &str) -> bool {
    let path = roots.sys("class/net").join(link).join("ifindex");
    let index = read_text(&path, 64).unwrap_or_default();
    let path = format!("/run/systemd/netif/links/{}", index.trim());
    let text = read_text(&roots.root(path), 1 << 20).unwrap_or_default();
    !networkd_link_state(&text).conf.nameservers.is_empty()
}

/// Has resolved forget what it has cached.
pub(super) fn flush(commands: &dyn Commands) -> Result<(), CommandError> {
    let tool = Tool::new("resolvectl").arg("flush-caches").deadline(FLUSH);
    commands.check(&tool).map(drop)
}
