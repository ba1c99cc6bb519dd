//! Definition of a VM in the terms of KubeVirt's converter: everything that a test may choose.

use std::net::SocketAddr;

use super::{disk::Disk, seed::Seed};

/// Bytes of a mebibyte.
pub const MIB: u64 = 1 << 20;
/// Bytes of a gibibyte.
pub const GIB: u64 = 1 << 30;
/// The default firmware UUID. The same for all VMs, so that they share snapshots.
pub const UUID: &str = "6f1d5c5e-3f0e-5c6a-9a56-5716e7f1ee70";

/// A Debian release with a root image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suite {
    /// Debian 12.
    Bookworm,
    /// Debian 13.
    Trixie,
}

impl Suite {
    /// Its code name in Debian's archive.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bookworm => "bookworm",
            Self::Trixie => "trixie",
        }
    }
}

/// Network of a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// QEMU's user network without access to the outside. DHCP offers neither a router nor a DNS
    /// server. The host reaches the guest only through [`Vm::forward`], the guest the host only
    /// through [`Vm::mirror`].
    Restricted,
    /// QEMU's user network in a network namespace of the scene that has only `lo`. The guest sees a
    /// router and a DNS server (10.0.2.2 and 10.0.2.3), reaches servers on the namespace's loopback
    /// at 10.0.2.2, and nothing else.
    Enclosed,
    /// A tap device with as many queues as the NIC, in a network namespace of the scene; the
    /// namespace's end is `tap0`, 10.0.2.2/24. DHCP is available only if a test starts a server;
    /// otherwise the seed's network configuration sets an address.
    Tap,
}

/// A network interface (virtio).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nic {
    /// Its MAC address.
    pub mac: String,
    /// Queue pairs; the user network always has one.
    pub queues: u32,
}

/// An additional virtio-serial port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Its name in the guest: `/dev/virtio-ports/<name>`.
    pub name: String,
    /// For the port of downward metrics: the XML that answers `GET /metrics/XML`.
    pub metrics: Option<String>,
}

/// Name of KubeVirt's virtio-serial port for downward metrics.
pub const METRICS_PORT: &str = "org.github.vhostmd.1";

/// A VM; created with [`Vm::new`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vm {
    pub(super) name: String,
    pub(super) suite: Suite,
    pub(super) uuid: String,
    pub(super) serial: Option<String>,
    pub(super) chassis_asset: Option<String>,
    pub(super) chassis_sku: Option<String>,
    pub(super) cpus: u32,
    pub(super) max_cpus: u32,
    pub(super) memory: u64,
    pub(super) max_memory: u64,
    pub(super) seed: Option<Seed>,
    pub(super) disks: Vec<Disk>,
    pub(super) nics: Vec<Nic>,
    pub(super) network: Network,
    pub(super) forwards: Vec<(SocketAddr, u16)>,
    pub(super) mirrors: Vec<(u16, SocketAddr)>,
    pub(super) balloon: bool,
    pub(super) ports: Vec<Port>,
    pub(super) vsock: Option<u32>,
    pub(super) tpm: bool,
    pub(super) spare_ports: u32,
    pub(super) kernel: Vec<String>,
    pub(super) firmware: Vec<(String, String)>,
}

