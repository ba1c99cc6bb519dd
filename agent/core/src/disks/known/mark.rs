//! Which disks are known, and the list of them.

use std::collections::BTreeSet;

use super::{
    super::{
        device::{Carried, Device},
        journal::Journal,
        uuids,
        wanted::Wanted,
    },
    Boot, KnownDisk, KnownDisks, address,
};

impl KnownDisks {
    /// Sets [`Device::came_later`] of each disk that is not known, and returns the list of those
    /// that are. Partitions are not marked: the settings name them.
    pub fn mark(journal: &Journal, wanted: &[Wanted], boot: &Boot<'_>, devices: &mut [Device]) -> Self {
        let before = Self::before(journal, boot);
        // Nothing is formatted without a journal that can be used, and that refusal says why.
        if journal.is_unusable() {
            return before;
        }
        let known = before.known(&ours(journal, wanted, boot), boot, devices);
        for (device, known) in devices.iter_mut().zip(known) {
            device.came_later = !known;
        }
        before.after(boot, devices)
    }

    /// The list at the begin of this run. Without one, only a VM in which no kubelet and no older
    /// agent has run yet can be in its first boot: of any other it is unknown what came later.
    fn before(journal: &Journal, boot: &Boot<'_>) -> Self {
        let list = journal.known_disks.as_ref();
        let own = list.filter(|list| list.vm_uuid == boot.vm_uuid);
        let open = match (list, own) {
            (_, Some(own)) => own.open && own.boot_id == boot.boot_id,
            // This VM was cloned from another one, and begins a list of its own.
            (Some(other), None) => !other.kubelet_ran,
            // A list that cannot be read is in `broken`.
            (None, None) => journal.entries.is_empty() && journal.broken.is_empty(),
        };
        let kubelet_ran = boot.kubelet_ran || list.is_some_and(|list| list.kubelet_ran);
        let running = boot.kubelet_runs.then(|| boot.boot_id.to_owned());
        Self {
            open: open && !kubelet_ran && running.is_none(),
            kubelet_ran,
            kubelet_boot: running.or_else(|| own?.kubelet_boot.clone()),
            vm_uuid: boot.vm_uuid.to_owned(),
            ..own.cloned().unwrap_or_default()
        }
    }

    fn known(&self, ours: &BTreeSet<String>, boot: &Boot<'_>, devices: &[Device]) -> Vec<bool> {
        let is_listed = |device: &Device| self.disks.iter().any(|disk| self.is(disk, device, boot, devices));
        let mut known: Vec<bool> = devices
            .iter()
            .map(|device| self.open || device.id.partition.is_some() || is_listed(device))
            .collect();
        // A copy of a known disk is another disk.
        let taken: BTreeSet<String> = devices
            .iter()
            .zip(&known)
            .filter_map(|(device, known)| carried(device).filter(|_| *known))
            .collect();
        for (device, known) in devices.iter().zip(&mut known) {
            *known |= carried(device).is_some_and(|uuid| ours.contains(&uuid) && !taken.contains(&uuid));
        }
        known
    }

    /// Whether a device is this disk of the list.
    fn is(&self, disk: &KnownDisk, device: &Device, boot: &Boot<'_>, devices: &[Device]) -> bool {
        let in_this_boot = disk.boot_id == boot.boot_id;
        if in_this_boot && let (Some(then), Some(now)) = (disk.diskseq, device.id.diskseq) {
            return then == now;
        }
        let at_its_address = !disk.address.is_empty() && disk.address == address(device);
        if !at_its_address {
            return false;
        }
        if in_this_boot {
            return disk.serial == device.id.serial && disk.size <= device.id.size;
        }
        // The VM's spec may give a disk a serial.
        let same_serial = disk.serial.is_none() || disk.serial == device.id.serial;
        let before_kubelet = self.kubelet_boot.as_deref() != Some(boot.boot_id);
        before_kubelet && same_serial && disk.size == device.id.size && !disk.has_moved(device, devices)
    }

    fn after(self, boot: &Boot<'_>, devices: &[Device]) -> Self {
        let whole = || devices.iter().filter(|device| device.id.partition.is_none());
        let now: Vec<KnownDisk> = whole()
            .filter(|device| !device.came_later)
            .map(|device| KnownDisk::of(device, boot.boot_id, &self.disks))
            .collect();
        let addresses: BTreeSet<String> = whole().map(address).collect();
        // A disk that was removed in this boot, or whose address another one has, is gone. One that
        // is absent since the boot may be there in the next.
        let is_absent = |disk: &KnownDisk| {
            disk.boot_id != boot.boot_id
                && !addresses.contains(&disk.address)
                && (disk.uuid.is_none() || now.iter().all(|other| other.uuid != disk.uuid))
        };
        let absent = self.disks.iter().filter(|disk| is_absent(disk));
        let mut disks: Vec<KnownDisk> = absent.cloned().chain(now.clone()).collect();
        disks.sort_by(|one, other| one.address.cmp(&other.address));
        Self {
            boot_id: boot.boot_id.to_owned(),
            disks,
            ..self
        }
    }
}

impl KnownDisk {
    /// Whether the device at its address does not carry its UUID, and another one does: each boot
    /// may assign the addresses of plugged disks anew.
    fn has_moved(&self, at_its_address: &Device, devices: &[Device]) -> bool {
        let has_uuid = |device: &Device| carried(device) == self.uuid;
        self.uuid.is_some() && !has_uuid(at_its_address) && devices.iter().any(has_uuid)
    }
}

/// UUIDs that the agent assigns to the declared disks, and those in the journal.
fn ours(journal: &Journal, wanted: &[Wanted], boot: &Boot<'_>) -> BTreeSet<String> {
    let entries = journal.entries.iter();
    let journaled = entries.flat_map(|entry| entry.luks_uuid.iter().chain([&entry.uuid]).cloned());
    let assigned = wanted
        .iter()
        .flat_map(|disk| [uuids::filesystem, uuids::luks].map(|of| of(boot.vm_uuid, &disk.name)));
    let all = journaled.chain(assigned.flatten());
    all.filter(|uuid| !uuid.is_empty())
        .map(|uuid| uuid.to_ascii_lowercase())
        .collect()
}

fn carried(device: &Device) -> Option<String> {
    match &device.carried {
        Carried::Uuid(uuid) => Some(uuid.to_ascii_lowercase()),
        Carried::Nothing | Carried::Unknown => None,
    }
}
