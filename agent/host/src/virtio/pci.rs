//! Message-signalled interrupts of PCI devices (`/sys/bus/pci/devices/*/msi_irqs`; kernel:
//! `drivers/base/core.c`, `drivers/pci/msi`).

use virtfleet_agent_core::virtio::Vectors;

use super::{file_reader::FileReader, place::is_pci};

/// Interrupts in use by device. A device without any has no such directory.
pub(super) fn vectors(reader: &mut FileReader<'_>) -> Vectors {
    let folder = reader.roots.sys("bus/pci/devices");
    let mut vectors = Vectors::default();
    for address in reader.names(&folder) {
        let names = reader.names(&folder.join(&address).join("msi_irqs"));
        let count = u32::try_from(names.len()).unwrap_or(u32::MAX);
        if count > 0 {
            vectors.used = vectors.used.saturating_add(count);
            vectors.by_device.push((address, count));
        }
    }
    vectors.by_device.sort();
    vectors
}

/// PCI subsystem vendor of QEMU's devices, where a card has its manufacturer
/// (`PCI_SUBVENDOR_ID_REDHAT_QUMRANET`). Some emulated devices, such as `e1000e`, have the original
/// manufacturer instead.
/// original instead, `e1000e` among them.
pub(super) const QEMU: &str = "0x1af4";

/// The subsystem vendor of a device. `None` if it is not on PCI.
pub(super) fn subsystem_vendor(reader: &mut FileReader<'_>, address: &str) -> Option<String> {
    let folder = reader.roots.sys("bus/pci/devices").join(address);
    reader
        .quiet(&folder.join("subsystem_vendor"))
        .filter(|_| is_pci(address))
}
