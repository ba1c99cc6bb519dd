//! The MTU that DHCP gave, from whoever has asked for it.
//!
//! | who | where | counts while |
//! |---|---|---|
//! | systemd-networkd | `/run/systemd/netif/leases/<index>` | it is there: networkd takes a lease away that is given back |
//! | NetworkManager up to 1.24 | `/var/lib/NetworkManager/internal-<uuid>-<interface>.lease` | the connection is the device's; only root can read it |
//! | dhclient | `/var/lib/dhcp`, `/var/lib/dhclient`, `/var/lib/NetworkManager` | dhclient runs for the interface |
//! | dhcpcd | `/var/lib/dhcpcd/<interface>.lease` | dhcpcd runs |
//!
//! What cannot be read is none here and no note: root's pass reads it and writes it down (`nic.json`).

use virtfleet_agent_core::{
    dns::given::{dhclient_leases, dhcp_packet, networkd_lease, nm_device, nm_lease},
    virtio::Nic,
};

use crate::{Roots, attribute_names, read_bounded, read_text};

const NETWORKD: &str = "/run/systemd/netif/leases";
const NM: &str = "/var/lib/NetworkManager";
/// Where dhclient keeps its leases: Debian, Fedora, under NetworkManager.
const DHCLIENT: [&str; 3] = ["/var/lib/dhcp", "/var/lib/dhclient", NM];
const DHCPCD: &str = "/var/lib/dhcpcd";
/// A lease file grows with each renewal until its client starts again.
const CAP: usize = 1 << 20;
/// Files of a folder that are looked at.
const FILES: usize = 64;

/// The leases that are the same for all interfaces.
pub(super) struct Leases<'a> {
    roots: &'a Roots,
    /// dhclient's: each interface with the MTU of its last lease, where that gives one.
    dhclient: Vec<(String, u32)>,
}

impl<'a> Leases<'a> {
    pub(super) fn of(roots: &'a Roots) -> Self {
        let mut dhclient = Vec::new();
        for folder in DHCLIENT {
            let folder = roots.root(folder);
            let names = attribute_names(&folder);
            let ours = |name: &&String| name.starts_with("dhclient") && !name.starts_with("dhclient6");
            for name in names.iter().filter(ours).take(FILES) {
                if let Ok(text) = read_text(&folder.join(name), CAP) {
                    let leases = dhclient_leases(&text).into_iter();
                    dhclient.extend(leases.filter_map(|(interface, given)| Some((interface, given.mtu?))));
                }
            }
        }
        Self { roots, dhclient }
    }

    /// The MTU that DHCP gave an interface.
    pub(super) fn mtu(&self, nic: &Nic) -> Option<u32> {
        self.networkd(nic)
            .or_else(|| self.network_manager(nic))
            .or_else(|| self.dhclient(nic))
            .or_else(|| self.dhcpcd(nic))
    }

    fn networkd(&self, nic: &Nic) -> Option<u32> {
        let path = format!("{NETWORKD}/{}", nic.index);
        let text = read_text(&self.roots.root(path), CAP).ok()?;
        networkd_lease(&text).mtu
    }

    fn network_manager(&self, nic: &Nic) -> Option<u32> {
        let path = format!("/run/NetworkManager/devices/{}", nic.index);
        let device = nm_device(&read_text(&self.roots.root(path), CAP).ok()?);
        let uuid = device.connection.filter(|uuid| !uuid.contains('/'))?;
        let path = format!("{NM}/internal-{uuid}-{}.lease", nic.name);
        nm_lease(&read_text(&self.roots.root(path), CAP).ok()?).mtu
    }

    /// Leases of a client that is not used any more lie about for years.
    fn dhclient(&self, nic: &Nic) -> Option<u32> {
        let mtu = self.dhclient.iter().find(|lease| lease.0 == nic.name)?.1;
        let name = &nic.name;
        let places = [
            format!("/run/dhclient.{name}.pid"),
            format!("/run/dhclient-{name}.pid"),
            format!("/run/NetworkManager/dhclient-{name}.pid"),
            "/run/dhclient.pid".to_owned(),
        ];
        places
            .iter()
            .any(|place| self.runs(place, "dhclient"))
            .then_some(mtu)
    }

    fn dhcpcd(&self, nic: &Nic) -> Option<u32> {
        let name = &nic.name;
        let path = format!("{DHCPCD}/{name}.lease");
        let mtu = dhcp_packet(&read_bounded(&self.roots.root(path), CAP).ok()?)?.mtu?;
        let places = [
            "/run/dhcpcd/pid".to_owned(),
            format!("/run/dhcpcd/{name}.pid"),
            format!("/run/dhcpcd/{name}-4.pid"),
        ];
        places
            .iter()
            .any(|place| self.runs(place, "dhcpcd"))
            .then_some(mtu)
    }

    /// Whether the process that a file names is that program.
    fn runs(&self, pid_file: &str, program: &str) -> bool {
        let id = read_text(&self.roots.root(pid_file), 64).unwrap_or_default();
        let Ok(id) = id.trim().parse::<u32>() else {
            return false;
        };
        let comm = read_text(&self.roots.proc(format!("{id}/comm")), 64);
        comm.is_ok_and(|comm| comm.trim_end() == program)
    }
}
