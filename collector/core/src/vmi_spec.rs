//! What a `VirtualMachineInstance` asks for, as far as its guest can show it. KubeVirt expands
//! instance type and preference into the VMI, so the VMI alone says it.

use std::net::IpAddr;

use virtfleet_wire::ids::MacAddr;

/// Maximum number of disks kept of one VMI.
pub const MAX_SPEC_DISKS: usize = 32;
/// Maximum number of interfaces kept of one VMI. KubeVirt allows 32.
pub const MAX_SPEC_INTERFACES: usize = 32;
/// Maximum number of CPU features kept of one VMI.
pub const MAX_SPEC_FEATURES: usize = 32;
/// Maximum number of nameservers, of search domains and of options kept of one VMI: KubeVirt allows
/// 3, 6 and any number.
pub const MAX_SPEC_DNS: usize = 8;
/// Maximum length of a name or another text, in characters.
pub const MAX_SPEC_TEXT_CHARS: usize = 128;

/// `spec.domain` of a VMI, its DNS, and what its `status` says about them.
#[expect(clippy::struct_excessive_bools, reason = "flags of KubeVirt's API")]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VmiSpec {
    /// CPUs.
    pub cpu: CpuSpec,
    /// Memory of the guest; none if the VMI does not say it.
    pub memory: Option<MemorySpec>,
    /// `domain.memory.hugepages.pageSize`.
    pub huge_page_size: Option<Box<str>>,
    /// `domain.devices.disks`, the first [`MAX_SPEC_DISKS`].
    pub disks: Box<[DiskSpec]>,
    pub has_more_disks: bool,
    /// `domain.devices.interfaces`, the first [`MAX_SPEC_INTERFACES`], without those with
    /// `state: absent`.
    pub interfaces: Box<[InterfaceSpec]>,
    /// `domain.devices.blockMultiQueue`.
    pub block_multi_queue: bool,
    /// `domain.devices.networkInterfaceMultiqueue`.
    pub network_multi_queue: bool,
    /// `domain.ioThreadsPolicy`.
    pub io_threads_policy: Option<Box<str>>,
    /// `domain.devices.rng` is there.
    pub rng: bool,
    /// `domain.devices.tpm` is there and enabled.
    pub tpm: bool,
    /// `domain.devices.autoattachMemBalloon`; KubeVirt's default is true.
    pub balloon: Option<bool>,
    /// `readinessProbe.guestAgentPing` is there: KubeVirt's condition `Ready` says whether the QEMU
    /// guest agent answers, whatever the guest's network does.
    pub pings_guest: bool,
    /// There are interfaces, and each has `state: down`.
    pub has_links_down: bool,
    /// `dnsPolicy` and `dnsConfig`; none if neither is set.
    pub dns: Option<Box<DnsSpec>>,
}

/// Sockets, cores of a socket, threads of a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuTopology {
    pub sockets: u32,
    /// Cores of a socket.
    pub cores: u32,
    /// Threads of a core.
    pub threads: u32,
}

impl CpuTopology {
    /// Number of vCPUs.
    pub fn vcpus(self) -> u32 {
        self.sockets
            .saturating_mul(self.cores)
            .saturating_mul(self.threads)
    }
}

/// CPUs of a VMI.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuSpec {
    /// The topology, and the field that it comes from; none if the VMI has no such field.
    pub topology: Option<(CpuTopology, &'static str)>,
    /// `domain.cpu.maxSockets`: sockets that can be plugged in while the VM runs.
    pub max_sockets: Option<u32>,
    /// `domain.cpu.model`.
    pub model: Option<Box<str>>,
    /// `domain.cpu.features`, the first [`MAX_SPEC_FEATURES`].
    pub features: Box<[CpuFeatureSpec]>,
    /// `domain.cpu.dedicatedCpuPlacement`.
    pub is_dedicated: bool,
    /// `domain.cpu.isolateEmulatorThread`.
    pub isolates_emulator: bool,
    /// vCPUs of `status.currentCPUTopology`.
    pub current_vcpus: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuFeatureSpec {
    /// Its name in libvirt.
    pub name: Box<str>,
    /// What is asked about it; none for a policy that asks for nothing (`optional`).
    pub wanted: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemorySpec {
    pub bytes: u64,
    /// The field that they come from.
    pub field: &'static str,
    /// `status.memory.guestCurrent` in bytes.
    pub current_bytes: Option<u64>,
}

/// Bus of a disk; its text is the name in KubeVirt's API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum DiskBus {
    Virtio,
    Scsi,
    Sata,
    Usb,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskSpec {
    /// `name`, which is its volume's name too.
    pub name: Box<str>,
    pub serial: Option<Box<str>>,
    /// `bus` of its `disk`, `lun` or `cdrom`.
    pub bus: Option<DiskBus>,
    pub is_cdrom: bool,
    /// `cache`: `none`, `writethrough`, `writeback`.
    pub cache: Option<Box<str>>,
    /// `io`: `native`, `threads`.
    pub io: Option<Box<str>>,
    /// `dedicatedIOThread`.
    pub has_io_thread: bool,
    /// `size` of its entry in `status.volumeStatus`.
    pub bytes: Option<u64>,
    /// Its hot-plugged volume is not ready yet: `phase` of that entry.
    pub is_pending: bool,
}

/// A network interface of a VMI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceSpec {
    pub name: Box<str>,
    /// `model`; none for KubeVirt's default, virtio.
    pub model: Option<Box<str>>,
    pub mac: Option<MacAddr>,
    /// It is an emulated device with a tap device behind it: not `sriov`, `passt` or a plug-in.
    pub is_tap: bool,
}

impl InterfaceSpec {
    /// Whether its device is a virtio device.
    pub fn is_virtio(&self) -> bool {
        self.model
            .as_deref()
            .is_none_or(|model| model.starts_with("virtio"))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DnsSpec {
    pub policy: Option<Box<str>>,
    /// `dnsConfig.nameservers`.
    pub nameservers: Box<[IpAddr]>,
    /// `dnsConfig.searches`.
    pub searches: Box<[Box<str>]>,
    /// `dnsConfig.options` as `name` or `name:value`.
    pub options: Box<[Box<str>]>,
}
