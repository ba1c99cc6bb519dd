//! Steps `make-directory`, `fill-directory`, `bind` and `remember-bind`: places that share one
//! filesystem.
//!
//! A directory is made and filled under another name at the top of the filesystem, which only root
//! may enter. It is renamed when it is complete. The journal records what was copied before the
//! rename, and that the directory is in use before the bind mount. So a run that is killed at any
//! point leaves no partial copy that a later run takes for a complete one.

use std::path::PathBuf;

use virtfleet_agent_core::disks::{
    DiskStep,
    binds::{self, UNFINISHED},
    journal::BindRecord,
    plan::Place,
    seen::Mounted,
    units,
    wanted::Owner,
};
use virtfleet_agent_host::{
    DirectoryState, busy_below, compare_trees, directory_state, disk_mounts, disks::tools::mount, entries_in,
    node_number, recreate_directory, rename_directory, stamp_of, unexpected_entry,
};

use super::{
    places::node,
    seed,
    session::Session,
    step_result::{Effect, StepError},
};

/// A directory of a filesystem, and the place at which it is mounted.
#[derive(Clone, Copy)]
struct BoundDirectory<'a> {
    disk: &'a str,
    /// Where the filesystem is mounted.
    mount_point: &'a str,
    name: &'a str,
    path: &'a str,
}

impl BoundDirectory<'_> {
    fn whole(self, session: &Session<'_>) -> PathBuf {
        session.provisioner.roots.root(self.mount_point)
    }

    fn source(self, session: &Session<'_>) -> PathBuf {
        self.whole(session).join(self.name)
    }

    fn unfinished(self, session: &Session<'_>) -> PathBuf {
        self.whole(session).join(format!("{UNFINISHED}{}", self.name))
    }

    fn shown(self) -> String {
        format!("{}/{}", self.mount_point, self.name)
    }

    fn record(self, used: bool, copied: Option<u64>) -> BindRecord {
        BindRecord {
            directory: self.name.to_owned(),
            path: self.path.to_owned(),
            used,
            copied,
        }
    }
}

/// Runs one step of a place.
pub(super) fn one(session: &mut Session<'_>, disk: &str, step: &DiskStep) -> Result<Effect, StepError> {
    match step {
        DiskStep::MakeDirectory {
            mount_point,
            directory: name,
            path,
            copy,
            owner,
        } => {
            let what = BoundDirectory {
                disk,
                mount_point,
                name,
                path,
            };
            make(session, what, *copy, owner.as_ref())
        }
        DiskStep::Bind {
            place,
            mount_point,
            directory: name,
            path,
        } => {
            let what = BoundDirectory {
                disk,
                mount_point,
                name,
                path,
            };
            bind(session, what, place)
        }
        // It is already mounted at its place.
        DiskStep::RecordBind { directory, path } => {
            let known = session.bind_record(disk, directory);
            let record = BindRecord {
                directory: directory.clone(),
                path: path.clone(),
                used: true,
                copied: known.and_then(|record| record.copied),
            };
            session.record_bind(disk, record)?;
            Ok(Effect::Changed)
        }
        _ => Err(StepError::new("it belongs to no place")),
    }
}

fn make(
    session: &mut Session<'_>,
    what: BoundDirectory<'_>,
    copy: bool,
    owner: Option<&Owner>,
) -> Result<Effect, StepError> {
    mounted_whole(what, &disk_mounts(session.provisioner.roots)?)?;
    let known = session.bind_record(what.disk, what.name).cloned();
    let used = known.as_ref().is_some_and(|record| record.used);
    match directory_state(&what.source(session))? {
        DirectoryState::Absent if used => Err(StepError::new(format!(
            "{} was in use at {} and is not there any more; restore it, or make an empty one (`install -d -m 0755 {0}`)",
            what.shown(),
            what.path
        ))),
        DirectoryState::Absent => fill(session, what, copy, owner),
        DirectoryState::Empty if copy && !used => fill(session, what, copy, owner),
        DirectoryState::Empty => Ok(Effect::Unchanged),
        DirectoryState::Filled if used || !copy => Ok(Effect::Unchanged),
        DirectoryState::Filled => {
            if let Some(copied) = known.and_then(|record| record.copied) {
                still_a_copy(session, what, copied)?;
            } else {
                tracing::info!(
                    disk = what.disk,
                    directory = what.name,
                    "has files of its own: those at {} are not copied and are hidden",
                    what.path
                );
            }
            Ok(Effect::Unchanged)
        }
    }
}

