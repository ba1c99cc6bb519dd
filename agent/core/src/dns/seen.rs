//! What there is: who resolves names in the guest, by what, and what its addresses are.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use serde::{Deserialize, Serialize};

use super::resolv::ResolvConf;

/// Who writes `/etc/resolv.conf`, or answers behind it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    /// systemd-resolved, by its stub or by its list of servers.
    Resolved,
    /// NetworkManager.
    NetworkManager,
    /// resolvconf(8), of Debian or openresolv.
    Resolvconf,
    /// Nobody, or a DHCP client that writes it by itself (dhclient, dhcpcd): a plain file.
    #[default]
    File,
}

impl Owner {
    /// As a label of a metric.
    pub fn word(self) -> &'static str {
        match self {
            Self::Resolved => "resolved",
            Self::NetworkManager => "network-manager",
            Self::Resolvconf => "resolvconf",
            Self::File => "file",
        }
    }

    /// Its name in a sentence.
    pub fn name(self) -> &'static str {
        match self {
            Self::Resolved => "systemd-resolved",
            Self::NetworkManager => "NetworkManager",
            Self::Resolvconf => "resolvconf",
            Self::File => "/etc/resolv.conf",
        }
    }
}

/// Who configures a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Manager {
    /// systemd-networkd, with files of somebody's or with those that netplan has generated.
    Networkd,
    /// NetworkManager.
    NetworkManager,
    /// Something else (ifupdown, dhcpcd), or nothing.
    #[default]
    Other,
}

/// From where a link's nameservers come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// A DHCP lease.
    #[default]
    Dhcp,
    /// A router advertisement (RDNSS, RFC 8106).
    Advertised,
    /// The image's or the operator's own configuration of the link.
    Static,
    /// A `resolv.conf` that nobody generates.
    File,
}

/// Nameservers and search domains that the platform gave.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Given {
    /// From where.
    pub source: Source,
    /// The file in which it was found.
    pub path: String,
    /// What.
    pub conf: ResolvConf,
    /// The MTU that came with it (DHCP option 26).
    pub mtu: Option<u32>,
    /// Whether search domains came with it (DHCP option 119), which a client gets only when it asks for them.
    pub search_list: bool,
    /// Route-only domains (`~corp.example`), without `~`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<String>,
}

/// A link and what was given on it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Link {
    /// The kernel's name, e.g. `enp1s0`.
    pub name: String,
    /// The kernel's index.
    pub index: u32,
    /// Who configures it.
    pub manager: Manager,
    /// networkd: its `.network` file; NetworkManager: its connection's UUID.
    pub profile: Option<String>,
    /// Whether it has the default route.
    pub default_route: bool,
    /// What was given on it, in the order of [`Source`].
    pub given: Vec<Given>,
    /// What networkd tells systemd-resolved of it now.
    pub told: ResolvConf,
    /// Its route-only domains without `~`, whoever set them; `.` for all names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<String>,
}

/// A local address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Local {
    /// The address.
    pub address: IpAddr,
    /// The interface that has it, e.g. `nodelocaldns`, `kube-ipvs0`.
    pub interface: String,
}

impl Local {
    /// Whether others are reached from it: it is neither a loopback's nor of one link only.
    pub fn reaches_others(&self) -> bool {
        match self.address {
            IpAddr::V4(address) => !address.is_loopback() && !address.is_link_local(),
            IpAddr::V6(address) => !address.is_loopback() && !address.is_unicast_link_local(),
        }
    }
}

/// `/etc/resolv.conf`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct File {
    /// Where it links to; none for a plain file.
    pub link: Option<String>,
    /// Its text, through the link; none when there is none.
    pub text: Option<String>,
    /// Whether it cannot be replaced: immutable, a mount point, or on a filesystem that is read-only.
    pub fixed: bool,
    /// Why it cannot be replaced, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<Obstacle>,
}

/// Why a file cannot be replaced, and what would change that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Obstacle {
    /// In one sentence, with the path that is concerned.
    pub because: String,
    /// The command that removes it, e.g. `sudo chattr -i /etc/resolv.conf`.
    pub remedy: String,
}

/// What kubelet is told, by its configuration and by its command line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Kubelet {
    /// The file that says so, or `kubelet's command line`.
    pub path: String,
    /// `clusterDNS`.
    pub cluster_dns: Vec<IpAddr>,
    /// `clusterDomain`.
    pub cluster_domain: Option<String>,
    /// `resolvConf`; none when it is not said (`/etc/resolv.conf` then).
    pub resolv_conf: Option<String>,
    /// The same without what we have told it.
    pub others: Option<String>,
    /// The text of the file that [`Self::others`] names.
    pub text: Option<String>,
    /// Whether `--resolv-conf` says so, which counts more than any file.
    pub by_flag: bool,
    /// The file in which that flag stands, when it is found.
    pub flag_in: Option<String>,
    /// Its configuration file (`--config`), when it is there.
    pub config: Option<String>,
    /// The folder of drop-ins that it reads (`--config-dir`, from 1.28 on).
    pub config_dir: Option<String>,
    /// When its process started, `CLOCK_BOOTTIME`; none while it does not run.
    pub started_ns: Option<u64>,
}

/// All of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Seen {
    /// The boot.
    pub boot_id: String,
    /// Who owns `/etc/resolv.conf`.
    pub owner: Owner,
    /// Why we say so.
    pub owner_because: String,
    /// `/etc/resolv.conf`.
    pub resolv_conf: File,
    /// `/run/systemd/resolve/resolv.conf`: resolved's upstreams, all links together.
    pub upstreams: Option<String>,
    /// What networkd tells resolved of its links, all together: with what came by DHCPv6 and router advertisement, which no other file has, and without resolved's own
    /// `FallbackDNS=`.
    pub told: ResolvConf,
    /// Why no link may be configured anew: kubelet runs, or somebody keeps routes or rules here that networkd would drop. None when links may, or when a person asks.
    pub live: Option<String>,
    /// Whether systemd-resolved runs, and its version's number.
    pub resolved: Option<u32>,
    /// The version of NetworkManager's tool where NetworkManager runs, e.g. 1.42; none also where it does not say.
    pub nmcli: Option<(u32, u32)>,
    /// Links other than loopback, in the order of their index; those of containers (veth, bridges of a CNI) left out.
    pub links: Vec<Link>,
    /// Names of those that are up and that somebody is still at: an address or a nameserver may come on them yet.
    pub unsettled: Vec<String>,
    /// Names of the `.network` files that are there, whether or not a link has them now, e.g. `10-eth0.network`.
    pub profiles: BTreeSet<String>,
    /// Every address of every interface, the loopback's among them.
    pub locals: Vec<Local>,
    /// Addresses on which something listens on port 53, UDP; unspecified for all addresses.
    pub listeners: Vec<IpAddr>,
    /// Kubelet; none when nothing of it is there.
    pub kubelet: Option<Kubelet>,
    /// Files that matter, by path with their text: ours, and those at paths where we would write.
    pub files: BTreeMap<String, String>,
    /// Programs that a plan may need and that are not there.
    pub missing_tools: Vec<String>,
    /// What was there before our first change, when `/etc/resolv.conf` itself was taken over.
    pub original: Option<File>,
    /// The last choice that was verified, in any boot.
    pub last_good: Option<ResolvConf>,
}
