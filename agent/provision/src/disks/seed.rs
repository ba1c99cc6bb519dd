//! Step `seed`: copies the files under the mount point to the new filesystem at a private mount,
//! and compares them.

use std::path::{Path, PathBuf};

use virtfleet_agent_core::disks::{journal::Progress, plan::Place};
use virtfleet_agent_host::{busy_below, compare_trees, copy_tree, disk_mounts, disks::tools::mount};

use super::{
    places::node,
    provisioner::DiskProvisioner,
    session::Session,
    step_result::{Effect, StepError},
};

/// Directory of the private mounts; only root may enter it.
pub(super) const SEED_DIRECTORY: &str = "/run/virtfleet/seed";
/// Number of attempts at a copy that differs because the original was changed.
const MAX_ATTEMPTS: usize = 2;

pub(super) fn seed(
    session: &mut Session<'_>,
    name: &str,
    place: &Place,
    filesystem: &str,
    mount_point: &str,
) -> Result<Effect, StepError> {
    let provisioner = session.provisioner;
    if let Place::Disk(id) = place {
        session.same(id)?;
    }
    let from = provisioner.roots.root(mount_point);
    let busy = busy_below(provisioner.roots, &from);
    if !busy.is_empty() {
        return Err(StepError::new(format!(
            "{mount_point} is in use by {}; stop them, or reboot",
            busy.join(", ")
        )));
    }
    let progress = session.entry(name).map(|entry| entry.progress);
    if !matches!(
        progress,
        Some(Progress::Intended | Progress::Encrypted | Progress::Formatted | Progress::Seeding)
    ) {
        return Err(StepError::new(
            "the journal does not have its filesystem as new; its content may be in use",
        ));
    }
    if matches!(progress, Some(Progress::Intended | Progress::Encrypted)) {
        // The filesystem was found to be complete. Once it is mounted, no check can show what a
        // power cut left.
        session.progress(name, Progress::Formatted)?;
    }
    let private = private(provisioner, name);
    virtfleet_agent_host::make_private_folder(&private)?;
    mount::mount(
        provisioner.commands,
        filesystem,
        &[],
        &node(session, place),
        &private,
    )?;
    session.at(name, "seed-mounted");
    // The filesystem may hold an interrupted copy, or nothing. Otherwise something else wrote to
    // it.
    if progress != Some(Progress::Seeding) && virtfleet_agent_host::entries_in(&private, 1)? > 0 {
        mount::umount(provisioner.commands, &private)?;
        return Err(StepError::new(
            "it holds files that the agent did not copy there; inspect them (`mount` it elsewhere), and set seedFrom: none to use it as it is",
        ));
    }
    session.progress(name, Progress::Seeding)?;
    session.at(name, "seeding");
    let copied = copy(session, name, &from, &private);
    let unmounted = mount::umount(provisioner.commands, &private);
    let stamp = copied?;
    unmounted?;
    session.at(name, "seed-unmounted");
    session.progress(name, Progress::Seeded)?;
    session.copied.insert(name.to_owned(), stamp);
    Ok(Effect::Changed)
}

/// Copies a tree and compares it. Returns the stamp of what was copied.
pub(super) fn copy(session: &Session<'_>, name: &str, from: &Path, to: &Path) -> Result<u64, StepError> {
    let mut tries = MAX_ATTEMPTS;
    loop {
        tries -= 1;
        // Taken before the comparison, so that a later change is detected before the mount.
        let stamp = virtfleet_agent_host::stamp_of(from)?;
        copy_tree(session.provisioner.commands, from, to)?;
        session.at(name, "copied");
        match compare_trees(from, to) {
            Ok(seeded) => {
                tracing::info!(
                    disk = name,
                    entries = seeded.entries,
                    bytes = seeded.bytes,
                    "copied and compared"
                );
                session.at(name, "compared");
                return Ok(stamp);
            }
            Err(error) if tries == 0 => return Err(error.into()),
            Err(_) => {}
        }
    }
}

fn private(provisioner: &DiskProvisioner<'_>, name: &str) -> PathBuf {
    provisioner.roots.root(SEED_DIRECTORY).join(name)
}

/// Unmounts what an interrupted copy left at its private mount. A busy mount stays, and the disk
/// then counts as in use.
pub(super) fn clean(provisioner: &DiskProvisioner<'_>) {
    let below = format!("{SEED_DIRECTORY}/");
    let mounts = disk_mounts(provisioner.roots).unwrap_or_default();
    for mounted in mounts
        .iter()
        .rev()
        .filter(|mount| mount.mount_point.starts_with(&below))
    {
        let place = provisioner.roots.root(&mounted.mount_point);
        if let Err(error) = mount::umount(provisioner.commands, &place) {
            tracing::warn!(%error, "an interrupted copy cannot be unmounted");
        }
    }
}
