//! Records which disks were there in the first boot.

use virtfleet_agent_core::disks::{
    Refusal, RefusalKind,
    known::KnownDisks,
    matching::{self, Selection},
};
use virtfleet_agent_host::JournalStore;

use super::{environment, observed::Observed, provisioner::DiskProvisioner};
use crate::engine::error_chain;

/// Writes the list of known disks, if it has changed. Without it a later boot would refuse these
/// disks; so a failure is only logged.
pub(super) fn remember(observed: &mut Observed) {
    let known = &observed.seen.known_disks;
    if observed.journal.known_disks.as_ref() == Some(known) {
        return;
    }
    let Ok(Some(store)) = &observed.store else { return };
    match store.write_known(known) {
        Ok(()) => observed.journal.known_disks = Some(known.clone()),
        Err(error) => not_recorded(&error_chain(error)),
    }
}

/// The same where no disk is declared: one may be declared later.
pub(super) fn remember_undeclared(provisioner: &DiskProvisioner<'_>) {
    let listed = || {
        let store = JournalStore::open(provisioner.roots).map_err(error_chain)?;
        let journal = store.load().map_err(error_chain)?;
        let mut devices = provisioner.disks().devices().map_err(error_chain)?;
        let boot = environment::boot(provisioner);
        let known = KnownDisks::mark(&journal, &[], &boot, &mut devices);
        if journal.known_disks.as_ref() == Some(&known) {
            return Ok(());
        }
        store.write_known(&known).map_err(error_chain)
    };
    if let Err(error) = listed() {
        not_recorded(&error);
    }
}

fn not_recorded(error: &str) {
    tracing::warn!(error, "cannot record which disks were there in the first boot");
}

/// The list of known disks with the one that a refusal of disk `name` names, once an admin has
/// approved it. `None` for refusals of other kinds.
///
/// # Errors
/// The name of a declared disk that would be another device than now with the disk on the list.
pub(super) fn approved(
    observed: &Observed,
    name: &str,
    refusal: &Refusal,
    boot_id: &str,
) -> Result<Option<KnownDisks>, String> {
    let seen = &observed.seen;
    let id = refusal.device.as_ref();
    let id = id.filter(|_| refusal.kind == RefusalKind::CameLater);
    let Some(approved) = id.and_then(|id| seen.devices.iter().position(|device| device.id == *id)) else {
        return Ok(None);
    };
    let select = |devices: &[_]| matching::select(&observed.wanted, devices, &seen.vm_uuid);
    let mut devices = seen.devices.clone();
    devices[approved].came_later = false;
    let index = |selection: &Selection| selection.found.as_ref().ok().map(|(_, index)| *index);
    for (before, after) in select(&seen.devices).iter().zip(&select(&devices)) {
        let expected = if after.name == name {
            Some(approved)
        } else {
            index(before)
        };
        if index(after) != expected {
            return Err(after.name.clone());
        }
    }
    Ok(Some(
        seen.known_disks.clone().with(&seen.devices[approved], boot_id),
    ))
}
