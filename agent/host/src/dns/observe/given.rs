//! DNS settings that the platform provided on a link, from the files of network managers and DHCP
//! clients.

use std::{collections::BTreeSet, path::Path};

use virtfleet_agent_core::dns::{
    ResolvConf,
    given::{
        asks_dhcp4, dhclient_leases, dhcp_packet, dhcpcd, interfaces, network_file, networkd_lease, nm_lease,
        nmcli_devices, resolvconf_record, resolved_link, uses_dns,
    },
    ours,
    seen::{Given, Link, Manager},
};

use super::{MAX_FILE_BYTES, QUERY_TIMEOUT, processes::Processes};
use crate::{Commands, Roots, Tool, list, read_bounded, read_text};

/// Directories of drop-ins of `.network` files, highest precedence first.
const NETWORK_FOLDERS: [&str; 4] = [
    "/etc/systemd/network",
    "/run/systemd/network",
    "/usr/local/lib/systemd/network",
    "/usr/lib/systemd/network",
];
/// dhclient's lease directories: Debian, Fedora.
const DHCLIENT_FOLDERS: [&str; 2] = ["/var/lib/dhcp", "/var/lib/dhclient"];
/// resolvconf's record directories: Debian's resolvconf, openresolv.
const RECORD_FOLDERS: [&str; 3] = [
    "/run/resolvconf/interface",
    "/run/resolvconf/interfaces",
    "/run/resolvconf/keys",
];
/// Where dhcpcd's hook stores the received settings.
const DHCPCD_HOOK: &str = "/run/dhcpcd/hook-state/resolv.conf";
const DHCPCD_LEASES: &str = "/var/lib/dhcpcd";
const NM_LEASES: &str = "/var/lib/NetworkManager";
const INTERFACES: &str = "/etc/network/interfaces";
/// Maximum number of files that are read per directory.
const MAX_FILES: usize = 256;

/// Settings by link name, read once for all links.
pub(super) struct Sources {
    by_name: Vec<(String, Given)>,
}

impl Sources {
    pub(super) fn of(roots: &Roots, commands: &dyn Commands, processes: &Processes) -> Self {
        let mut all = Self { by_name: Vec::new() };
        all.dhclient(roots, processes);
        all.dhcpcd(roots, processes);
        all.interfaces(roots);
        all.records(roots);
        if processes.runs("NetworkManager") {
            all.nmcli(commands);
        }
        all
    }

    /// Settings of that link, each source once, leases first. Only the files of the link's manager
    /// are used, because leases of former clients stay on disk for years.
    pub(super) fn given(&self, roots: &Roots, link: &Link) -> Vec<Given> {
        let mut given = match link.manager {
            Manager::Networkd => of_networkd(roots, link),
            Manager::NetworkManager => self.of_network_manager(roots, link),
            Manager::Other => {
                let mut given = self.named(&link.name, |path| !path.contains("nmcli"));
                given.extend(of_resolved(roots, link));
                given
            }
        };
        given.retain(has_settings);
        given.sort_by_key(|given| given.source);
        given.dedup_by(|one, two| (one.source, &one.conf) == (two.source, &two.conf));
        given
    }

    fn named(&self, name: &str, path: impl Fn(&str) -> bool) -> Vec<Given> {
        let of_link = self
            .by_name
            .iter()
            .filter(|(link, given)| link == name && path(&given.path));
        of_link.map(|(_, given)| given.clone()).collect()
    }

    /// A lease is valid while dhclient runs for its interface.
    fn dhclient(&mut self, roots: &Roots, processes: &Processes) {
        for (path, text) in texts(roots, &DHCLIENT_FOLDERS) {
            for (name, given) in dhclient_leases(&text) {
                let runs = processes.args("dhclient").any(|args| args.contains(&name));
                if runs {
                    self.add(name, given, &path);
                }
            }
        }
    }

