//! Observed state: resolver and links of the guest, and its addresses.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use serde::{Deserialize, Serialize};

use super::resolv::ResolvConf;

/// Program that writes `/etc/resolv.conf`, or resolves behind it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    /// systemd-resolved, by its stub or by its list of nameservers.
    Resolved,
    NetworkManager,
    /// resolvconf(8) of Debian, or openresolv.
    Resolvconf,
    /// A plain file, which no program or a DHCP client (dhclient, dhcpcd) writes.
    #[default]
    File,
}

impl Owner {
    /// Name as a metric label.
    pub fn word(self) -> &'static str {
        match self {
            Self::Resolved => "resolved",
            Self::NetworkManager => "network-manager",
            Self::Resolvconf => "resolvconf",
            Self::File => "file",
        }
    }

    /// Name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Resolved => "systemd-resolved",
            Self::NetworkManager => "NetworkManager",
            Self::Resolvconf => "resolvconf",
            Self::File => "/etc/resolv.conf",
        }
    }
}

/// Program that configures a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Manager {
    /// systemd-networkd, including files that netplan generated.
    Networkd,
    NetworkManager,
    /// Another program (ifupdown, dhcpcd), or none.
    #[default]
    Other,
}

/// Origin of a link's nameservers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    #[default]
    Dhcp,
    /// A router advertisement (RDNSS, RFC 8106).
    Advertised,
    /// The image's or the admin's own configuration of the link.
    Static,
    /// A `resolv.conf` that is not generated.
    File,
}

/// Nameservers and search domains that the platform assigned.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Given {
    pub source: Source,
    /// File with the values.
    pub path: String,
    pub conf: ResolvConf,
    /// MTU from the same source (DHCP option 26).
    pub mtu: Option<u32>,
    /// Whether the source has a search list (DHCP option 119), which a client gets only on request.
    pub search_list: bool,
    /// Route-only domains (`~corp.example`), without `~`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<String>,
}

/// Link with its assigned values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Link {
    /// Kernel name, e.g. `enp1s0`.
    pub name: String,
    pub index: u32,
    /// Program that configures it.
    pub manager: Manager,
    /// networkd: path of its `.network` file; NetworkManager: UUID of its connection.
    pub profile: Option<String>,
    /// Whether it has the default route.
    pub default_route: bool,
    /// Assigned values, in the order of [`Source`].
    pub given: Vec<Given>,
    /// Values that networkd passes to systemd-resolved for it now.
    pub told: ResolvConf,
    /// Route-only domains from any source, without `~`; `.` for all names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Local {
    pub address: IpAddr,
    /// Interface with the address, e.g. `nodelocaldns`, `kube-ipvs0`.
    pub interface: String,
}

impl Local {
    /// Whether it can be the source address for other hosts: neither loopback nor link-local.
    pub fn is_routable(&self) -> bool {
        match self.address {
            IpAddr::V4(address) => !address.is_loopback() && !address.is_link_local(),
            IpAddr::V6(address) => !address.is_loopback() && !address.is_unicast_link_local(),
        }
    }
}

/// State of `/etc/resolv.conf`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct File {
    /// Target of the link; `None` for a plain file.
    pub link: Option<String>,
    /// Content, read through the link; `None` if it does not exist.
    pub text: Option<String>,
    /// Whether it cannot be replaced: immutable, a mount point, or on a read-only filesystem.
    pub fixed: bool,
    /// Reason why it cannot be replaced, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<Obstacle>,
}

/// Obstacle to replacing a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Obstacle {
    /// Description with the path, one sentence.
    pub because: String,
    /// The command that removes it, e.g. `sudo chattr -i /etc/resolv.conf`.
    pub remedy: String,
}

/// Kubelet's DNS configuration, from its configuration files and its command line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Kubelet {
    /// File with the configuration, or `kubelet's command line`.
    pub path: String,
    pub cluster_dns: Vec<IpAddr>,
    pub cluster_domain: Option<String>,
    /// `resolvConf`; `None` if it is not set (then `/etc/resolv.conf`).
    pub resolv_conf: Option<String>,
    /// `resolvConf` without the agent's drop-in.
    pub others: Option<String>,
    /// Content of the file that [`Self::others`] names.
    pub text: Option<String>,
    /// Whether the flag `--resolv-conf` sets it, which overrides every file.
    pub by_flag: bool,
    /// File that contains the flag, if found.
    pub flag_in: Option<String>,
    /// Configuration file (`--config`), if it exists.
    pub config: Option<String>,
    /// Folder of drop-ins (`--config-dir`, from 1.28 on).
    pub config_dir: Option<String>,
    /// Start time of the process, `CLOCK_BOOTTIME` in nanoseconds; `None` if it does not run.
    pub started_ns: Option<u64>,
}

/// Snapshot of the guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Seen {
    pub boot_id: String,
    /// Owner of `/etc/resolv.conf`.
    pub owner: Owner,
    /// How the owner was determined.
    pub owner_because: String,
    /// State of `/etc/resolv.conf`.
    pub resolv_conf: File,
    /// `/run/systemd/resolve/resolv.conf`: the upstreams of resolved on all links.
    pub upstreams: Option<String>,
    /// Values that networkd passes to resolved for all links. They include those from DHCPv6 and
    /// router advertisements, which no other file has, and exclude resolved's own `FallbackDNS=`.
    pub told: ResolvConf,
    /// Why links must not be reconfigured: kubelet runs, or another program added routes or rules
    /// that networkd would drop. `None` if they may be, or in a manual run.
    pub live: Option<String>,
    /// Major version of systemd-resolved; `None` if it does not run.
    pub resolved: Option<u32>,
    /// Version of NetworkManager, e.g. 1.42; `None` if it does not run or the version is unknown.
    pub nmcli: Option<(u32, u32)>,
    /// Links by index, without loopback and without those of containers (veth, bridges of a CNI).
    pub links: Vec<Link>,
    /// Names of links that are up but not completely configured: addresses or nameservers may still
    /// appear.
    pub unsettled: Vec<String>,
    /// Names of existing `.network` files, even if no link uses them now, e.g. `10-eth0.network`.
    pub profiles: BTreeSet<String>,
    /// All addresses of all interfaces, including loopback.
    pub locals: Vec<Local>,
    /// Addresses with a listener on UDP port 53; the unspecified address stands for all.
    pub listeners: Vec<IpAddr>,
    /// Kubelet's configuration; `None` if kubelet is not installed.
    pub kubelet: Option<Kubelet>,
    /// Relevant files by path: the agent's, and those at paths where the agent would write.
    pub files: BTreeMap<String, String>,
    /// Required programs that are not installed.
    pub missing_tools: Vec<String>,
    /// Original `/etc/resolv.conf`, if the agent replaced it.
    pub original: Option<File>,
    /// Last verified choice, of any boot.
    pub last_good: Option<ResolvConf>,
}
