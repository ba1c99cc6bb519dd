//! Fixtures for the tests of this module.

use std::net::IpAddr;

use virtfleet_wire::settings::{DnsManage, DnsOption, DnsPolicy};

use super::{
    answers::{Health, Judged},
    asked::Asked,
    resolv::ResolvConf,
    seen::{File, Given, Link, Local, Manager, Owner, Seen, Source},
};

pub(super) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(super) fn ips(text: &str) -> Vec<IpAddr> {
    text.split_whitespace().map(ip).collect()
}

pub(super) fn strings(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

pub(super) fn option(word: &str) -> DnsOption {
    let (name, value) = word.split_once(':').map_or((word, None), |(a, b)| (a, Some(b)));
    DnsOption {
        name: name.to_owned(),
        value: value.map(str::to_owned),
    }
}

/// Configuration from space-separated lists.
pub(super) fn conf(nameservers: &str, searches: &str, options: &str) -> ResolvConf {
    ResolvConf {
        nameservers: ips(nameservers),
        searches: strings(searches),
        options: options.split_whitespace().map(option).collect(),
        ..ResolvConf::default()
    }
}

/// Default settings with `manage: auto`.
pub(super) fn asked() -> Asked {
    Asked {
        manage: DnsManage::Auto,
        policy: DnsPolicy::Default,
        host_network: false,
        nameservers: Vec::new(),
        searches: Vec::new(),
        options: Vec::new(),
        cluster_nameservers: Vec::new(),
        cluster_domain: "cluster.local".to_owned(),
        namespace: None,
        node_local: ips("169.254.20.10"),
        user_nameservers: Vec::new(),
        service_ranges: Vec::new(),
        probe_names: Vec::new(),
        probe_timeout_ms: 2_000,
        probe_interval_ms: 60_000,
    }
}

/// `ClusterFirst` with two nameservers of the infra cluster.
pub(super) fn cluster_first() -> Asked {
    Asked {
        policy: DnsPolicy::ClusterFirst,
        cluster_nameservers: ips("10.96.0.10 10.96.0.11"),
        namespace: Some("tenant".to_owned()),
        ..asked()
    }
}

/// Link managed by networkd, with a lease.
pub(super) fn link(nameservers: &str, searches: &str) -> Link {
    Link {
        name: "eth0".to_owned(),
        index: 2,
        manager: Manager::Networkd,
        profile: Some("/etc/systemd/network/10-eth0.network".to_owned()),
        default_route: true,
        given: vec![Given {
            source: Source::Dhcp,
            path: "/run/systemd/netif/leases/2".to_owned(),
            conf: conf(nameservers, searches, ""),
            search_list: true,
            ..Given::default()
        }],
        told: conf(nameservers, searches, ""),
        routes: Vec::new(),
    }
}

/// Guest with systemd-resolved and networkd that uses its lease.
pub(super) fn resolved(nameservers: &str, searches: &str) -> Seen {
    let conf = conf(nameservers, searches, "");
    Seen {
        boot_id: "boot".to_owned(),
        owner: Owner::Resolved,
        owner_because: "/etc/resolv.conf links to systemd-resolved's stub".to_owned(),
        resolv_conf: File {
            link: Some("/run/systemd/resolve/stub-resolv.conf".to_owned()),
            text: Some("nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch .\n".to_owned()),
            ..File::default()
        },
        upstreams: Some(conf.text("This is /run/systemd/resolve/resolv.conf")),
        told: conf,
        resolved: Some(255),
        links: vec![link(nameservers, searches)],
        locals: vec![local("127.0.0.1", "lo"), local("10.0.2.15", "eth0")],
        listeners: ips("127.0.0.53 127.0.0.54"),
        ..Seen::default()
    }
}

/// Guest with a plain file that dhclient writes.
pub(super) fn plain(nameservers: &str, searches: &str) -> Seen {
    let mut link = link(nameservers, searches);
    link.manager = Manager::Other;
    link.profile = None;
    link.given[0].path = "/var/lib/dhcp/dhclient.eth0.leases".to_owned();
    Seen {
        owner: Owner::File,
        owner_because: "/etc/resolv.conf is a plain file".to_owned(),
        resolv_conf: File {
            text: Some(conf(nameservers, searches, "").text("dhclient")),
            ..File::default()
        },
        links: vec![link],
        locals: vec![local("127.0.0.1", "lo"), local("10.0.2.15", "eth0")],
        ..Seen::default()
    }
}

/// Guest with NetworkManager.
pub(super) fn network_manager(nameservers: &str, searches: &str) -> Seen {
    let mut seen = plain(nameservers, searches);
    seen.owner = Owner::NetworkManager;
    seen.owner_because = "/etc/resolv.conf begins with NetworkManager's header".to_owned();
    seen.links[0].manager = Manager::NetworkManager;
    seen.links[0].profile = Some("11111111-2222-4333-8444-555555555555".to_owned());
    seen.links[0].given[0].path = "nmcli".to_owned();
    seen
}

pub(super) fn local(address: &str, interface: &str) -> Local {
    Local {
        address: ip(address),
        interface: interface.to_owned(),
    }
}

pub(super) fn judged(nameserver: &str, health: Health) -> Judged {
    Judged {
        nameserver: ip(nameserver),
        health,
        because: "of a test".to_owned(),
        micros: health.is_usable().then_some(900),
        answers: Vec::new(),
    }
}

/// Marks all of these as healthy.
pub(super) fn healthy(nameservers: &str) -> Vec<Judged> {
    nameservers
        .split_whitespace()
        .map(|one| judged(one, Health::Healthy))
        .collect()
}