    /// The lease itself, if its hook wrote no files (resolvconf is used, or the hook is disabled).
    fn dhcpcd(&mut self, roots: &Roots, processes: &Processes) {
        if !processes.runs("dhcpcd") {
            return;
        }
        let mut hooked = Vec::new();
        for (path, text) in texts(roots, &[DHCPCD_HOOK]) {
            let (name, link) = names(&path);
            let given = dhcpcd(name, &text);
            hooked.push(link.to_owned());
            self.add(link.to_owned(), given, &path);
        }
        for name in list(&roots.root(DHCPCD_LEASES))
            .unwrap_or_default()
            .iter()
            .take(MAX_FILES)
        {
            let Some(link) = name
                .strip_suffix(".lease")
                .filter(|link| !hooked.iter().any(|one| one == link))
            else {
                continue;
            };
            let path = format!("{DHCPCD_LEASES}/{name}");
            let bytes = read_bounded(&roots.root(&path), MAX_FILE_BYTES).unwrap_or_default();
            if let Some(given) = dhcp_packet(&bytes) {
                self.add(link.to_owned(), given, &path);
            }
        }
    }

    /// Debian's ifupdown.
    fn interfaces(&mut self, roots: &Roots) {
        let mut all = texts(roots, &["/etc/network/interfaces.d"]);
        all.extend(
            read_text(&roots.root(INTERFACES), MAX_FILE_BYTES).map(|text| (INTERFACES.to_owned(), text)),
        );
        for (path, text) in all {
            for (name, given) in interfaces(&text) {
                self.add(name, given, &path);
            }
        }
    }

    /// What ifupdown and DHCP clients passed to resolvconf.
    fn records(&mut self, roots: &Roots) {
        for (path, text) in texts(roots, &RECORD_FOLDERS) {
            let (name, link) = names(&path);
            // Settings from ifupdown and from a client's lease were already added.
            let given = resolvconf_record(name, &text);
            let known = self
                .by_name
                .iter()
                .any(|(one, before)| one == link && before.conf == given.conf);
            if !known {
                self.add(link.to_owned(), given, &path);
            }
        }
    }

    fn nmcli(&mut self, commands: &dyn Commands) {
        let tool = Tool::new("nmcli")
            .args(["-t", "device", "show"])
            .deadline(QUERY_TIMEOUT);
        match commands.check(&tool) {
            Ok(done) => {
                for (name, all) in nmcli_devices(&done.stdout) {
                    for given in all {
                        self.add(name.clone(), given, "nmcli device show");
                    }
                }
            }
            Err(error) => tracing::debug!(%error, "reading NetworkManager's leases instead"),
        }
    }

    /// What NetworkManager reports, else its lease.
    fn of_network_manager(&self, roots: &Roots, link: &Link) -> Vec<Given> {
        let reported = self.named(&link.name, |path| path.contains("nmcli"));
        if !reported.is_empty() {
            return reported;
        }
        let Some(uuid) = &link.profile else {
            return reported;
        };
        let path = format!("{NM_LEASES}/internal-{uuid}-{}.lease", link.name);
        let text = read_text(&roots.root(&path), MAX_FILE_BYTES).unwrap_or_default();
        vec![Given {
            path,
            ..nm_lease(&text)
        }]
    }

    fn add(&mut self, link: String, given: Given, path: &str) {
        let path = path.to_owned();
        self.by_name.push((link, Given { path, ..given }));
    }
}

/// Names of all `.network` files. A masked one (link to `/dev/null`) is included; that makes no
/// difference.
pub(super) fn profiles(roots: &Roots) -> BTreeSet<String> {
    let all = NETWORK_FOLDERS
        .iter()
        .flat_map(|folder| list(&roots.root(folder)).unwrap_or_default());
    all.filter(|name| ends(name, "network")).collect()
}