/// Checks that the place still holds what was copied, after a run was killed between the rename and
/// the mount.
fn still_a_copy(session: &Session<'_>, what: BoundDirectory<'_>, copied: u64) -> Result<(), StepError> {
    let from = session.provisioner.roots.root(what.path);
    if stamp_of(&from)? == copied || compare_trees(&from, &what.source(session)).is_ok() {
        return Ok(());
    }
    Err(StepError::new(format!(
        "{} was copied to {} by a run that was cut short, and was changed since; remove {1} to have it copied again, or \
         empty {0} to use what was copied",
        what.path,
        what.shown()
    )))
}

fn fill(
    session: &mut Session<'_>,
    what: BoundDirectory<'_>,
    copy: bool,
    owner: Option<&Owner>,
) -> Result<Effect, StepError> {
    let roots = session.provisioner.roots;
    no_strangers(session, what)?;
    let from = roots.root(what.path);
    if entries_in(&from, 1)? > 0 {
        if !copy {
            return Err(StepError::new(format!(
                "files lie in {} that the plan has not seen, and would be hidden; plan again (virtfleet-agent plan disks)",
                what.path
            )));
        }
        let busy = busy_below(roots, &from);
        if !busy.is_empty() {
            return Err(StepError::new(format!(
                "{} is in use by {}; stop them, or reboot",
                what.path,
                busy.join(", ")
            )));
        }
    }
    let unfinished = what.unfinished(session);
    recreate_directory(&unfinished)?;
    session.at(what.disk, "directory-made");
    // The copy of an empty directory takes its owner, mode, ACL and label.
    let stamp = seed::copy(session, what.disk, &from, &unfinished)?;
    if let Some(owner) = owner {
        virtfleet_agent_host::own(roots, &unfinished, owner)?;
    }
    let copied = copy.then_some(stamp);
    session.record_bind(what.disk, what.record(false, copied))?;
    session.at(what.disk, "directory-filled");
    rename_directory(&unfinished, &what.source(session))?;
    session.at(what.disk, "directory-complete");
    if copy {
        session.copied.insert(what.path.to_owned(), stamp);
    }
    Ok(Effect::Changed)
}

/// Refuses a filesystem that never had a place and holds other files. It may have been mounted as a
/// whole at one of the places before; an empty directory beside its files would hide them.
fn no_strangers(session: &Session<'_>, what: BoundDirectory<'_>) -> Result<(), StepError> {
    let recorded = session
        .entry(what.disk)
        .is_some_and(|entry| !entry.binds.is_empty());
    if recorded {
        return Ok(());
    }
    let wanted = &session.observed.wanted;
    let wanted = wanted.iter().find(|wanted| wanted.name == what.disk);
    let ours = |name: &str| {
        let mut binds = wanted.iter().flat_map(|wanted| &wanted.binds);
        name.starts_with(UNFINISHED) || binds.any(|bind| bind.directory == name)
    };
    match unexpected_entry(&what.whole(session), ours)? {
        None => Ok(()),
        Some(stranger) => Err(StepError::new(format!(
            "{} has files that belong to no place, e.g. {stranger:?}: was it mounted at {} as a whole before? Move its files \
             into {}, or make that directory empty (`mkdir {2}`)",
            what.mount_point,
            what.path,
            what.shown()
        ))),
    }
}

