//! Network devices, protocols and sockets.

mod arp;
mod bonding;
mod conntrack;
mod devices;
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

use super::{Entry, Flag};
use devices::{DEVICES, EXCLUDE, INCLUDE, devices, query_error};

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
