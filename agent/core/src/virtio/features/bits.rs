//! Feature bits by name. A name is the kernel's without `VIRTIO_` and the prefix of the type
//! (`NET_F_`, `RING_F_`, …); bits that the kernel does not have yet are named as in the
//! specification (version 1.3).

/// Defines a module of bits with number and meaning, and their `NAMES`.
macro_rules! bits {
    ($(#[doc = $about:literal])+ $module:ident { $($name:ident = $bit:literal: $meaning:literal;)* }) => {
        $(#[doc = $about])+
        pub mod $module {
            $(#[doc = $meaning] pub const $name: u32 = $bit;)*
            /// Names of the bits.
            pub const NAMES: &[(u32, &str)] = &[$(($bit, stringify!($name))),*];
        }
    };
}

bits! {
    /// Bits of every device (specification, 6; `virtio_config.h`, `virtio_ring.h`).
    transport {
        NOTIFY_ON_EMPTY = 24: "The device interrupts when a queue is empty, even if interrupts are suppressed. Before version 1.";
        ANY_LAYOUT = 27: "Descriptors may have any layout. Before version 1.";
        INDIRECT_DESC = 28: "A descriptor can refer to a table of descriptors: more requests fit into a queue.";
        EVENT_IDX = 29: "Each side sets the index at which it expects a notification: fewer interrupts and kicks.";
        VERSION_1 = 32: "Version 1 of the specification or later.";
        ACCESS_PLATFORM = 33: "Memory access is limited by the platform: through an IOMMU, or encrypted.";
        RING_PACKED = 34: "The packed layout of queues.";
        IN_ORDER = 35: "The device returns buffers in the order in which they were made available.";
        ORDER_PLATFORM = 36: "The platform orders accesses to memory.";
        SR_IOV = 37: "The device has virtual functions (SR-IOV).";
        NOTIFICATION_DATA = 38: "A kick contains the position in the queue.";
        NOTIF_CONFIG_DATA = 39: "The device defines the content of a kick.";
        RING_RESET = 40: "A single queue can be reset.";
        ADMIN_VQ = 41: "The device has administration queues.";
    }
}

bits! {
    /// Network devices (5.1.3; `virtio_net.h`).
    net {
        CSUM = 0: "The device completes checksums of sent packets.";
        GUEST_CSUM = 1: "The driver accepts packets with partial checksums.";
        CTRL_GUEST_OFFLOADS = 2: "The offloads of the driver can be changed at run time.";
        MTU = 3: "The device advises an MTU.";
        MAC = 5: "The device has a MAC address.";
        GSO = 6: "Any segmentation offload. Before version 1.";
        GUEST_TSO4 = 7: "The driver accepts large TCP packets over IPv4.";
        GUEST_TSO6 = 8: "The driver accepts large TCP packets over IPv6.";
        GUEST_ECN = 9: "The driver accepts large TCP packets with congestion marks.";
        GUEST_UFO = 10: "The driver accepts large UDP packets (fragments).";
        HOST_TSO4 = 11: "The device accepts large TCP packets over IPv4.";
        HOST_TSO6 = 12: "The device accepts large TCP packets over IPv6.";
        HOST_ECN = 13: "The device accepts large TCP packets with congestion marks.";
        HOST_UFO = 14: "The device accepts large UDP packets (fragments).";
        MRG_RXBUF = 15: "A received packet may fill several buffers: buffers can be small.";
        STATUS = 16: "The device reports the link state.";
        CTRL_VQ = 17: "There is a control queue.";
        CTRL_RX = 18: "Receive filters can be set.";
        CTRL_VLAN = 19: "The device filters VLANs.";
        CTRL_RX_EXTRA = 20: "More receive filters can be set.";
        GUEST_ANNOUNCE = 21: "The driver announces its address on request, as after a migration.";
        MQ = 22: "Several pairs of queues.";
        CTRL_MAC_ADDR = 23: "The MAC address can be set.";
        DEVICE_STATS = 50: "The device has counters.";
        HASH_TUNNEL = 51: "Hashes of tunnelled packets.";
        VQ_NOTF_COAL = 52: "Interrupt coalescing per queue.";
        NOTF_COAL = 53: "Interrupt coalescing.";
        GUEST_USO4 = 54: "The driver accepts large UDP packets over IPv4 (segments).";
        GUEST_USO6 = 55: "The driver accepts large UDP packets over IPv6 (segments).";
        HOST_USO = 56: "The device accepts large UDP packets (segments).";
        HASH_REPORT = 57: "The device reports the hash of each packet.";
        GUEST_HDRLEN = 59: "The driver provides the header length.";
        RSS = 60: "Received packets are distributed by hash.";
        RSC_EXT = 61: "The device reports coalesced segments.";
        STANDBY = 62: "The device is the standby of another device with the same MAC address.";
        SPEED_DUPLEX = 63: "The device reports speed and duplex.";
        RSS_CONTEXT = 64: "Several contexts to distribute received packets.";
        GUEST_UDP_TUNNEL_GSO = 65: "The driver accepts large packets in UDP tunnels.";
        GUEST_UDP_TUNNEL_GSO_CSUM = 66: "The same with an outer checksum.";
        HOST_UDP_TUNNEL_GSO = 67: "The device accepts large packets in UDP tunnels.";
        HOST_UDP_TUNNEL_GSO_CSUM = 68: "The same with an outer checksum.";
        OUT_NET_HEADER = 69: "The device accepts its own headers for sent packets.";
        IPSEC = 70: "The device does IPsec.";
    }
}

bits! {
    /// Disks (5.2.3; `virtio_blk.h`).
    blk {
        BARRIER = 0: "Barriers. Before version 1.";
        SIZE_MAX = 1: "The device limits the size of a segment.";
        SEG_MAX = 2: "The device limits the number of segments per request.";
        GEOMETRY = 4: "Cylinders, heads and sectors.";
        RO = 5: "The device is read-only.";
        BLK_SIZE = 6: "The device reports its block size.";
        SCSI = 7: "SCSI commands pass through. Before version 1.";
        FLUSH = 9: "The device has a write cache and a flush command.";
        TOPOLOGY = 10: "The device reports alignment and optimal sizes.";
        CONFIG_WCE = 11: "The write cache mode can be changed.";
        MQ = 12: "Several request queues.";
        DISCARD = 13: "Discard.";
        WRITE_ZEROES = 14: "Zeros can be written without transferring data.";
        LIFETIME = 15: "The device reports its wear.";
        SECURE_ERASE = 16: "Secure erase.";
        ZONED = 17: "The device has zones.";
    }
}

bits! {
    /// Consoles (5.3.3; `virtio_console.h`).
    console {
        SIZE = 0: "The device reports the size of the terminal.";
        MULTIPORT = 1: "Several ports.";
        EMERG_WRITE = 2: "A character can be written before the queues are set up.";
    }
}

bits! {
    /// Memory balloons (5.5.3; `virtio_balloon.h`).
    balloon {
        MUST_TELL_HOST = 0: "The driver must notify the device before it uses pages again.";
        STATS_VQ = 1: "Memory statistics of the guest.";
        DEFLATE_ON_OOM = 2: "The balloon releases pages when the guest is out of memory.";
        FREE_PAGE_HINT = 3: "Free pages are reported on request, as for a migration.";
        PAGE_POISON = 4: "The driver reports the pattern of free pages.";
        REPORTING = 5: "Free pages are reported continuously.";
    }
}

bits! {
    /// SCSI controllers (5.6.3; `virtio_scsi.h`).
    scsi {
        INOUT = 0: "A request may both read and write.";
        HOTPLUG = 1: "The device reports added and removed disks.";
        CHANGE = 2: "The device reports changes of a disk, including its size.";
        T10_PI = 3: "Protection information.";
    }
}

bits! {
    /// Graphics (5.7.3; `virtio_gpu.h`).
    gpu {
        VIRGL = 0: "3D.";
        EDID = 1: "Displays report their capabilities.";
        RESOURCE_UUID = 2: "Resources have UUIDs.";
        RESOURCE_BLOB = 3: "Resources of the host's memory.";
        CONTEXT_INIT = 4: "Contexts of several kinds.";
    }
}

bits! {
    /// Sockets (5.10.3; `virtio_vsock.h`).
    vsock {
        STREAM = 0: "Streams.";
        SEQPACKET = 1: "Packets in order.";
        NO_IMPLIED_STREAM = 2: "Streams only if their bit is set.";
    }
}

bits! {
    /// Crypto accelerators (5.9.3).
    crypto {
        REVISION_1 = 0: "Revision 1.";
        CIPHER_STATELESS_MODE = 1: "Ciphers without sessions.";
        HASH_STATELESS_MODE = 2: "Hashes without sessions.";
        MAC_STATELESS_MODE = 3: "Message authentication without sessions.";
        AEAD_STATELESS_MODE = 4: "Authenticated encryption without sessions.";
        AKCIPHER_STATELESS_MODE = 5: "Asymmetric ciphers without sessions.";
    }
}

bits! {
    /// IOMMUs (5.13.3; `virtio_iommu.h`).
    iommu {
        INPUT_RANGE = 0: "The device reports its range of addresses.";
        DOMAIN_RANGE = 1: "The device reports its range of domains.";
        MAP_UNMAP = 2: "Mappings can be created.";
        BYPASS = 3: "Without a domain, memory access is direct.";
        PROBE = 4: "Endpoints can be probed.";
        MMIO = 5: "Mappings of device memory.";
        BYPASS_CONFIG = 6: "Direct memory access can be configured.";
    }
}

bits! {
    /// Hot-pluggable memory (5.15.3; `virtio_mem.h`).
    mem {
        ACPI_PXM = 0: "The device reports its NUMA node.";
        UNPLUGGED_INACCESSIBLE = 1: "Unplugged memory must not be accessed.";
        PERSISTENT_SUSPEND = 2: "Memory keeps its content when the guest is suspended.";
    }
}

bits! {
    /// Sound cards (5.14.3; `virtio_snd.h`).
    sound {
        CTLS = 0: "Controls.";
    }
}

bits! {
    /// Shared folders (5.11.3).
    fs {
        NOTIFICATION = 0: "The device has a notification queue.";
    }
}

bits! {
    /// Persistent memory (5.19.3; `virtio_pmem.h`).
    pmem {
        SHMEM_REGION = 0: "The memory is a shared region.";
    }
}
