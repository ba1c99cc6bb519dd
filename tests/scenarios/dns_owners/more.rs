//! Owners that only the root with all of them has.

use anyhow::Result;
use virtfleet_tests::{machine::Options, skip};

use super::{
    collision, crashes,
    kit::{Owner, owners},
    life, live,
};

const CONNECTION: &str = "[connection]\nid=eth0\nuuid=0a1b2c3d-0000-4000-8000-333344445555\ntype=ethernet\ninterface-name=eth0\n[ipv4]\nmethod=auto\n\
    [ipv6]\nmethod=disabled\n";
const NMCLI: &str = "nmcli -t -f DHCP4 device show eth0 | grep domain_name_servers | grep -q \"$1\"";
const LEASE: &str = "grep name-servers /var/lib/dhcp/dhclient.eth0.leases | tail -n 1 | grep -q \"$1\"";
const NETPLAN: &str = "network:\n  version: 2\n  ethernets:\n    eth0: {dhcp4: true, link-local: []}\n";
const INTERFACES: &str = "auto lo\niface lo inet loopback\nauto eth0\niface eth0 inet dhcp\n";
/// Debian's resolvconf cannot be installed beside systemd-resolved.
const RESOLVCONF: &str = "export DEBIAN_FRONTEND=noninteractive; dpkg --purge systemd-resolved && dpkg -i /opt/packages/resolvconf_*.deb";

fn connection(options: Options) -> Options {
    // NetworkManager takes no connection that others may read.
    let place = "[Unit]\nDefaultDependencies=no\nBefore=NetworkManager.service\n[Service]\nType=oneshot\n\
        ExecStart=/usr/bin/install -D -m 0600 /opt/eth0 /etc/NetworkManager/system-connections/eth0.nmconnection\n[Install]\n\
        WantedBy=NetworkManager.service\n";
    options
        .file("/opt/eth0", CONNECTION)
        .file("/etc/systemd/system/connection.service", place)
        .enable("connection.service")
        .enable("NetworkManager.service")
}

/// A plain file, which no program owns.
fn plain(options: Options) -> Options {
    options
        .file("/etc/resolv.conf", "")
        .mask("systemd-resolved.service")
}

fn network_manager() -> Owner {
    Owner {
        root: owners,
        options: || plain(connection(Options::default())),
        // Else it writes to systemd-resolved's resolvconf, whether that runs or not.
        prepare: "dpkg --purge systemd-resolved",
        named: ["by NetworkManager", "networkmanager"],
        unit: "NetworkManager.service",
        leased: NMCLI,
    }
}

fn network_manager_and_resolved() -> Owner {
    Owner {
        options: || connection(Options::default()).enable("systemd-resolved.service"),
        prepare: "",
        named: ["by systemd-resolved", ""],
        ..network_manager()
    }
}

fn netplan() -> Owner {
    Owner {
        root: owners,
        options: || {
            Options::default()
                .file("/etc/netplan/50-test.yaml", NETPLAN)
                .enable("systemd-networkd.service")
                .enable("systemd-resolved.service")
        },
        prepare: "",
        named: ["by systemd-resolved", ""],
        unit: "systemd-networkd.service",
        leased: "grep -hs ^DNS= /run/systemd/netif/leases/* | grep -q \"$1\"",
    }
}

fn interfaces(options: Options) -> Options {
    options
        .file("/etc/network/interfaces", INTERFACES)
        .enable("networking.service")
}

fn ifupdown() -> Owner {
    Owner {
        root: owners,
        options: || plain(interfaces(Options::default())),
        prepare: "",
        named: ["by /etc/resolv.conf", "dhclient runs"],
        unit: "networking.service",
        leased: LEASE,
    }
}

fn resolvconf() -> Owner {
    Owner {
        options: || interfaces(Options::default()),
        prepare: RESOLVCONF,
        named: ["by resolvconf", "resolvconf"],
        ..ifupdown()
    }
}

/// Every point of taking over and giving back, for NetworkManager: minutes. In every run,
/// dhclient's points are killed at.
fn deferred_crashes(test: &str, owner: &Owner) -> Result<()> {
    if skip::deferred(2, test, "make container-soak") {
        return Ok(());
    }
    crashes(test, owner)
}

macro_rules! scenarios {
    ($($name:ident: $play:ident($owner:expr);)*) => {
        $(#[test]
        fn $name() {
            $play(stringify!($name), &$owner).unwrap();
        })*
    };
}

scenarios! {
    tier2_network_manager: life(network_manager());
    tier2_network_manager_and_a_collision: collision(network_manager());
    tier2_network_manager_and_crashes: deferred_crashes(network_manager());
    tier2_network_manager_and_resolved: life(network_manager_and_resolved());
    tier2_network_manager_and_resolved_and_crashes: deferred_crashes(network_manager_and_resolved());
    tier2_netplan: life(netplan());
    tier2_netplan_and_a_collision: collision(netplan());
    tier2_netplan_on_a_live_node: live(netplan());
    tier2_ifupdown: life(ifupdown());
    tier2_resolvconf: life(resolvconf());
}
