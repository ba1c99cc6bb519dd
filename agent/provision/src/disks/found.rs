//! Records where a time-limited proof found data, so that a slower probe of the same disk does not
//! miss it.

use virtfleet_agent_core::disks::{Probe, journal::FoundByte};
use virtfleet_agent_host::JournalStore;
use virtfleet_wire::settings::DiskSettings;

use crate::engine::error_chain;

use super::{observed::Observed, provisioner::DiskProvisioner};

/// Records what a run found, and removes entries of bytes that are zero now.
pub(super) fn remember(observed: &Observed) {
    if let Ok(Some(store)) = &observed.store {
        write(store, observed, &found(observed));
    }
}

/// Records what a plan found beyond what was known. A plan writes nothing else, and creates the
/// journal for it. Otherwise a disk that the admin has seen to hold data could be formatted by a
/// run that had less time to read it.
pub(super) fn remember_of_plan(
    provisioner: &DiskProvisioner<'_>,
    declared: &[DiskSettings],
    observed: &Observed,
) {
    let known = &observed.journal.found;
    let now = found(observed);
    if now.iter().all(|found| known.contains(found)) {
        return;
    }
    match &observed.store {
        Ok(Some(store)) => write(store, observed, &now),
        Ok(None) => {
            let made = JournalStore::open(provisioner.roots).map_err(error_chain);
            match made.and_then(|store| provisioner.off_disks(Some(store), declared)) {
                Ok(Some(store)) => write(&store, observed, &now),
                Ok(None) => {}
                Err(error) => warn(&error),
            }
        }
        // Without a journal no disk is formatted.
        Err(_) => {}
    }
}

fn write(store: &JournalStore, observed: &Observed, found: &[FoundByte]) {
    if found != observed.journal.found
        && let Err(error) = store.write_found(found)
    {
        warn(&error_chain(error));
    }
}

fn warn(error: &str) {
    tracing::warn!(error, "cannot record where data was found on a disk");
}

/// The first non-zero byte outside the regions that every proof reads, at most one per disk. Bytes
/// that are zero now and have no open approval are left out, and so are disks that are no longer
/// declared.
fn found(observed: &Observed) -> Vec<FoundByte> {
    let mut found = observed.journal.found.clone();
    for disk in &observed.plan.disks {
        let Some(device) = &disk.device else { continue };
        match observed.seen.probes.get(&disk.name) {
            Some(Probe::HasData(content)) => {
                if let Some(offset) = content.apart {
                    found.retain(|found| found.name != disk.name);
                    found.push(FoundByte {
                        name: disk.name.clone(),
                        serial: device.serial.clone(),
                        size: device.size,
                        offset,
                    });
                }
            }
            Some(Probe::Blank(_)) => {
                let approvals = &observed.journal.approvals;
                if !approvals.iter().any(|approval| approval.name == disk.name) {
                    found.retain(|found| !found.is_on(&disk.name, device));
                }
            }
            _ => {}
        }
    }
    found.retain(|found| observed.wanted.iter().any(|wanted| wanted.name == found.name));
    found
}