fn bind(session: &mut Session<'_>, what: BoundDirectory<'_>, place: &Place) -> Result<Effect, StepError> {
    let provisioner = session.provisioner;
    if let Place::Disk(id) = place {
        session.same(id)?;
    }
    may_be_bound(session, what)?;
    let number = node_number(&node(session, place));
    let mounts = disk_mounts(provisioner.roots)?;
    let whole = mounted_whole(what, &mounts)?;
    if Some(whole.number) != number {
        return Err(StepError::new(format!(
            "at {} another device ({}) is mounted",
            what.mount_point, whole.number
        )));
    }
    let source = what.source(session);
    if directory_state(&source)? == DirectoryState::Absent {
        return Err(StepError::new(format!("{} is not there", what.shown())));
    }
    let copied = session
        .bind_record(what.disk, what.name)
        .and_then(|record| record.copied);
    session.record_bind(what.disk, what.record(true, copied))?;
    session.at(what.disk, "bind-used");
    let unit = format!("{}.mount", units::escape_path(what.path));
    if provisioner.systemd {
        session.start(&unit)?;
    } else {
        mount::bind(provisioner.commands, &source, &provisioner.roots.root(what.path))?;
    }
    session.at(what.disk, "bound");
    let mounts = disk_mounts(provisioner.roots)?;
    let whole = mounted_whole(what, &mounts)?;
    let there = mounts.iter().rev().find(|mount| mount.mount_point == what.path);
    if there.is_some_and(|there| binds::is_directory(what.name, there, whole)) {
        session.mounted.push(what.path.to_owned());
        return Ok(Effect::Changed);
    }
    Err(StepError::new(format!(
        "{} is not mounted at {}; findmnt {1}; systemctl status {unit}",
        what.shown(),
        what.path
    )))
}

/// The mount of the whole filesystem.
fn mounted_whole<'m>(what: BoundDirectory<'_>, mounts: &'m [Mounted]) -> Result<&'m Mounted, StepError> {
    let whole = mounts
        .iter()
        .rev()
        .find(|mount| mount.mount_point == what.mount_point);
    whole.ok_or_else(|| StepError::new(format!("nothing is mounted at {}", what.mount_point)))
}

/// Refuses the bind mount if files were added to the place since it was observed or copied: the
/// mount would hide them.
fn may_be_bound(session: &mut Session<'_>, what: BoundDirectory<'_>) -> Result<(), StepError> {
    let roots = session.provisioner.roots;
    let from = roots.root(what.path);
    if let Some(copied) = session.copied.get(what.path) {
        let busy = busy_below(roots, &from);
        if stamp_of(&from)? == *copied && busy.is_empty() {
            return Ok(());
        }
        // This run made it and never mounted it. The next run fills it again.
        let unfinished = what.unfinished(session);
        rename_directory(&what.source(session), &unfinished)?;
        session.forget_bind(what.disk, what.name)?;
        session.copied.remove(what.path);
        return Err(StepError::new(if busy.is_empty() {
            format!(
                "{} was changed after it was copied; the next run copies it again",
                what.path
            )
        } else {
            format!(
                "{} is in use by {} since it was copied; stop them, or reboot",
                what.path,
                busy.join(", ")
            )
        }));
    }
    let seen = session.observed.seen.mount_points.get(what.path);
    // The plan covers what it observed: that is copied, or may be hidden.
    if seen.is_some_and(|seen| seen.entries > 0) {
        return Ok(());
    }
    let mounts = disk_mounts(roots)?;
    let points: Vec<&str> = mounts.iter().map(|mount| mount.mount_point.as_str()).collect();
    let under = virtfleet_agent_host::mount_point(roots, what.path, &points);
    if let Some(why) = under.unusable {
        return Err(StepError::new(format!(
            "{} cannot be mounted on: {why}",
            what.path
        )));
    }
    let used = session
        .bind_record(what.disk, what.name)
        .is_some_and(|record| record.used);
    if under.entries == 0 || used && under.busy.is_empty() {
        return Ok(());
    }
    Err(StepError::new(format!(
        "{} entries lie in {} that the plan has not seen, and would be hidden; plan again (virtfleet-agent plan disks)",
        under.entries, what.path
    )))
}
