//! The bits by name. A name is the kernel's without `VIRTIO_` and the type's own prefix (`NET_F_`, `RING_F_`, …); bits that the kernel does not know yet have the
//! specification's (version 1.3).

/// A module of bits, each with its number and what it means, and `NAMES` of them all.
macro_rules! bits {
    ($(#[doc = $about:literal])+ $module:ident { $($name:ident = $bit:literal: $meaning:literal;)* }) => {
        $(#[doc = $about])+
        pub mod $module {
            $(#[doc = $meaning] pub const $name: u32 = $bit;)*
            /// The bits by number, each with its name.
            pub const NAMES: &[(u32, &str)] = &[$(($bit, stringify!($name))),*];
        }
    };
}

bits! {
    /// Bits of every device (specification, 6; `virtio_config.h`, `virtio_ring.h`).
    transport {
        NOTIFY_ON_EMPTY = 24: "The device interrupts when a queue has run empty, even if asked not to. Before version 1.";
        ANY_LAYOUT = 27: "Any layout of descriptors will do. Before version 1.";
        INDIRECT_DESC = 28: "A descriptor can stand for a table of them: more requests fit into a queue.";
        EVENT_IDX = 29: "Each side says from which place on it wants to be told: fewer interrupts and kicks.";
        VERSION_1 = 32: "Version 1 of the specification or later.";
        ACCESS_PLATFORM = 33: "Memory is reached as the platform has it: through an IOMMU, or encrypted.";
        RING_PACKED = 34: "The packed layout of queues.";
        IN_ORDER = 35: "Buffers come back in the order in which they went.";
        ORDER_PLATFORM = 36: "The platform orders accesses to memory.";
        SR_IOV = 37: "It has functions of its own (SR-IOV).";
        NOTIFICATION_DATA = 38: "A kick carries the place in the queue.";
        NOTIF_CONFIG_DATA = 39: "The device says what a kick has to carry.";
        RING_RESET = 40: "A queue can be reset alone.";
        ADMIN_VQ = 41: "It has administration queues.";
    }
}

bits! {
    /// Network devices (5.1.3; `virtio_net.h`).
    net {
        CSUM = 0: "The device completes checksums of what is sent.";
        GUEST_CSUM = 1: "The driver takes packets with partial checksums.";
        CTRL_GUEST_OFFLOADS = 2: "What the driver takes can be changed while it runs.";
        MTU = 3: "The device advises an MTU.";
        MAC = 5: "The device has a MAC address.";
        GSO = 6: "Any segmentation offload. Before version 1.";
        GUEST_TSO4 = 7: "The driver takes large TCP packets over IPv4.";
        GUEST_TSO6 = 8: "The driver takes large TCP packets over IPv6.";
        GUEST_ECN = 9: "The driver takes large TCP packets with congestion marks.";
        GUEST_UFO = 10: "The driver takes large UDP packets (fragments).";
        HOST_TSO4 = 11: "The device takes large TCP packets over IPv4.";
        HOST_TSO6 = 12: "The device takes large TCP packets over IPv6.";
        HOST_ECN = 13: "The device takes large TCP packets with congestion marks.";
        HOST_UFO = 14: "The device takes large UDP packets (fragments).";
        MRG_RXBUF = 15: "A received packet may fill several buffers: buffers can be small.";
        STATUS = 16: "The device tells the link's state.";
        CTRL_VQ = 17: "There is a control queue.";
        CTRL_RX = 18: "What is received can be chosen.";
        CTRL_VLAN = 19: "The device filters VLANs.";
        CTRL_RX_EXTRA = 20: "More of what is received can be chosen.";
        GUEST_ANNOUNCE = 21: "The driver announces its address when asked, as after a migration.";
        MQ = 22: "Several pairs of queues.";
        CTRL_MAC_ADDR = 23: "The MAC address can be set.";
        DEVICE_STATS = 50: "The device counts, too.";
        HASH_TUNNEL = 51: "Hashes of what is inside tunnels.";
        VQ_NOTF_COAL = 52: "Interrupt coalescing by queue.";
        NOTF_COAL = 53: "Interrupt coalescing.";
        GUEST_USO4 = 54: "The driver takes large UDP packets over IPv4 (segments).";
        GUEST_USO6 = 55: "The driver takes large UDP packets over IPv6 (segments).";
        HOST_USO = 56: "The device takes large UDP packets (segments).";
        HASH_REPORT = 57: "The device reports the hash of each packet.";
        GUEST_HDRLEN = 59: "The driver says how long headers are.";
        RSS = 60: "Received packets are spread by hash.";
        RSC_EXT = 61: "The device says what it has joined.";
        STANDBY = 62: "It stands by for another device of the same MAC address.";
        SPEED_DUPLEX = 63: "The device tells speed and duplex.";
        RSS_CONTEXT = 64: "Several ways to spread received packets.";
        GUEST_UDP_TUNNEL_GSO = 65: "The driver takes large packets in UDP tunnels.";
        GUEST_UDP_TUNNEL_GSO_CSUM = 66: "The same with a checksum outside.";
        HOST_UDP_TUNNEL_GSO = 67: "The device takes large packets in UDP tunnels.";
        HOST_UDP_TUNNEL_GSO_CSUM = 68: "The same with a checksum outside.";
        OUT_NET_HEADER = 69: "The device takes headers of its own for what is sent.";
        IPSEC = 70: "The device does IPsec.";
    }
}

bits! {
    /// Disks (5.2.3; `virtio_blk.h`).
    blk {
        BARRIER = 0: "Barriers. Before version 1.";
        SIZE_MAX = 1: "The device says how large a segment may be.";
        SEG_MAX = 2: "The device says how many segments a request may have.";
        GEOMETRY = 4: "Cylinders, heads and sectors.";
        RO = 5: "It is read-only.";
        BLK_SIZE = 6: "The device tells its block size.";
        SCSI = 7: "SCSI commands pass through. Before version 1.";
        FLUSH = 9: "There is a write cache, and a command to flush it.";
        TOPOLOGY = 10: "The device tells alignment and best sizes.";
        CONFIG_WCE = 11: "The write cache can be switched.";
        MQ = 12: "Several request queues.";
        DISCARD = 13: "Discard.";
        WRITE_ZEROES = 14: "Zeros can be written without sending them.";
        LIFETIME = 15: "The device tells its wear.";
        SECURE_ERASE = 16: "Secure erase.";
        ZONED = 17: "It has zones.";
    }
}

bits! {
    /// Consoles (5.3.3; `virtio_console.h`).
    console {
        SIZE = 0: "The device tells the terminal's size.";
        MULTIPORT = 1: "Several ports.";
        EMERG_WRITE = 2: "A character can be written before there are queues.";
    }
}

bits! {
    /// Memory balloons (5.5.3; `virtio_balloon.h`).
    balloon {
        MUST_TELL_HOST = 0: "The device must be told before pages are used again.";
        STATS_VQ = 1: "Statistics of the guest's memory.";
        DEFLATE_ON_OOM = 2: "The balloon gives pages back when the guest has none left.";
        FREE_PAGE_HINT = 3: "Free pages are told when asked, as for a migration.";
        PAGE_POISON = 4: "The driver tells what it fills free pages with.";
        REPORTING = 5: "Free pages are told all the time.";
    }
}

bits! {
    /// SCSI controllers (5.6.3; `virtio_scsi.h`).
    scsi {
        INOUT = 0: "A request may both read and write.";
        HOTPLUG = 1: "The device tells of disks that come and go.";
        CHANGE = 2: "The device tells of changes of a disk, its size among them.";
        T10_PI = 3: "Protection information.";
    }
}

bits! {
    /// Graphics (5.7.3; `virtio_gpu.h`).
    gpu {
        VIRGL = 0: "3D.";
        EDID = 1: "Displays say what they are.";
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
        INPUT_RANGE = 0: "The device says which addresses it takes.";
        DOMAIN_RANGE = 1: "The device says which domains there are.";
        MAP_UNMAP = 2: "Mappings can be made.";
        BYPASS = 3: "Without a domain, memory is reached directly.";
        PROBE = 4: "Endpoints can be asked about.";
        MMIO = 5: "Mappings of devices' memory.";
        BYPASS_CONFIG = 6: "Reaching memory directly can be switched.";
    }
}

bits! {
    /// Memory that is plugged in (5.15.3; `virtio_mem.h`).
    mem {
        ACPI_PXM = 0: "The device tells its node.";
        UNPLUGGED_INACCESSIBLE = 1: "What is not plugged in must not be touched.";
        PERSISTENT_SUSPEND = 2: "It keeps what it holds when the guest is suspended.";
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
        NOTIFICATION = 0: "A queue on which the device notifies.";
    }
}

bits! {
    /// Persistent memory (5.19.3; `virtio_pmem.h`).
    pmem {
        SHMEM_REGION = 0: "The memory is a shared region.";
    }
}