impl Vm {
    /// Debian 13, 2 of at most 4 vCPUs, 1 GiB of at most 4 GiB, a NoCloud seed without requests,
    /// one NIC on [`Network::Restricted`], a balloon, the guest agent's port, a SCSI controller, 8
    /// free PCIe ports. VMs that differ only in name, disks, forwards and mirrors share one
    /// snapshot.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            suite: Suite::Trixie,
            uuid: UUID.to_owned(),
            serial: None,
            chassis_asset: None,
            chassis_sku: None,
            cpus: 2,
            max_cpus: 4,
            memory: GIB,
            max_memory: 4 * GIB,
            seed: Some(Seed::no_cloud("stage")),
            disks: Vec::new(),
            nics: vec![nic(0, 1)],
            network: Network::Restricted,
            forwards: Vec::new(),
            mirrors: Vec::new(),
            balloon: true,
            ports: Vec::new(),
            vsock: None,
            tpm: false,
            spare_ports: 8,
            kernel: Vec::new(),
            firmware: Vec::new(),
        }
    }

    /// Sets the Debian release.
    #[must_use]
    pub fn suite(mut self, suite: Suite) -> Self {
        self.suite = suite;
        self
    }
    /// Sets the firmware's UUID (SMBIOS type 1), in lower case.
    #[must_use]
    pub fn uuid(mut self, uuid: impl Into<String>) -> Self {
        self.uuid = uuid.into();
        self
    }
    /// Sets the firmware's serial number (SMBIOS type 1).
    #[must_use]
    pub fn serial(mut self, serial: impl Into<String>) -> Self {
        self.serial = Some(serial.into());
        self
    }
    /// Sets the chassis' asset tag and SKU (SMBIOS type 3).
    #[must_use]
    pub fn chassis(mut self, asset: impl Into<String>, sku: impl Into<String>) -> Self {
        self.chassis_asset = Some(asset.into());
        self.chassis_sku = Some(sku.into());
        self
    }
    /// Sets the initial and the maximum number of vCPUs, each a separate socket.
    #[must_use]
    pub fn cpus(mut self, now: u32, most: u32) -> Self {
        (self.cpus, self.max_cpus) = (now, most.max(now));
        self
    }
    /// Sets the initial and the maximum memory in bytes.
    #[must_use]
    pub fn memory(mut self, now: u64, most: u64) -> Self {
        (self.memory, self.max_memory) = (now, most.max(now));
        self
    }
    /// Sets cloud-init's seed.
    #[must_use]
    pub fn seed(mut self, seed: Seed) -> Self {
        self.seed = Some(seed);
        self
    }
    /// Removes the seed; cloud-init does not run then.
    #[must_use]
    pub fn no_seed(mut self) -> Self {
        self.seed = None;
        self
    }
    /// Adds a disk after the root disk and the seed.
    #[must_use]
    pub fn disk(mut self, disk: Disk) -> Self {
        self.disks.push(disk);
        self
    }
    /// Sets the queue pairs of the first NIC.
    #[must_use]
    pub fn nic_queues(mut self, queues: u32) -> Self {
        if let Some(first) = self.nics.first_mut() {
            first.queues = queues;
        }
        self
    }
    /// Adds a NIC on a separate network: 10.0.3.0/24 for the second NIC, and so on.
    #[must_use]
    pub fn nic(mut self, queues: u32) -> Self {
        self.nics.push(nic(self.nics.len(), queues));
        self
    }
    /// Sets the network of the NICs.
    #[must_use]
    pub fn network(mut self, network: Network) -> Self {
        self.network = network;
        self
    }
    /// Forwards connections to `from`, a loopback address of the host (of the scene's namespace, if
    /// the VM is in it), to the guest's TCP port `to`. Not on [`Network::Tap`].
    #[must_use]
    pub fn forward(mut self, from: SocketAddr, to: u16) -> Self {
        self.forwards.push((from, to));
        self
    }
    /// Forwards the guest's connections to 10.0.2.100 at `port` to `to`, a loopback address of the
    /// host. Not on [`Network::Tap`].
    #[must_use]
    pub fn mirror(mut self, port: u16, to: SocketAddr) -> Self {
        self.mirrors.push((port, to));
        self
    }
    /// Removes the memory balloon (`autoattachMemBalloon: false`).
    #[must_use]
    pub fn no_balloon(mut self) -> Self {
        self.balloon = false;
        self
    }
    /// Adds a virtio-serial port, whose other end is a socket: [`super::Guest::port`].
    #[must_use]
    pub fn port(mut self, name: impl Into<String>) -> Self {
        self.ports.push(Port {
            name: name.into(),
            metrics: None,
        });
        self
    }
    /// Adds the virtio-serial port of downward metrics, which serves this XML.
    #[must_use]
    pub fn metrics_port(mut self, xml: impl Into<String>) -> Self {
        self.ports.push(Port {
            name: METRICS_PORT.to_owned(),
            metrics: Some(xml.into()),
        });
        self
    }
    /// Adds a vsock with this context id (3 or more). Requires `/dev/vhost-vsock`.
    #[must_use]
    pub fn vsock(mut self, cid: u32) -> Self {
        self.vsock = Some(cid);
        self
    }
    /// Adds a TPM 2.0 (`devices.tpm`). Its state survives power cuts, as that of a persistent TPM,
    /// until [`super::Guest::lose_tpm`].
    #[must_use]
    pub fn tpm(mut self) -> Self {
        self.tpm = true;
        self
    }
    /// Sets the number of PCIe ports for hot-plug.
    #[must_use]
    pub fn spare_ports(mut self, count: u32) -> Self {
        self.spare_ports = count;
        self
    }
    /// Adds a kernel parameter.
    #[must_use]
    pub fn kernel(mut self, word: impl Into<String>) -> Self {
        self.kernel.push(word.into());
        self
    }
    /// Adds a fw_cfg entry, by convention `opt/…`; Ignition reads `opt/com.coreos/config`.
    #[must_use]
    pub fn firmware(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.firmware.push((name.into(), text.into()));
        self
    }
}

fn nic(index: usize, queues: u32) -> Nic {
    Nic {
        mac: format!("02:00:00:00:00:{:02x}", index + 1),
        queues,
    }
}
