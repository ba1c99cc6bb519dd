//! Message-signalled interrupts of PCI devices (`/sys/bus/pci/devices/*/msi_irqs`; kernel: `drivers/base/core.c`, `drivers/pci/msi`).

use virtfleet_agent_core::virtio::Vectors;

use super::look::Look;

/// Those in use by device. A device without any has no such folder.
pub(super) fn vectors(look: &mut Look<'_>) -> Vectors {
    let folder = look.roots.sys("bus/pci/devices");
    let mut vectors = Vectors::default();
    for address in look.names(&folder) {
        let names = look.names(&folder.join(&address).join("msi_irqs"));
        let count = u32::try_from(names.len()).unwrap_or(u32::MAX);
        if count > 0 {
            vectors.used = vectors.used.saturating_add(count);
            vectors.by_device.push((address, count));
        }
    }
    vectors.by_device.sort();
    vectors
}