/// A lease, and the link's `.network` file with drop-ins that are not the agent's. Settings from
/// router advertisements and DHCPv6 appear only in the active configuration, where they cannot be
/// distinguished from the agent's.
fn of_networkd(roots: &Roots, link: &Link) -> Vec<Given> {
    let path = format!("/run/systemd/netif/leases/{}", link.index);
    let lease = read_text(&roots.root(&path), MAX_FILE_BYTES)
        .ok()
        .map(|text| Given {
            path,
            ..networkd_lease(&text)
        });
    let mut given = Vec::from_iter(lease);
    let Some(profile) = &link.profile else {
        return given;
    };
    let mut text = read_text(&roots.root(profile), MAX_FILE_BYTES).unwrap_or_default();
    let drop_ins = drop_ins(roots, profile);
    let others: Vec<&str> = drop_ins
        .iter()
        .map(|(_, text)| text.as_str())
        .filter(|text| !ours::is_ours(text))
        .collect();
    let others = others.join("\n");
    text = format!("{text}\n{others}");
    if !uses_dns(&text, "DHCPv4") {
        // The MTU is used nevertheless.
        for lease in &mut given {
            lease.conf = ResolvConf::default();
        }
    }
    given.push(Given {
        path: profile.clone(),
        ..network_file(&text)
    });
    given
}

/// The drop-ins of a `.network` file by name.
fn drop_ins(roots: &Roots, profile: &str) -> Vec<(String, String)> {
    let name = profile.rsplit('/').next().unwrap_or_default();
    let mut drop_ins: Vec<(String, String)> = Vec::new();
    for folder in NETWORK_FOLDERS {
        for (path, text) in texts(roots, &[&format!("{folder}/{name}.d")]) {
            let file = path.rsplit('/').next().unwrap_or_default().to_owned();
            let counts = ends(&file, "conf") && !drop_ins.iter().any(|(one, _)| *one == file);
            if counts {
                drop_ins.push((file, text));
            }
        }
    }
    drop_ins.sort();
    drop_ins
}

/// True if networkd requests a DHCPv4 lease on a link and has none.
pub(super) fn waits_for_lease(roots: &Roots, link: &Link) -> bool {
    let Some(profile) = &link.profile else {
        return false;
    };
    let lease = format!("/run/systemd/netif/leases/{}", link.index);
    let mut text = read_text(&roots.root(profile), MAX_FILE_BYTES).unwrap_or_default();
    for (_, more) in drop_ins(roots, profile) {
        text = format!("{text}\n{more}");
    }
    asks_dhcp4(&text) && !roots.root(lease).exists()
}

/// Settings that another program set in systemd-resolved for a link that neither networkd nor
/// NetworkManager manages.
pub(super) fn of_resolved(roots: &Roots, link: &Link) -> Option<Given> {
    let path = format!("/run/systemd/resolve/netif/{}", link.index);
    let text = read_text(&roots.root(&path), MAX_FILE_BYTES).ok()?;
    let given = resolved_link(&text);
    Some(Given { path, ..given })
}

fn has_settings(given: &Given) -> bool {
    !given.conf.nameservers.is_empty()
        || !given.conf.searches.is_empty()
        || !given.routes.is_empty()
        || given.mtu.is_some()
}

/// True if systemd reads a file of that name: it compares the suffix, case-sensitive.
pub(super) fn ends(name: &str, extension: &str) -> bool {
    Path::new(name).extension().is_some_and(|end| end == extension)
}

/// A record's name, e.g. `eth0.dhclient`, and its link's, e.g. `eth0`. VLAN names contain dots too;
/// the last part is the program.
fn names(path: &str) -> (&str, &str) {
    let name = path.rsplit('/').next().unwrap_or_default();
    (name, name.rsplit_once('.').map_or(name, |(link, _)| link))
}

/// Every text file of these directories by path.
pub(super) fn texts(roots: &Roots, folders: &[&str]) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for folder in folders {
        for name in list(&roots.root(folder))
            .unwrap_or_default()
            .into_iter()
            .take(MAX_FILES)
        {
            let path = format!("{folder}/{name}");
            if let Ok(text) = read_text(&roots.root(&path), MAX_FILE_BYTES) {
                all.push((path, text));
            }
        }
    }
    all
}
