//! Network devices, protocols and sockets.

mod arp;
mod bonding;
mod conntrack;
mod ethtool;
mod ethtool_names;
mod ipvs;
mod lnstat;
mod netclass;
mod netclass_rows;
mod netdev;
mod netdev_names;
mod netstat;
mod network_route;
mod nfs;
mod nfs_methods;
mod nfsd;
mod qdisc;
mod sockstat;
mod softnet;
mod tcpstat;
mod udp_queues;
mod xfrm;

use std::{io, path::Path};

use super::{CollectError, Entry, Flag};

use virtfleet_agent_host::{NetworkError, read_directory};

/// The collectors of this group by name.
pub(super) const ENTRIES: &[Entry] = &[
    Entry::on("arp", "IPv4 neighbors of each device", arp::new).with(DEVICES),
    Entry::on("bonding", "Devices behind each bond", bonding::new),
    Entry::on("conntrack", "Connections that netfilter tracks", conntrack::new),
    Entry::off(
        "ethtool",
        "Drivers, link modes and driver statistics",
        ethtool::new,
    )
    .with(&[EXCLUDE, INCLUDE, Flag::text("metrics-include", "metricsInclude")]),
    Entry::on("ipvs", "Services and servers of the IP virtual server", ipvs::new)
        .with(&[Flag::text("backend-labels", "backendLabels")]),
    Entry::off("lnstat", "Network stack cache statistics per CPU", lnstat::new),
    Entry::on("netclass", "Properties of network devices", netclass::new).with(&[
        Flag::text("ignored-devices", "ignored"),
        Flag::switch("ignore-invalid-speed", "ignoreInvalidSpeed"),
        Flag::switch("netlink", "netlink"),
    ]),
    Entry::on("netdev", "Traffic and errors of network devices", netdev::new).with(&[
        EXCLUDE,
        INCLUDE,
        Flag::switch("address-info", "addressInfo"),
        Flag::switch("label-ifalias", "labelIfalias"),
        Flag::switch("enable-detailed-metrics", "detailedMetrics"),
    ]),
    Entry::on("netstat", "Counters of IP, ICMP, TCP and UDP", netstat::new)
        .with(&[Flag::text("fields", "fields")]),
    Entry::off("network_route", "Routes of each device", network_route::new),
    Entry::on("nfs", "Requests of the NFS client", nfs::new),
    Entry::on("nfsd", "Requests to the NFS server", nfsd::new),
    Entry::off("qdisc", "Queueing disciplines of network devices", qdisc::new).with(DEVICES),
    Entry::on(
        "sockstat",
        "Sockets of each protocol, and their memory",
        sockstat::new,
    ),
    Entry::on("softnet", "Packets received per CPU", softnet::new),
    Entry::dashboards("tcpstat", "TCP sockets by state", tcpstat::new),
    Entry::on("udp_queues", "Queued bytes of UDP sockets", udp_queues::new),
    Entry::off("xfrm", "Errors of IPsec", xfrm::new),
];

const EXCLUDE: Flag = Flag::text("device-exclude", "deviceExclude");
const INCLUDE: Flag = Flag::text("device-include", "deviceInclude");
const DEVICES: &[Flag] = &[EXCLUDE, INCLUDE];

/// Maximum number of names in a directory; far more devices than a node has pods.
const MAX_DEVICES: usize = 8192;

/// Names in a directory except plain files, sorted.
fn names_of_devices(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in read_directory(directory)?.take(MAX_DEVICES) {
        let entry = entry?;
        if entry.file_type().is_ok_and(|kind| !kind.is_file()) {
            names.extend(entry.file_name().into_string().ok());
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// The devices under `class/net`. An empty directory is no data.
fn devices(directory: &Path) -> Result<Vec<String>, CollectError> {
    match names_of_devices(directory) {
        Ok(names) if names.is_empty() => Err(CollectError::no_data("there is no network device")),
        Ok(names) => Ok(names),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
            ) =>
        {
            Err(CollectError::no_data(format!(
                "cannot list {}",
                directory.display()
            )))
        }
        Err(error) => Err(CollectError::because(
            format!("cannot list {}", directory.display()),
            error,
        )),
    }
}

/// An error of a kernel query.
fn query_error(what: &'static str) -> impl FnOnce(NetworkError) -> CollectError {
    move |error| CollectError::because(format!("cannot query {what} from the kernel"), error)
}
