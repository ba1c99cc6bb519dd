//! Message-signalled interrupts of PCI devices (`/sys/bus/pci/devices/*/msi_irqs`; kernel: `drivers/base/core.c`, `drivers/pci/msi`).

use virtfleet_agent_core::virtio::Vectors;

use super::{look::Look, place::is_pci};

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

/// How QEMU marks what it plays in the subsystem's vendor, where a card has its maker (`PCI_SUBVENDOR_ID_REDHAT_QUMRANET`). Some of what it plays has the maker of the
/// original instead, `e1000e` among them.
pub(super) const QEMU: &str = "0x1af4";

/// The vendor of a device's subsystem; none of what is not on PCI.
pub(super) fn subsystem_vendor(look: &mut Look<'_>, address: &str) -> Option<String> {
    let folder = look.roots.sys("bus/pci/devices").join(address);
    look.quiet(&folder.join("subsystem_vendor"))
        .filter(|_| is_pci(address))
}
