//! The MTU from a DHCP lease.
//!
//! | client | lease | valid while |
//! |---|---|---|
//! | systemd-networkd | `/run/systemd/netif/leases/<index>` | it exists: networkd removes a released lease |
//! | NetworkManager up to 1.24 | `/var/lib/NetworkManager/internal-<uuid>-<interface>.lease` | the connection belongs to the device; readable only by root |
//! | dhclient | `/var/lib/dhcp`, `/var/lib/dhclient`, `/var/lib/NetworkManager` | dhclient runs for the interface |
//! | dhcpcd | `/var/lib/dhcpcd/<interface>.lease` | dhcpcd runs |
//!
//! An unreadable lease counts as missing, without a note: root's reconcile run reads it and records
//! the MTU (`nic.json`).

use virtfleet_agent_core::{
    dns::given::{dhclient_leases, dhcp_packet, networkd_lease, nm_device, nm_lease},
    virtio::Nic,
};

use crate::{Roots, attribute_names, read_bounded, read_text};

const NETWORKD: &str = "/run/systemd/netif/leases";
const NM: &str = "/var/lib/NetworkManager";
/// dhclient's lease directories: Debian, Fedora, under NetworkManager.
const DHCLIENT: [&str; 3] = ["/var/lib/dhcp", "/var/lib/dhclient", NM];
const DHCPCD: &str = "/var/lib/dhcpcd";
/// Maximum size of a lease file in bytes; it grows with each renewal until its client restarts.
const MAX_LEASE_BYTES: usize = 1 << 20;
/// Maximum number of files per directory.
const MAX_FILES: usize = 64;

/// Leases, read once for all interfaces.
pub(super) struct Leases<'a> {
    roots: &'a Roots,
    /// dhclient's interfaces with the MTU of their last lease that has one.
    dhclient: Vec<(String, u32)>,
}

impl<'a> Leases<'a> {
    pub(super) fn of(roots: &'a Roots) -> Self {
        let mut dhclient = Vec::new();
        for folder in DHCLIENT {
            let folder = roots.root(folder);
            let names = attribute_names(&folder);
            let ours = |name: &&String| name.starts_with("dhclient") && !name.starts_with("dhclient6");
            for name in names.iter().filter(ours).take(MAX_FILES) {
                if let Ok(text) = read_text(&folder.join(name), MAX_LEASE_BYTES) {
                    let leases = dhclient_leases(&text).into_iter();
                    dhclient.extend(leases.filter_map(|(interface, given)| Some((interface, given.mtu?))));
                }
            }
        }
        Self { roots, dhclient }
    }

    /// The MTU that DHCP provided for an interface.
    pub(super) fn mtu(&self, nic: &Nic) -> Option<u32> {
        self.networkd(nic)
            .or_else(|| self.network_manager(nic))
            .or_else(|| self.dhclient(nic))
            .or_else(|| self.dhcpcd(nic))
    }

    fn networkd(&self, nic: &Nic) -> Option<u32> {
        let path = format!("{NETWORKD}/{}", nic.index);
        let text = read_text(&self.roots.root(path), MAX_LEASE_BYTES).ok()?;
        networkd_lease(&text).mtu
    }

    fn network_manager(&self, nic: &Nic) -> Option<u32> {
        let path = format!("/run/NetworkManager/devices/{}", nic.index);
        let device = nm_device(&read_text(&self.roots.root(path), MAX_LEASE_BYTES).ok()?);
        let uuid = device.connection.filter(|uuid| !uuid.contains('/'))?;
        let path = format!("{NM}/internal-{uuid}-{}.lease", nic.name);
        nm_lease(&read_text(&self.roots.root(path), MAX_LEASE_BYTES).ok()?).mtu
    }

    /// Leases of a former client stay on disk for years.
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
        let mtu = dhcp_packet(&read_bounded(&self.roots.root(path), MAX_LEASE_BYTES).ok()?)?.mtu?;
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

    /// True if the PID in the file belongs to that program.
    fn runs(&self, pid_file: &str, program: &str) -> bool {
        let id = read_text(&self.roots.root(pid_file), 64).unwrap_or_default();
        let Ok(id) = id.trim().parse::<u32>() else {
            return false;
        };
        let comm = read_text(&self.roots.proc(format!("{id}/comm")), 64);
        comm.is_ok_and(|comm| comm.trim_end() == program)
    }
}
