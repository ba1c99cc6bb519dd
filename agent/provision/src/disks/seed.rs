//! Step `seed`: copies what lies under the mount point to the new filesystem at a private place, and compares.

use std::path::{Path, PathBuf};

use virtfleet_agent_core::disks::{journal::Progress, plan::Place};
use virtfleet_agent_host::{busy_below, compare_trees, copy_tree, disk_mounts, disks::tools::mount};

use super::{
    places::node,
    provisioner::DiskProvisioner,
    session::Session,
    step_result::{Effect, StepError},
};

/// Where, below which nobody but root looks.
pub(super) const SEED_DIRECTORY: &str = "/run/virtfleet/seed";
/// How often a copy that differs, because somebody has changed the original, is made anew.
const TRIES: usize = 2;

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
            "the journal does not have its filesystem as new; what is on it may be somebody's",
        ));
    }
    if matches!(progress, Some(Progress::Intended | Progress::Encrypted)) {
        // It was found to be whole. Once it is mounted, no checker says so of what a power cut leaves.
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
    // What is on it now is a copy that was cut short, or nothing: else somebody was there.
    if progress != Some(Progress::Seeding) && virtfleet_agent_host::entries_in(&private, 1)? > 0 {
        mount::umount(provisioner.commands, &private)?;
        return Err(StepError::new(
            "files lie on it that nobody has copied there; look at them (`mount` it elsewhere), and set seedFrom: none to use it as it is",
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

/// Copies a tree and compares. The stamp of what was copied.
pub(super) fn copy(session: &Session<'_>, name: &str, from: &Path, to: &Path) -> Result<u64, StepError> {
    let mut tries = TRIES;
    loop {
        tries -= 1;
        // Before they are compared: what is changed later is seen at the mount.
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

/// Unmounts what an interrupted copy has left at its private place. What is busy stays, and the disk is in use then.
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
